//! Inversion of the moment generating function of the privacy loss on a saddle contour.
//!
//! With `M(s) = E_P[e^{sY}]`, `∫ δ(ε) e^{sε} dε = M(s)/(s(s+1))`, hence
//! `δ(ε) = 1/(2πi) ∫ M(s) e^{-sε} / (s(s+1)) ds` over `Re s = θ > 0`. On the contour through the saddle
//! point nothing cancels, and the trapezoidal rule converges geometrically: its aliases are
//! `δ(ε + kL) e^{θkL}`, `L = 2π` over the step. `M` is additive in the logarithm, so that a million
//! steps cost as much as one.

use crate::math::complex::Complex64;
use crate::math::normal;
use crate::mechanism::{ContourMoments, Direction, Nodes, Pair};
use crate::saddle::Cumulants;

/// An exact value with its estimated error: the difference to a second contour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    pub(crate) value: f64,
    pub(crate) relative_error: f64,
}

/// More points on the contour mean that the integrand decays too slowly.
const MAX_CONTOUR: usize = 4096;

/// More evaluations of a node mean the same: the limit is about a tenth of a second.
const MAX_WORK: usize = 1_500_000;

/// From here on, the decay so far must promise an end.
const EARLY_WORK: usize = MAX_WORK / 16;

/// Values of `M(s)/(s(s+1))` on one contour, relative to a common factor.
struct Contour {
    theta: f64,
    step: f64,
    /// `ln M(θ)`.
    ln_scale: f64,
    /// `M(s)/(M(θ) s (s+1))`, without the factor `e^{-sε}`.
    values: Vec<Complex64>,
    /// Size of the last value relative to the first.
    remainder: f64,
}

impl Contour {
    /// The contour through `theta` whose aliases are `period` apart; `frequency` is a first guess of
    /// where the integrand ends.
    fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        theta: f64,
        period: f64,
        frequency: f64,
    ) -> Option<Self> {
        let step = 2.0 * std::f64::consts::PI / period;
        let mut capacity = frequency.max(4.0 * step);
        let mut rules = Rules::new(parts, direction, theta, capacity)?;
        let ln_scale = rules.ln_moment(Complex64::new(theta, 0.0)).re;
        let mut values = Vec::with_capacity(128);
        let mut remainder = 1.0;
        let mut work = 0;
        let first = 1.0 / (theta * (theta + 1.0));
        for k in 0..MAX_CONTOUR {
            let s = Complex64::new(theta, step * k as f64);
            if s.im > capacity {
                capacity *= 3.0;
                rules = Rules::new(parts, direction, theta, capacity)?;
            }
            let value = (rules.ln_moment(s) - ln_scale).exp() / (s * (s + 1.0));
            remainder = value.norm() / first;
            values.push(value);
            work += rules.nodes;
            if remainder < 1e-16 || work > MAX_WORK {
                break;
            }
            // At the decay so far, would it end within the limit?
            let share = work as f64 / MAX_WORK as f64;
            if work > EARLY_WORK && remainder.ln() > share * 1e-16f64.ln() {
                return None;
            }
        }
        (remainder < 1e-12 && ln_scale.is_finite()).then_some(Self {
            theta,
            step,
            ln_scale,
            values,
            remainder,
        })
    }

    /// `δ(ε)` and `-δ'(ε)`, both divided by `e^{ln M(θ) - θε}`.
    fn evaluate(&self, epsilon: f64) -> (f64, f64) {
        let (mut delta, mut slope) = (0.0, 0.0);
        for (k, value) in self.values.iter().enumerate() {
            let angle = -self.step * k as f64 * epsilon;
            let term = value * Complex64::from_polar(1.0, angle);
            let weight = if k == 0 { 0.5 } else { 1.0 };
            delta += weight * term.re;
            let s = Complex64::new(self.theta, self.step * k as f64);
            slope += weight * (term * s).re;
        }
        let scale = self.step / std::f64::consts::PI;
        (scale * delta, scale * slope)
    }

    fn ln_delta(&self, epsilon: f64) -> (f64, f64) {
        let (delta, slope) = self.evaluate(epsilon);
        (delta.ln() + self.ln_scale - self.theta * epsilon, slope / delta)
    }

    /// Newton's method on `ln δ`, which is concave and falls.
    fn epsilon(&self, delta: f64, start: f64) -> Option<f64> {
        let target = delta.ln();
        let mut epsilon = start;
        for _ in 0..50 {
            let (value, decay) = self.ln_delta(epsilon);
            if !value.is_finite() || decay.is_nan() || decay <= 0.0 {
                return None;
            }
            let step = (value - target) / decay;
            epsilon += step;
            if step.abs() <= 1e-15 * epsilon.abs().max(1e-300) {
                return Some(epsilon);
            }
            if step.abs() <= 1e-12 * epsilon.abs() {
                // One more step of a quadratic method is below the rounding.
                let (value, decay) = self.ln_delta(epsilon);
                let last = (value - target) / decay;
                return last.is_finite().then_some(epsilon + last);
            }
        }
        None
    }
}

