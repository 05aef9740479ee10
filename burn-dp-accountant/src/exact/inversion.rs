//! Inversion of the moment generating function of the privacy loss on a saddle contour.
//!
//! With `M(s) = E_P[e^{sY}]`, `∫ δ(ε) e^{sε} dε = M(s)/(s(s+1))`, hence
//! `δ(ε) = 1/(2πi) ∫ M(s) e^{-sε} / (s(s+1)) ds` over `Re s = θ > 0`. On the contour through the saddle
//! point nothing cancels, and the trapezoidal rule converges geometrically: its aliases are
//! `δ(ε + kL) e^{θkL}`, `L = 2π` over the step. `M` is additive in the logarithm, so that a million
//! steps cost as much as one.

use super::closed::{
    gaussian_delta, gaussian_epsilon, only_gaussian, single_sampled_delta, single_sampled_epsilon,
};
use super::contour::{Contour, Domain};
use crate::math::normal;
use crate::mechanism::{Direction, Pair};
use crate::saddle::Cumulants;

/// An exact value with its estimated error: the difference to a second contour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    pub(crate) value: f64,
    pub(crate) relative_error: f64,
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

    fn contour(
        &self,
        parts: &[(Pair, u64)],
        direction: Direction,
        domain: Domain,
        spread: f64,
    ) -> Option<Contour> {
        let (period, frequency) = (spread * self.period, spread * self.frequency);
        Contour::new(parts, direction, domain, self.theta, period, frequency)
    }
}

/// The share of δ of all losses that [`Domain::Within`] leaves out.
const LEFT_OUT: f64 = 1e-12;

/// Largest estimated relative error of an exact value.
pub(super) const TOLERANCE: f64 = 1e-9;

/// How hard to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Milliseconds.
    Quick,
    /// Up to a second or two where the integrand decays slowly.
    Thorough,
}

/// The domains to try, in this order, for the answer of the first that is accurate enough.
fn first_accurate(
    patience: Patience,
    tail: f64,
    value: impl Fn(Domain) -> Option<Exact>,
) -> Option<Exact> {
    let whole = value(Domain::Whole);
    let accurate = |exact: &Exact| exact.relative_error <= TOLERANCE;
    if patience == Patience::Quick || whole.as_ref().is_some_and(accurate) {
        return whole;
    }
    let reach = -normal::quantile(tail.max(1e-290));
    value(Domain::Within(reach)).filter(accurate).or(whole)
}

/// Exact ε at `delta` in one direction; not below 0. `None` where the integrand decays too slowly or
/// a pair has no analytic rule: use privacy loss distributions there.
pub(crate) fn epsilon_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    delta: f64,
    patience: Patience,
) -> Option<Exact> {
    if let Some(mu) = only_gaussian(parts) {
        return Some(Exact { value: gaussian_epsilon(mu, delta), relative_error: 1e-12 });
    }
    if let [(Pair::Sampled { q, mu }, 1)] = *parts {
        return single_sampled_epsilon(q, mu, direction, delta);
    }
    let tail = LEFT_OUT * delta / releases(parts);
    first_accurate(patience, tail, |domain| epsilon_within(parts, direction, domain, delta))
}

/// The cumulants of the losses that decide, and of those in the domain.
fn cumulants(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: Domain,
    delta: f64,
) -> (Cumulants, Cumulants) {
    let share = delta / releases(parts);
    let tail = if domain == Domain::Whole { 1e-300 } else { LEFT_OUT * share };
    (Cumulants::new(parts, direction, 1e-9 * share), Cumulants::new(parts, direction, tail))
}

