//! The Rényi divergence of a composition, as a function of the order.

use super::conversion::{delta_from_rdp, epsilon_from_rdp};
use super::fixed_size::FixedSizeBound;
use crate::event::RunCount;
use crate::math::minimum::minimize;
use crate::mechanism::{Direction, Lowered, Nodes, Pair, lower};
use crate::{AccountantError, DpEvent, NeighboringRelation};

/// What one released event contributes.
#[derive(Debug, Clone)]
enum Term {
    /// `αρ`.
    Linear(f64),
    /// A dominating pair.
    Pair(Pair),
    /// Fixed-size sampling.
    FixedSize(FixedSizeBound),
    /// Repeat-and-select.
    Selection { inner: Box<RenyiCurve>, runs: RunCount },
}

/// The composed curve, with what has to be added to δ.
#[derive(Debug, Clone, Default)]
pub(crate) struct RenyiCurve {
    terms: Vec<(Term, u64)>,
    mass_at_infinity: f64,
    total_variation: f64,
    infinite: Option<String>,
}

impl RenyiCurve {
    /// The curve of `events` under `relation`.
    pub(crate) fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let mut curve = Self::default();
        for (event, count) in events {
            event.validate()?;
            curve.add(event, count, relation)?;
        }
        Ok(curve)
    }

    fn add(
        &mut self,
        event: &DpEvent,
        count: u64,
        relation: NeighboringRelation,
    ) -> Result<(), AccountantError> {
        if count == 0 {
            return Ok(());
        }
        match event {
            DpEvent::Composed { events } => {
                events.iter().try_for_each(|part| self.add(part, count, relation))
            }
            DpEvent::SelfComposed { event, count: inner } => {
                let total = count.checked_mul(*inner).ok_or_else(|| {
                    AccountantError::invalid("count", format!("overflows: {count} x {inner}"))
                })?;
                self.add(event, total, relation)
            }
            DpEvent::ZeroConcentrated { rho } => {
                self.terms.push((Term::Linear(*rho), count));
                Ok(())
            }
            DpEvent::RepeatAndSelect { event, runs } => {
                let mut inner = RenyiCurve::default();
                inner.add(event, 1, relation)?;
                if inner.mass_at_infinity > 0.0 || inner.total_variation > 0.0 {
                    return Err(AccountantError::unsupported(
                        event.to_string(),
                        "repeat-and-select needs a pure Rényi bound; this event has a δ of its own",
                    ));
                }
                self.infinite = self.infinite.take().or_else(|| inner.infinite.clone());
                self.terms.push((Term::Selection { inner: Box::new(inner), runs: *runs }, count));
                Ok(())
            }
            _ => self.add_lowered(lower([(event, count)], relation)?),
        }
    }

    fn add_lowered(&mut self, lowered: Lowered) -> Result<(), AccountantError> {
        self.mass_at_infinity += lowered.mass_at_infinity;
        self.total_variation += lowered.total_variation;
        self.infinite = self.infinite.take().or(lowered.infinite);
        for (pair, count) in lowered.parts {
            let term = match pair {
                Pair::Gaussian { mu } => Term::Linear(0.5 * mu * mu),
                Pair::Symmetrized { q, ref components } if components.len() == 1 => {
                    Term::FixedSize(FixedSizeBound::new(q, components[0].1))
                }
                Pair::Symmetrized { .. } => {
                    return Err(AccountantError::unsupported(
                        "sampling with replacement",
                        "no Rényi bound is known here; use PldAccountant",
                    ));
                }
                other => Term::Pair(other),
            };
            self.terms.push((term, count));
        }
        Ok(())
    }

    /// Whether nothing was released.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
            && self.mass_at_infinity == 0.0
            && self.total_variation == 0.0
            && self.infinite.is_none()
    }

    /// Why ε is infinite, if it is.
    pub(crate) fn infinite(&self) -> Option<&str> {
        self.infinite.as_deref()
    }

    /// The Rényi divergence of order `order`, in the worse direction. An upper bound.
    pub(crate) fn at(&self, order: f64) -> f64 {
        self.terms.iter().map(|(term, count)| term.at(order) * *count as f64).sum()
    }

    /// The δ that is not covered by the Rényi bound at `epsilon`.
    fn extra_delta(&self, epsilon: f64) -> f64 {
        let variation = if self.total_variation > 0.0 {
            (1.0 + epsilon.exp()) * self.total_variation
        } else {
            0.0
        };
        self.mass_at_infinity + variation
    }

    /// The smallest ε over all orders, and its order. An upper bound of the true ε.
    pub(crate) fn epsilon(&self, delta: f64) -> (f64, f64) {
        if self.infinite.is_some() {
            return (f64::INFINITY, f64::NAN);
        }
        if self.is_empty() {
            return (0.0, f64::NAN);
        }
        let left = delta - self.mass_at_infinity;
        if left <= 0.0 {
            return (f64::INFINITY, f64::NAN);
        }
        let (epsilon, order) = self.epsilon_of_terms(left);
        if self.total_variation == 0.0 {
            return (epsilon, order);
        }
        // A fixed point from above: δ shrinks by (1 + e^ε)η at the answer itself.
        let fits = |e: f64| self.delta(e).0 <= delta;
        let (mut low, mut high) = (epsilon, epsilon.max(1e-3));
        while !fits(high) {
            low = high;
            high *= 2.0;
            if high > 700.0 {
                return (f64::INFINITY, order);
            }
        }
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if fits(middle) { high = middle } else { low = middle }
        }
        (high, order)
    }

    fn epsilon_of_terms(&self, delta: f64) -> (f64, f64) {
        if self.terms.is_empty() {
            return (0.0, f64::NAN);
        }
        self.optimize(|order, rdp| epsilon_from_rdp(order, rdp, delta))
    }

    /// The smallest δ over all orders, and its order. An upper bound of the true δ.
    pub(crate) fn delta(&self, epsilon: f64) -> (f64, f64) {
        if self.infinite.is_some() {
            return (1.0, f64::NAN);
        }
        let (delta, order) = if self.terms.is_empty() {
            (0.0, f64::NAN)
        } else {
            let (log_delta, order) =
                self.optimize(|order, rdp| delta_from_rdp(order, rdp, epsilon).ln());
            (log_delta.exp(), order)
        };
        ((delta + self.extra_delta(epsilon)).min(1.0), order)
    }

    /// Minimises over the order: a coarse logarithmic grid of `α - 1` from 1e-6 to 1e7 (so that the
    /// optimum is never at the edge of a grid), then golden-section search beside the best point.
    fn optimize(&self, value: impl Fn(f64, f64) -> f64) -> (f64, f64) {
        let at = |t: f64| {
            let order = 1.0 + t.exp();
            value(order, self.at(order))
        };
        let step = std::f64::consts::LN_10 / 4.0;
        let grid: Vec<(f64, f64)> = (-24..=28)
            .map(|k| {
                let t = step * f64::from(k);
                (t, at(t))
            })
            .collect();
        let best = grid.iter().fold(
            (0.0, f64::INFINITY),
            |best, &(t, v)| {
                if v < best.1 { (t, v) } else { best }
            },
        );
        let (t, refined) = minimize(best.0 - step, best.0 + step, 1e-5, at);
        let (t, refined) = if refined <= best.1 { (t, refined) } else { best };
        // Bounds for fixed-size sampling have their kinks at whole orders.
        let order = 1.0 + t.exp();
        let whole = [order.floor(), order.ceil()].into_iter().filter(|&n| n > 1.0);
        let (t, refined) = whole.fold((t, refined), |best, n| {
            let v = value(n, self.at(n));
            if v < best.1 { ((n - 1.0).ln(), v) } else { best }
        });
        // The rounding of the moments, several orders above what it measures.
        (refined + refined.abs() * 1e-11, 1.0 + t.exp())
    }
}