/// The rules for the moments of all parts, good up to one frequency.
struct Rules {
    parts: Vec<(Rule, f64)>,
    nodes: usize,
}

enum Rule {
    Gaussian(f64),
    Nodes(ContourMoments),
}

impl Rules {
    fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        theta: f64,
        frequency: f64,
    ) -> Option<Self> {
        let mut rules = Self { parts: Vec::new(), nodes: 1 };
        for (pair, count) in parts {
            let rule = match *pair {
                Pair::Gaussian { mu } => Rule::Gaussian(mu),
                _ => {
                    let nodes = Nodes::new(pair, direction, theta + 1.0, frequency)?;
                    let moments = nodes.on_contour(theta);
                    rules.nodes += moments.len();
                    Rule::Nodes(moments)
                }
            };
            rules.parts.push((rule, *count as f64));
        }
        Some(rules)
    }

    fn ln_moment(&self, s: Complex64) -> Complex64 {
        let terms = self.parts.iter().map(|(rule, count)| match rule {
            Rule::Gaussian(mu) => s * (s + 1.0) * (0.5 * mu * mu * count),
            Rule::Nodes(nodes) => nodes.ln_moment(s.im) * *count,
        });
        terms.sum()
    }
}

/// Where to integrate for one `(ε, δ)`: the contour with the fewest points of those near the saddle.
#[derive(Debug, Clone, Copy)]
struct Plan {
    theta: f64,
    period: f64,
    frequency: f64,
}

impl Plan {
    /// The best contour at or below `start`, of about this ε and δ.
    fn new(cumulants: &mut Cumulants, start: f64, epsilon: f64, delta: f64) -> Option<Self> {
        let mut best: Option<(f64, Self)> = None;
        let mut largest_size = f64::NEG_INFINITY;
        for k in 0..8 {
            let theta = start * 0.8f64.powi(k);
            let (value, _, variance) = cumulants.at(theta);
            // ln of δ relative to the factor of the contour: how far above rounding it is.
            let size = delta.ln() + theta * epsilon - value;
            if !size.is_finite() {
                continue;
            }
            largest_size = largest_size.max(size);
            if size < largest_size - 6.0 {
                break;
            }
            // Aliases from below are at most e^{-θL}/δ, those from above by Chernoff's bound.
            let below = (34.0 - delta.ln()) / theta;
            let mut above = f64::INFINITY;
            for factor in [1.0, 4.0, 16.0] {
                for shift in [factor / variance.sqrt(), 0.1 * factor * theta] {
                    let (further, _, _) = cumulants.at(theta + shift);
                    let bound = (further - value + 34.0 - size) / shift - epsilon;
                    if bound.is_finite() {
                        above = above.min(bound);
                    }
                }
            }
            if !above.is_finite() {
                continue;
            }
            let period = below.max(above).max(8.0 * variance.sqrt());
            // Slowly decaying integrands start with the frequency of the bulk.
            let frequency = 8.8 / variance.sqrt();
            let plan = Self { theta, period, frequency };
            match best {
                Some((known, _)) if period >= known => {
                    // Past the minimum.
                    if period > 1.5 * known {
                        break;
                    }
                }
                _ => best = Some((period, plan)),
            }
        }
        best.map(|(_, plan)| plan)
    }

    fn contour(&self, parts: &[(Pair, u64)], direction: Direction, spread: f64) -> Option<Contour> {
        Contour::new(parts, direction, self.theta, spread * self.period, spread * self.frequency)
    }
}

