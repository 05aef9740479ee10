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
use super::rare::{Cut, LEFT_OUT, approximate_epsilon, approximate_ln_delta, left_out};
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

/// The value of all losses, or if that is not accurate enough the one with a cut.
fn first_accurate(
    patience: Patience,
    whole: Option<Exact>,
    below: impl Fn() -> Option<Exact>,
) -> Option<Exact> {
    let accurate = |exact: &Exact| exact.relative_error <= TOLERANCE;
    if patience == Patience::Quick || whole.as_ref().is_some_and(accurate) {
        return whole;
    }
    below().filter(accurate).or(whole)
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
    let whole = epsilon_within(parts, direction, Domain::Whole, delta).map(|(exact, _)| exact);
    first_accurate(patience, whole, || epsilon_below(parts, direction, delta))
}

/// Exact ε with the losses cut where they no longer decide it.
fn epsilon_below(parts: &[(Pair, u64)], direction: Direction, delta: f64) -> Option<Exact> {
    let share = 1e-9 * delta / releases(parts);
    let start = Cumulants::new(parts, direction, share).saddle(delta)?.epsilon;
    let mut epsilon = approximate_epsilon(parts, direction, delta, start)?;
    for _ in 0..4 {
        // A little more than needed, so that the cut is still good for what is found.
        let cut = Cut::new(parts, direction, 1.01 * epsilon, 0.1 * LEFT_OUT * delta)?;
        let (mut exact, decay) = epsilon_within(parts, direction, Domain::Below(cut.loss), delta)?;
        let missing = left_out(parts, direction, exact.value, cut.loss)? / delta;
        if missing <= LEFT_OUT {
            if exact.value > 0.0 {
                exact.relative_error += missing / (decay * exact.value);
            }
            return Some(exact);
        }
        epsilon = exact.value;
    }
    None
}

/// The cumulants of the losses that decide, and of those in the domain.
fn cumulants(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: Domain,
    delta: f64,
) -> (Cumulants, Cumulants) {
    match domain {
        Domain::Whole => {
            let visible = 1e-9 * delta / releases(parts);
            let new = |tail| Cumulants::new(parts, direction, tail);
            (new(visible), new(1e-300))
        }
        Domain::Below(cut) => {
            let new = || Cumulants::below(parts, direction, cut);
            (new(), new())
        }
    }
}

/// ε, and the decay of `ln δ` there.
fn epsilon_within(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: Domain,
    delta: f64,
) -> Option<(Exact, f64)> {
    let (mut visible, mut cumulants) = cumulants(parts, direction, domain, delta);
    let saddle = visible.saddle(delta)?;
    let plan = Plan::new(&mut cumulants, saddle.theta, saddle.epsilon.max(0.0), delta)?;
    let mut first = plan.contour(parts, direction, domain, 1.0)?;
    let mut epsilon = first.epsilon(delta, saddle.epsilon)?;
    let mut theta = plan.theta;
    let mut answer = None;
    for _ in 0..2 {
        if epsilon <= 0.0 {
            return Some((Exact { value: 0.0, relative_error: 0.0 }, 1.0));
        }
        let beside = Plan::new(&mut cumulants, 0.87 * theta, epsilon, delta)?;
        let second = beside.contour(parts, direction, domain, 1.17)?;
        let other = second.epsilon(delta, epsilon)?;
        let relative_error = (other / epsilon - 1.0).abs() + first.remainder + 1e-15;
        answer = Some((Exact { value: epsilon, relative_error }, first.ln_delta(epsilon).1));
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
    let whole = delta_within(parts, direction, Domain::Whole, epsilon);
    first_accurate(patience, whole, || delta_below(parts, direction, epsilon))
}

/// Exact δ with the losses cut where they no longer decide it.
fn delta_below(parts: &[(Pair, u64)], direction: Direction, epsilon: f64) -> Option<Exact> {
    let mut visible = Cumulants::new(parts, direction, 1e-40);
    let mut guess = visible.saddle_at(epsilon).map_or(1e-20, |(_, ln_delta)| ln_delta.exp());
    for _ in 0..3 {
        guess = guess.clamp(1e-280, 1.0);
        guess = approximate_ln_delta(parts, direction, epsilon, guess)?.exp();
    }
    for _ in 0..3 {
        let cut = Cut::new(parts, direction, epsilon, 0.1 * LEFT_OUT * guess)?;
        let mut exact = delta_within(parts, direction, Domain::Below(cut.loss), epsilon)?;
        exact.relative_error += cut.left_out / exact.value;
        if cut.left_out <= LEFT_OUT * exact.value {
            return Some(exact);
        }
        guess = exact.value;
    }
    None
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

    #[test]
    fn a_cut_changes_no_value() {
        // The whole contour is accurate here, and a hundredth of δ or so is above the cut.
        let compositions = [
            vec![(Pair::Sampled { q: 1e-3, mu: 1.25 }, 4_000)],
            vec![
                (Pair::Sampled { q: 1e-3, mu: 1.1 }, 4_000),
                (Pair::Sampled { q: 5e-3, mu: 0.5 }, 999),
            ],
            vec![(Pair::Gaussian { mu: 0.01 }, 30), (Pair::Sampled { q: 1e-3, mu: 1.25 }, 4_000)],
            vec![(Pair::Substituted { q: 1e-3, mu: 1.25 }, 4_000)],
        ];
        for parts in compositions {
            for direction in crate::pld::directions(&parts) {
                let whole = epsilon_within(&parts, direction, Domain::Whole, 1e-6);
                let below = epsilon_below(&parts, direction, 1e-6);
                let (Some((whole, _)), Some(below)) = (whole, below) else {
                    panic!("{parts:?} {direction:?}: {whole:?} {below:?}");
                };
                let context = format!("{parts:?} {direction:?}: {whole:?} {below:?}");
                assert!(whole.relative_error < 1e-9 && below.relative_error < 1e-9, "{context}");
                assert!((whole.value / below.value - 1.0).abs() < 1e-9, "{context}");
                let back = delta_below(&parts, direction, below.value).unwrap();
                assert!((back.value / 1e-6 - 1.0).abs() < 1e-8, "{context} {back:?}");
            }
        }
    }

    #[test]
    fn a_few_rare_losses_have_their_golden_epsilon() {
        // epsilon_poisson.json, rows p041 with its error, and p077 in extended precision: the same
        // integral without a cut, in 64 bits of mantissa, on three contours.
        for (q, sigma, steps, truth, error) in [
            (1e-4, 0.8, 5_000, 0.21483416107249434, 4.7e-8),
            (1e-5, 1.0, 1_000, 0.00241620762339, 1e-14),
        ] {
            let parts = [(Pair::Sampled { q, mu: 1.0 / sigma }, steps)];
            let below = epsilon_below(&parts, Direction::Remove, 1e-9).unwrap();
            assert!((below.value - truth).abs() <= error + 1e-10 * truth, "{q}: {below:?}");
            assert!(below.relative_error <= TOLERANCE, "{q}: {below:?}");
            let back = delta_below(&parts, Direction::Remove, below.value).unwrap();
            assert!((back.value / 1e-9 - 1.0).abs() < 1e-8, "{q}: {back:?}");
        }
    }
}