impl Term {
    fn at(&self, order: f64) -> f64 {
        match self {
            Self::Linear(rho) => order * rho,
            Self::Pair(pair) => rdp_of_pair(pair, order),
            Self::FixedSize(bound) => bound.at(order),
            Self::Selection { inner, runs } => rdp_of_selection(inner, *runs, order),
        }
    }
}

/// Rényi divergence of one pair in the worse direction.
fn rdp_of_pair(pair: &Pair, order: f64) -> f64 {
    match *pair {
        Pair::Gaussian { mu } => 0.5 * order * mu * mu,
        // The direction "remove" is the larger one (Mironov, Talwar, Zhang 2019, Theorem 5).
        Pair::Sampled { q, mu } => rdp_sampled(pair, q, mu, order),
        Pair::Substituted { q, mu } => match Nodes::new(pair, Direction::Remove, order, 0.0) {
            Some(nodes) => nodes.ln_moment(order) / (order - 1.0),
            None => sampled_upper_bound(q, 2.0 * mu, order),
        },
        // Fixed-size sampling has its own term; nothing is guaranteed for the rest.
        Pair::Symmetrized { .. } => f64::INFINITY,
        Pair::Laplace { mu } => rdp_laplace(mu, order),
        // Quasi-convexity: mixing in the other distribution never increases the divergence.
        Pair::SampledLaplace { mu, .. } => rdp_laplace(mu, order),
        Pair::RandomizedResponse { epsilon } => {
            let ln_p = -((-epsilon).exp()).ln_1p();
            let ln_not = ln_p - epsilon;
            let moment = crate::math::ln_add_exp(
                order * ln_p + (1.0 - order) * ln_not,
                order * ln_not + (1.0 - order) * ln_p,
            );
            (moment / (order - 1.0)).clamp(0.0, epsilon)
        }
    }
}

