//! Inversion of the moment generating function of the privacy loss on a saddle-point contour.
//!
//! With `M(s) = E_P[e^{sY}]`, `∫ δ(ε) e^{sε} dε = M(s)/(s(s+1))`, hence
//! `δ(ε) = 1/(2πi) ∫ M(s) e^{-sε} / (s(s+1)) ds` over `Re s = θ > 0`. On the contour through the
//! saddle point nothing cancels, and the trapezoidal rule converges geometrically: its aliases are
//! `δ(ε + kL) e^{θkL}`, `L = 2π` over the step. `ln M` is additive, so that a million steps cost as
//! much as one.

use super::contour_plan::ContourPlan;
use super::contour_values::LossRange;
use super::rare_losses::{
    Cut, OMITTED_SHARE, approximate_epsilon, approximate_ln_delta, omitted_delta,
};
use super::single_release::{single_sampled_delta, single_sampled_epsilon};
use super::value::{Effort, ExactValue, first_accurate};
use crate::dominating_pairs::{Direction, Pair, gaussian_shift};
use crate::math::gaussian_dp::{gaussian_delta, gaussian_epsilon};
use crate::saddle::Cumulants;

/// Returns the exact ε at `delta` in one direction, not below 0. `None` if the integrand decays too
/// slowly or a pair has no analytic rule.
pub(super) fn epsilon_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    delta: f64,
    effort: Effort,
) -> Option<ExactValue> {
    if let Some(mu) = gaussian_shift(parts) {
        return Some(ExactValue { value: gaussian_epsilon(mu, delta), relative_error: 1e-12 });
    }
    if let [(Pair::Sampled { q, mu }, 1)] = *parts {
        return single_sampled_epsilon(q, mu, direction, delta);
    }
    let whole = epsilon_within(parts, direction, LossRange::Whole, delta).map(|(exact, _)| exact);
    first_accurate(effort, whole, || epsilon_below(parts, direction, delta))
}

/// Returns the exact ε with the losses cut where they no longer affect it.
fn epsilon_below(parts: &[(Pair, u64)], direction: Direction, delta: f64) -> Option<ExactValue> {
    let share = 1e-9 * delta / releases(parts);
    let start = Cumulants::new(parts, direction, share).saddle(delta)?.epsilon;
    let mut epsilon = approximate_epsilon(parts, direction, delta, start)?;
    for _ in 0..4 {
        // A margin of 1%, so that the cut is also valid for the resulting ε.
        let cut = Cut::new(parts, direction, 1.01 * epsilon, 0.1 * OMITTED_SHARE * delta)?;
        let (mut exact, decay) =
            epsilon_within(parts, direction, LossRange::Below(cut.loss), delta)?;
        let missing = omitted_delta(parts, direction, exact.value, cut.loss)? / delta;
        if missing <= OMITTED_SHARE {
            if exact.value > 0.0 {
                exact.relative_error += missing / (decay * exact.value);
            }
            return Some(exact);
        }
        epsilon = exact.value;
    }
    None
}

/// Returns the cumulants of the dominant losses, and of all losses in the domain.
fn cumulants(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: LossRange,
    delta: f64,
) -> (Cumulants, Cumulants) {
    match domain {
        LossRange::Whole => {
            let visible = 1e-9 * delta / releases(parts);
            let new = |tail| Cumulants::new(parts, direction, tail);
            (new(visible), new(1e-300))
        }
        LossRange::Below(cut) => {
            let new = || Cumulants::below(parts, direction, cut);
            (new(), new())
        }
    }
}

/// Returns ε, and the decay of `ln δ` there.
fn epsilon_within(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: LossRange,
    delta: f64,
) -> Option<(ExactValue, f64)> {
    let (mut visible, mut cumulants) = cumulants(parts, direction, domain, delta);
    let saddle = visible.saddle(delta)?;
    let plan = ContourPlan::new(&mut cumulants, saddle.theta, saddle.epsilon.max(0.0), delta)?;
    let mut first = plan.values(parts, direction, domain, 1.0)?;
    let mut epsilon = first.epsilon(delta, saddle.epsilon)?;
    let mut theta = plan.theta;
    let mut answer = None;
    for _ in 0..2 {
        if epsilon <= 0.0 {
            return Some((ExactValue { value: 0.0, relative_error: 0.0 }, 1.0));
        }
        let nearby = ContourPlan::new(&mut cumulants, 0.87 * theta, epsilon, delta)?;
        let second = nearby.values(parts, direction, domain, 1.17)?;
        let other = second.epsilon(delta, epsilon)?;
        let relative_error = (other / epsilon - 1.0).abs() + first.remainder + 1e-15;
        answer = Some((ExactValue { value: epsilon, relative_error }, first.ln_delta(epsilon).1));
        if relative_error < 1e-10 {
            break;
        }
        // Repeats with the contour for the better ε.
        let plan =
            ContourPlan::new(&mut cumulants, visible.saddle_at(epsilon)?.0.theta, epsilon, delta)?;
        theta = plan.theta;
        first = plan.values(parts, direction, domain, 1.0)?;
        epsilon = first.epsilon(delta, epsilon)?;
    }
    answer
}

/// Returns the exact δ at `epsilon` in one direction; `None` as for [`epsilon_of_direction`].
pub(super) fn delta_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    epsilon: f64,
    effort: Effort,
) -> Option<ExactValue> {
    if let Some(mu) = gaussian_shift(parts) {
        return Some(ExactValue { value: gaussian_delta(mu, epsilon), relative_error: 1e-12 });
    }
    if let [(Pair::Sampled { q, mu }, 1)] = *parts {
        return Some(ExactValue {
            value: single_sampled_delta(q, mu, direction, epsilon),
            relative_error: 1e-11,
        });
    }
    let whole = delta_within(parts, direction, LossRange::Whole, epsilon);
    first_accurate(effort, whole, || delta_below(parts, direction, epsilon))
}