fn epsilon_within(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: Domain,
    delta: f64,
) -> Option<Exact> {
    let (mut visible, mut cumulants) = cumulants(parts, direction, domain, delta);
    let saddle = visible.saddle(delta)?;
    let plan = Plan::new(&mut cumulants, saddle.theta, saddle.epsilon.max(0.0), delta)?;
    let mut first = plan.contour(parts, direction, domain, 1.0)?;
    let mut epsilon = first.epsilon(delta, saddle.epsilon)?;
    let mut theta = plan.theta;
    let mut answer = None;
    for _ in 0..2 {
        if epsilon <= 0.0 {
            return Some(Exact { value: 0.0, relative_error: 0.0 });
        }
        let beside = Plan::new(&mut cumulants, 0.87 * theta, epsilon, delta)?;
        let second = beside.contour(parts, direction, domain, 1.17)?;
        let other = second.epsilon(delta, epsilon)?;
        let relative_error = (other / epsilon - 1.0).abs() + first.remainder + 1e-15;
        answer = Some(Exact { value: epsilon, relative_error });
        if relative_error < 1e-10 {
            break;
        }
        // Again with the contour for the ε that is known now.
        let plan = Plan::new(&mut cumulants, visible.saddle_at(epsilon)?.0.theta, epsilon, delta)?;
        theta = plan.theta;
        first = plan.contour(parts, direction, domain, 1.0)?;
        epsilon = first.epsilon(delta, epsilon)?;
    }
    answer
}

/// Exact δ at `epsilon` in one direction.
pub(crate) fn delta_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    epsilon: f64,
    patience: Patience,
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
    // What is left out must be small beside a δ that is not known yet: the saddle point tells.
    let mut visible = Cumulants::new(parts, direction, 1e-40);
    let guess = visible.saddle_at(epsilon).map_or(1e-100, |(_, ln_delta)| ln_delta.exp());
    let tail = LEFT_OUT * 1e-2 * guess / releases(parts);
    first_accurate(patience, tail, |domain| delta_within(parts, direction, domain, epsilon))
}

fn delta_within(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: Domain,
    epsilon: f64,
) -> Option<Exact> {
    let mut guess = 1e-6;
    let mut values = Vec::new();
    for (shrink, spread) in [(1.0, 1.0), (1.0, 1.0), (0.87, 1.17)] {
        let (mut visible, mut cumulants) = cumulants(parts, direction, domain, guess);
        let (saddle, _) = visible.saddle_at(epsilon)?;
        let plan = Plan::new(&mut cumulants, shrink * saddle.theta, epsilon, guess)?;
        let contour = plan.contour(parts, direction, domain, spread)?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_inversion_of_gaussians_equals_the_closed_form() {
        let parts = [(Pair::Gaussian { mu: 0.3 }, 7)];
        let mu = 0.3 * 7f64.sqrt();
        let mut cumulants = Cumulants::new(&parts, Direction::Remove, 1e-300);
        for delta in [1e-3, 1e-6, 1e-15] {
            let saddle = cumulants.saddle(delta).unwrap();
            let plan = Plan::new(&mut cumulants, saddle.theta, saddle.epsilon, delta).unwrap();
            let contour = plan.contour(&parts, Direction::Remove, Domain::Whole, 1.0).unwrap();
            let epsilon = contour.epsilon(delta, saddle.epsilon).unwrap();
            let closed = gaussian_epsilon(mu, delta);
            assert!((epsilon / closed - 1.0).abs() < 1e-11, "{delta}: {epsilon} {closed}");
        }
    }

    #[test]
    fn the_golden_epsilon_of_mnist_is_reached_to_nine_digits() {
        // epsilon_poisson.json, row p000.
        let parts = [(Pair::Sampled { q: 256.0 / 60_000.0, mu: 1.0 / 1.1 }, 14_062)];
        let remove =
            epsilon_of_direction(&parts, Direction::Remove, 1e-5, Patience::Quick).unwrap();
        let add = epsilon_of_direction(&parts, Direction::Add, 1e-5, Patience::Quick).unwrap();
        assert!((remove.value / 2.38159692148991 - 1.0).abs() < 1e-9, "{remove:?}");
        assert!((add.value / 2.243559372698958 - 1.0).abs() < 1e-9, "{add:?}");
        assert!(remove.relative_error < 1e-9);
    }
}