fn rdp_sampled(pair: &Pair, q: f64, mu: f64, order: f64) -> f64 {
    match Nodes::new(pair, Direction::Remove, order, 0.0) {
        Some(nodes) => nodes.ln_moment(order) / (order - 1.0),
        None => sampled_upper_bound(q, mu, order),
    }
}

/// Minkowski's inequality: `E[(1-q+qL)^α]^{1/α} <= 1 - q + q E[L^α]^{1/α}`.
fn sampled_upper_bound(q: f64, mu: f64, order: f64) -> f64 {
    let plain = 0.5 * (order - 1.0) * mu * mu;
    let ln_norm = crate::math::ln_add_exp((-q).ln_1p(), q.ln() + plain);
    (order / (order - 1.0) * ln_norm).max(0.0)
}

/// Mironov 2017, Proposition 6.
fn rdp_laplace(mu: f64, order: f64) -> f64 {
    let moment = crate::math::ln_add_exp(
        (order / (2.0 * order - 1.0)).ln() + (order - 1.0) * mu,
        ((order - 1.0) / (2.0 * order - 1.0)).ln() - order * mu,
    );
    (moment / (order - 1.0)).clamp(0.0, mu)
}

/// "Hyperparameter Tuning with Rényi Differential Privacy", Papernot and Steinke 2022: Theorem 2
/// (truncated negative binomial) and Theorem 6 (Poisson). An upper bound.
fn rdp_of_selection(inner: &RenyiCurve, runs: RunCount, order: f64) -> f64 {
    let own = inner.at(order);
    let other_orders = (-16..=24).map(|k| 1.0 + 10f64.powf(f64::from(k) / 4.0));
    match runs {
        RunCount::TruncatedNegativeBinomial { mean, shape } => {
            let Some(gamma) = negative_binomial_gamma(mean, shape) else {
                return own;
            };
            let extra = other_orders
                .map(|hat| (1.0 + shape) * ((1.0 - 1.0 / hat) * inner.at(hat) - gamma.ln() / hat))
                .fold(f64::INFINITY, f64::min);
            own + extra.max(0.0) + mean.ln() / (order - 1.0)
        }
        RunCount::Poisson { mean } => {
            let epsilon_hat = (1.0 / (order - 1.0)).ln_1p();
            let delta_hat = inner.delta(epsilon_hat).0;
            own + mean * delta_hat + mean.ln().max(0.0) / (order - 1.0)
        }
    }
}

/// The parameter γ of the truncated negative binomial with this mean; `None` for mean 1.
fn negative_binomial_gamma(mean: f64, shape: f64) -> Option<f64> {
    if mean <= 1.0 {
        return None;
    }
    let mean_of = |ln_gamma: f64| {
        let gamma = ln_gamma.exp();
        if shape == 0.0 {
            (1.0 / gamma - 1.0) / -ln_gamma
        } else {
            shape * (1.0 - gamma) / (gamma * -(shape * ln_gamma).exp_m1())
        }
    };
    // The mean decreases in γ. The lower end is taken: a smaller γ is the larger bound.
    let (mut low, mut high) = (-700.0, -1e-12);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if mean_of(middle) > mean { low = middle } else { high = middle }
    }
    Some(f64::exp(low))
}