/// Exact ε at `delta` in one direction; not below 0. `None` where the integrand decays too slowly or
/// a pair has no analytic rule: use privacy loss distributions there.
pub(crate) fn epsilon_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    delta: f64,
) -> Option<Exact> {
    if let Some(mu) = only_gaussian(parts) {
        return Some(Exact { value: gaussian_epsilon(mu, delta), relative_error: 1e-12 });
    }
    if let [(Pair::Sampled { q, mu }, 1)] = *parts {
        return single_sampled_epsilon(q, mu, direction, delta);
    }
    let mut visible = Cumulants::new(parts, direction, 1e-9 * delta / releases(parts));
    let saddle = visible.saddle(delta)?;
    let mut cumulants = Cumulants::new(parts, direction, 1e-300);
    let plan = Plan::new(&mut cumulants, saddle.theta, saddle.epsilon.max(0.0), delta)?;
    let mut first = plan.contour(parts, direction, 1.0)?;
    let mut epsilon = first.epsilon(delta, saddle.epsilon)?;
    let mut theta = plan.theta;
    let mut answer = None;
    for _ in 0..2 {
        if epsilon <= 0.0 {
            return Some(Exact { value: 0.0, relative_error: 0.0 });
        }
        let beside = Plan::new(&mut cumulants, 0.87 * theta, epsilon, delta)?;
        let second = beside.contour(parts, direction, 1.17)?;
        let other = second.epsilon(delta, epsilon)?;
        let relative_error = (other / epsilon - 1.0).abs() + first.remainder + 1e-15;
        answer = Some(Exact { value: epsilon, relative_error });
        if relative_error < 1e-10 {
            break;
        }
        // Again with the contour for the ε that is known now.
        let plan = Plan::new(&mut cumulants, visible.saddle_at(epsilon)?.0.theta, epsilon, delta)?;
        theta = plan.theta;
        first = plan.contour(parts, direction, 1.0)?;
        epsilon = first.epsilon(delta, epsilon)?;
    }
    answer
}

/// Exact δ at `epsilon` in one direction.
pub(crate) fn delta_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    epsilon: f64,
) -> Option<Exact> {
    if let Some(mu) = only_gaussian(parts) {
        return Some(Exact { value: gaussian_delta(mu, epsilon), relative_error: 1e-12 });
    }
    if let [(Pair::Sampled { q, mu }, 1)] = *parts {
        return Some(Exact {
            value: single_sampled_delta(q, mu, direction, epsilon),
            relative_error: 1e-11,
        });
    }
    let mut cumulants = Cumulants::new(parts, direction, 1e-300);
    let mut guess = 1e-6;
    let mut values = Vec::new();
    for (shrink, spread) in [(1.0, 1.0), (1.0, 1.0), (0.87, 1.17)] {
        let mut visible = Cumulants::new(parts, direction, 1e-9 * guess / releases(parts));
        let (saddle, _) = visible.saddle_at(epsilon)?;
        let plan = Plan::new(&mut cumulants, shrink * saddle.theta, epsilon, guess)?;
        let contour = plan.contour(parts, direction, spread)?;
        let (ln_delta, _) = contour.ln_delta(epsilon);
        if !ln_delta.is_finite() {
            return None;
        }
        guess = ln_delta.exp().clamp(1e-280, 1.0);
        values.push((ln_delta.exp(), contour.remainder));
    }
    let relative_error = (values[2].0 / values[1].0 - 1.0).abs() + values[1].1 + 1e-15;
    Some(Exact { value: values[1].0, relative_error })
}

fn releases(parts: &[(Pair, u64)]) -> f64 {
    parts.iter().map(|(_, n)| *n as f64).sum()
}

/// One step under Poisson sampling. "Remove": `q` times the δ of the Gaussian at the ε before
/// sampling (Balle, Barthe, Gaboardi 2018, Theorem 2). "Add": the region where the loss exceeds ε is
/// a half-line.
fn single_sampled_delta(q: f64, mu: f64, direction: Direction, epsilon: f64) -> f64 {
    match direction {
        Direction::Remove => q * gaussian_delta(mu, (epsilon.exp_m1() / q).ln_1p()),
        Direction::Add => {
            let before = (-epsilon).exp_m1() / q;
            if before <= -1.0 {
                return 0.0;
            }
            let end = (before.ln_1p() + 0.5 * mu * mu) / mu;
            let mixed = (1.0 - q) * normal::cdf(end) + q * normal::cdf(end - mu);
            (normal::cdf(end) - epsilon.exp() * mixed).max(0.0)
        }
    }
}

fn single_sampled_epsilon(q: f64, mu: f64, direction: Direction, delta: f64) -> Option<Exact> {
    let value = match direction {
        Direction::Remove => {
            let before = if delta >= q { 0.0 } else { gaussian_epsilon(mu, delta / q) };
            (q * before.exp_m1()).ln_1p()
        }
        // Never above "remove" for a single step (Zhu, Dong, Wang 2022, Theorem 11).
        Direction::Add => 0.0,
    };
    value.is_finite().then_some(Exact { value, relative_error: 1e-12 })
}