/// Returns the exact δ with the losses cut where they no longer affect it.
fn delta_below(parts: &[(Pair, u64)], direction: Direction, epsilon: f64) -> Option<ExactValue> {
    let mut visible = Cumulants::new(parts, direction, 1e-40);
    let mut guess = visible.saddle_at(epsilon).map_or(1e-20, |(_, ln_delta)| ln_delta.exp());
    for _ in 0..3 {
        guess = guess.clamp(1e-280, 1.0);
        guess = approximate_ln_delta(parts, direction, epsilon, guess)?.exp();
    }
    for _ in 0..3 {
        let cut = Cut::new(parts, direction, epsilon, 0.1 * OMITTED_SHARE * guess)?;
        let mut exact = delta_within(parts, direction, LossRange::Below(cut.loss), epsilon)?;
        exact.relative_error += cut.omitted / exact.value;
        if cut.omitted <= OMITTED_SHARE * exact.value {
            return Some(exact);
        }
        guess = exact.value;
    }
    None
}

fn delta_within(
    parts: &[(Pair, u64)],
    direction: Direction,
    domain: LossRange,
    epsilon: f64,
) -> Option<ExactValue> {
    let mut guess = 1e-6;
    let mut values = Vec::new();
    for (shrink, spread) in [(1.0, 1.0), (1.0, 1.0), (0.87, 1.17)] {
        let (mut visible, mut cumulants) = cumulants(parts, direction, domain, guess);
        let (saddle, _) = visible.saddle_at(epsilon)?;
        let plan = ContourPlan::new(&mut cumulants, shrink * saddle.theta, epsilon, guess)?;
        let contour = plan.values(parts, direction, domain, spread)?;
        let (ln_delta, _) = contour.ln_delta(epsilon);
        if !ln_delta.is_finite() {
            return None;
        }
        guess = ln_delta.exp().clamp(1e-280, 1.0);
        values.push((ln_delta.exp(), contour.remainder));
    }
    let relative_error = (values[2].0 / values[1].0 - 1.0).abs() + values[1].1 + 1e-15;
    Some(ExactValue { value: values[1].0, relative_error })
}

fn releases(parts: &[(Pair, u64)]) -> f64 {
    parts.iter().map(|(_, n)| *n as f64).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::exact::value::TOLERANCE;

    // About 15 of 25 draws of nearly the same loss: the integrand falls below 1e-17 and grows to
    // 1e-6 again. The reference is from `scripts/reference_contours.py`.
    #[test]
    fn an_integrand_with_several_peaks_is_integrated_to_its_end() {
        let (delta, truth) = (1.593_572_174_386_718_1e-10, 703.163_944_019_133);
        let pair =
            Pair::Sampled { q: 0.097_626_600_606_494_68, mu: 1.0 / 0.104_168_940_458_922_33 };
        let parts = [(pair, 25)];
        let (mut visible, mut all) = cumulants(&parts, Direction::Remove, LossRange::Whole, delta);
        let saddle = visible.saddle(delta).unwrap();
        let plan = ContourPlan::new(&mut all, saddle.theta, saddle.epsilon, delta).unwrap();
        for spread in [1.0, 1.17, 1.5] {
            let contour = plan.values(&parts, Direction::Remove, LossRange::Whole, spread).unwrap();
            let epsilon = contour.epsilon(delta, saddle.epsilon).unwrap();
            assert!((epsilon / truth - 1.0).abs() < 1e-11, "{spread}: {epsilon}");
        }
    }

    #[test]
    fn inversion_of_gaussians_equals_the_closed_form() {
        let parts = [(Pair::Gaussian { mu: 0.3 }, 7)];
        let mu = 0.3 * 7f64.sqrt();
        let mut cumulants = Cumulants::new(&parts, Direction::Remove, 1e-300);
        for delta in [1e-3, 1e-6, 1e-15] {
            let saddle = cumulants.saddle(delta).unwrap();
            let plan =
                ContourPlan::new(&mut cumulants, saddle.theta, saddle.epsilon, delta).unwrap();
            let contour = plan.values(&parts, Direction::Remove, LossRange::Whole, 1.0).unwrap();
            let epsilon = contour.epsilon(delta, saddle.epsilon).unwrap();
            let closed = gaussian_epsilon(mu, delta);
            assert!((epsilon / closed - 1.0).abs() < 1e-11, "{delta}: {epsilon} {closed}");
        }
    }

    #[test]
    fn mnist_epsilon_matches_its_golden_value() {
        // epsilon_poisson.json, row p000.
        let parts = [(Pair::Sampled { q: 256.0 / 60_000.0, mu: 1.0 / 1.1 }, 14_062)];
        let remove = epsilon_of_direction(&parts, Direction::Remove, 1e-5, Effort::Quick).unwrap();
        let add = epsilon_of_direction(&parts, Direction::Add, 1e-5, Effort::Quick).unwrap();
        assert!((remove.value / 2.38159692148991 - 1.0).abs() < 1e-9, "{remove:?}");
        assert!((add.value / 2.243559372698958 - 1.0).abs() < 1e-9, "{add:?}");
        assert!(remove.relative_error < 1e-9);
    }

    #[test]
    fn cut_changes_no_value() {
        // The whole contour is accurate here, and about a hundredth of δ is above the cut.
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
            for direction in crate::dominating_pairs::directions(&parts) {
                let whole = epsilon_within(&parts, direction, LossRange::Whole, 1e-6);
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
    fn rare_losses_have_their_golden_epsilon() {
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