pub(super) fn check_arguments(q: f64, sigma: f64, order: f64) -> Result<(), AccountantError> {
    DpEvent::dp_sgd_step(q, sigma).validate()?;
    if order > 1.0 && order.is_finite() {
        Ok(())
    } else {
        Err(AccountantError::invalid("order", format!("must be finite and above 1, got {order}")))
    }
}

/// Rényi divergence of order `order` of one Gaussian release on a Poisson sample, under
/// add-or-remove-one, in the worse direction. Exact to about 1e-12 relative for every order,
/// integer or not (by the trapezoidal rule on a positive integrand); above the longest rule it is
/// the upper bound by Minkowski's inequality.
///
/// # Errors
///
/// [`AccountantError::InvalidArgument`] for numbers outside of their domains.
///
/// # References
///
/// "Rényi Differential Privacy of the Sampled Gaussian Mechanism", Mironov, Talwar, Zhang 2019,
/// sections 3.1 to 3.3.
pub fn rdp_poisson_sampled_gaussian(
    sampling_probability: f64,
    noise_multiplier: f64,
    order: f64,
) -> Result<f64, AccountantError> {
    check_arguments(sampling_probability, noise_multiplier, order)?;
    rdp_of_event(
        &DpEvent::dp_sgd_step(sampling_probability, noise_multiplier),
        NeighboringRelation::AddOrRemoveOne,
        order,
    )
}

/// Rényi divergence of order `order` of an event. An upper bound.
///
/// # Errors
///
/// [`AccountantError::Unsupported`] if there is no bound, also for an event that has a δ of its own
/// (which no Rényi divergence covers).
pub fn rdp_of_event(
    event: &DpEvent,
    relation: NeighboringRelation,
    order: f64,
) -> Result<f64, AccountantError> {
    let curve = RenyiCurve::new([(event, 1)], relation)?;
    if curve.mass_at_infinity > 0.0 || curve.total_variation > 0.0 {
        return Err(AccountantError::unsupported(
            event.to_string(),
            "its Rényi divergence is infinite; use RdpAccountant::epsilon, which adds its δ",
        ));
    }
    Ok(if curve.infinite.is_some() { f64::INFINITY } else { curve.at(order) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::math::normal;

    fn gaussian_delta(mu: f64, epsilon: f64) -> f64 {
        normal::cdf(-epsilon / mu + 0.5 * mu)
            - epsilon.exp() * normal::cdf(-epsilon / mu - 0.5 * mu)
    }

    /// Integer orders by the binomial sum (Mironov, Talwar, Zhang 2019, section 3.3).
    fn binomial_sum(q: f64, sigma: f64, order: u32) -> f64 {
        let n = f64::from(order);
        let sum = (0..=order)
            .map(|k| {
                let k = f64::from(k);
                crate::math::ln_binomial(n, k)
                    + k * q.ln()
                    + (n - k) * (-q).ln_1p()
                    + k * (k - 1.0) / (2.0 * sigma * sigma)
            })
            .fold(f64::NEG_INFINITY, crate::math::ln_add_exp);
        sum / (n - 1.0)
    }

    #[test]
    fn integer_orders_equal_the_binomial_sum() {
        for (q, sigma) in [(0.01, 1.0), (0.3, 0.5), (0.5, 4.0), (0.9, 2.0)] {
            for order in [2, 3, 7, 32, 256] {
                let got = rdp_poisson_sampled_gaussian(q, sigma, f64::from(order)).unwrap();
                let expected = binomial_sum(q, sigma, order);
                assert!((got / expected - 1.0).abs() < 1e-9, "{q} {sigma} {order}: {got}");
            }
        }
    }

    #[test]
    fn the_conversion_is_above_the_exact_gaussian_delta() {
        let event = DpEvent::gaussian(2.0);
        let curve = RenyiCurve::new([(&event, 5)], NeighboringRelation::AddOrRemoveOne).unwrap();
        let mu = 5f64.sqrt() / 2.0;
        for epsilon in [0.1, 1.0, 4.0] {
            assert!(curve.delta(epsilon).0 >= gaussian_delta(mu, epsilon));
        }
    }

    #[test]
    fn very_large_orders_are_bounded_and_not_below_moderate_ones() {
        let moderate = rdp_poisson_sampled_gaussian(0.01, 0.5, 5e3).unwrap();
        let large = rdp_poisson_sampled_gaussian(0.01, 0.5, 1e6).unwrap();
        assert!(moderate < large && large <= 1e6 * 2.0, "{moderate} {large}");
    }
}