fn only_gaussian(parts: &[(Pair, u64)]) -> Option<f64> {
    let mut square = 0.0;
    for (pair, count) in parts {
        match pair {
            Pair::Gaussian { mu } => square += mu * mu * *count as f64,
            _ => return None,
        }
    }
    Some(f64::sqrt(square))
}

/// `δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2)` of Gaussian differential privacy (Dong, Roth, Su 2022,
/// Corollary 1; Balle and Wang 2018), computed on logarithms.
pub(crate) fn gaussian_delta(mu: f64, epsilon: f64) -> f64 {
    ln_gaussian_delta(mu, epsilon).exp()
}

fn ln_gaussian_delta(mu: f64, epsilon: f64) -> f64 {
    let (a, b) = (-epsilon / mu + 0.5 * mu, -epsilon / mu - 0.5 * mu);
    let (first, second) = (normal::ln_cdf(a), epsilon + normal::ln_cdf(b));
    if second < first { crate::math::ln_sub_exp(first, second) } else { f64::NEG_INFINITY }
}

/// The ε at which [`gaussian_delta`] falls to `delta`; 0 if `δ(0)` is below already. Newton's method
/// from the right: `ln δ` is concave, so that the iteration falls monotonically to the root.
pub(crate) fn gaussian_epsilon(mu: f64, delta: f64) -> f64 {
    if gaussian_delta(mu, 0.0) <= delta {
        return 0.0;
    }
    let target = delta.ln();
    // Chernoff's bound is to the right of the root.
    let mut epsilon = 0.5 * mu * mu + mu * (-2.0 * target).sqrt();
    for _ in 0..100 {
        let value = ln_gaussian_delta(mu, epsilon);
        let ln_slope = epsilon + normal::ln_cdf(-epsilon / mu - 0.5 * mu) - value;
        let step = (value - target) / ln_slope.exp();
        if !step.is_finite() {
            // Cancellation far in the tail: halve the distance to 0.
            epsilon *= 0.5;
            continue;
        }
        epsilon = (epsilon + step).max(0.0);
        if step.abs() <= 1e-14 * epsilon {
            break;
        }
    }
    epsilon
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn gaussian_duality_has_its_golden_values() {
        // gdp_fdp.json (30 digits).
        assert!((gaussian_delta(0.01, 0.0) / 0.003989406181481645 - 1.0).abs() < 1e-12);
        assert!((gaussian_delta(4.0, 0.0) / 0.9544997361036416 - 1.0).abs() < 1e-14);
        for (mu, delta) in [(0.1, 1e-5), (1.0, 1e-12), (5.0, 1e-3)] {
            let epsilon = gaussian_epsilon(mu, delta);
            assert!((gaussian_delta(mu, epsilon) / delta - 1.0).abs() < 1e-10, "{mu} {delta}");
        }
    }

    #[test]
    fn the_inversion_of_gaussians_equals_the_closed_form() {
        let parts = [(Pair::Gaussian { mu: 0.3 }, 7)];
        let mu = 0.3 * 7f64.sqrt();
        let mut cumulants = Cumulants::new(&parts, Direction::Remove, 1e-300);
        for delta in [1e-3, 1e-6, 1e-15] {
            let saddle = cumulants.saddle(delta).unwrap();
            let plan = Plan::new(&mut cumulants, saddle.theta, saddle.epsilon, delta).unwrap();
            let contour = plan.contour(&parts, Direction::Remove, 1.0).unwrap();
            let epsilon = contour.epsilon(delta, saddle.epsilon).unwrap();
            let closed = gaussian_epsilon(mu, delta);
            assert!((epsilon / closed - 1.0).abs() < 1e-11, "{delta}: {epsilon} {closed}");
        }
    }

    #[test]
    fn the_golden_epsilon_of_mnist_is_reached_to_nine_digits() {
        // epsilon_poisson.json, row p000.
        let parts = [(Pair::Sampled { q: 256.0 / 60_000.0, mu: 1.0 / 1.1 }, 14_062)];
        let remove = epsilon_of_direction(&parts, Direction::Remove, 1e-5).unwrap();
        let add = epsilon_of_direction(&parts, Direction::Add, 1e-5).unwrap();
        assert!((remove.value / 2.38159692148991 - 1.0).abs() < 1e-9, "{remove:?}");
        assert!((add.value / 2.243559372698958 - 1.0).abs() < 1e-9, "{add:?}");
        assert!(remove.relative_error < 1e-9);
    }
}
