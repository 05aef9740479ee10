//! Runs with correlated noise and random participations, as sources of privacy losses.
//!
//! # Privacy
//!
//! Multiplied by the strategy, step `s` of a run releases `a_s + σ z_s`, where the contribution of
//! the unit is `a_s = Σ_{t ∈ π} C[s, t] u_t`. `π` are its random steps, and `u_t`, of norm at most
//! 1, may depend on earlier outputs. Against the data set in which the unit contributes nothing,
//! the likelihood ratio is `X = Σ_π w_π M_π` under `Q`, where `M_π` is the product over the rows of
//! `e^{⟨a_s, z_s⟩/σ - |a_s|²/(2σ²)}`.
//!
//! Claim: for every convex `f`, `E_Q f(X)` is at most its value for one-dimensional contributions
//! `ā_s = Σ_{t ∈ π} |C[s, t]|`. With `f = (x - α)^+` and `f = (1 - α x)^+` the latter is therefore
//! a dominating pair, in both directions.
//!
//! Proof: backwards over the rows. Let `V_s(M)` be the value for one-dimensional contributions from
//! row `s` on, as a function of the vector of the products so far; `V_n(M) = f(Σ w_π M_π)`. Its
//! second derivatives `∂²V_s/∂M_π∂M_π'` are not negative: at the end they are `f'' w_π w_π'`, and
//! an expectation over positive factors of the `M_π` keeps the sign. Interpolate the covariances of
//! one row between `⟨a_s^π, a_s^π'⟩`, which is known given earlier outputs, and `ā_s^π ā_s^π'`,
//! which is not smaller. The derivative of the expectation of `V` is half of the sum of the changes
//! of the covariances times `M_π M_π' ∂²V/∂M_π∂M_π'` (Kahane's convexity inequality), so it is not
//! negative. Hence row after row may be replaced, from the last to the first. ∎
//!
//! # Replace-one
//!
//! With the contribution `a'_s` of the unit that replaces it, the second data set has the ratio
//! `Y = Σ_π w_π M'_π` to the same `Q`, because the steps of a unit do not depend on its data.
//!
//! Claim: for every convex `φ` and `α >= 0`, `E_Q φ(X - α Y)` is at most its value for the
//! one-dimensional contributions `ā_s` and `-ā_s`. With `φ(x) = x^+` these are a dominating pair.
//! The reflection of all outputs swaps its two sides, so one direction is sufficient.
//!
//! Proof: as above, with `V_n(M, M') = φ(Σ w_π M_π - α Σ w_π M'_π)` and the vector of all exponents
//! `⟨a_s^π, z_s⟩` and `⟨a'_s^π, z_s⟩`. Within one data set the second derivatives of `V` are not
//! negative and the covariances do not fall, as before. Across, the derivatives `∂²V/∂M_π∂M'_π'`
//! are not positive: at the end they are `-α φ'' w_π w_π'`, and an expectation keeps the sign. The
//! covariances `⟨a_s^π, a'_s^π'⟩` become `-ā_s^π ā_s^π'`, which is not larger. So all changes are
//! of the sign of their derivatives. ∎
//!
//! The ratio of the loss is `X/Y`, whose powers have no simple density: losses are drawn from `P`.
//!
//! # Other units and samplers
//!
//! The choices of other units are independent of the choice of the unit, and the divergence is
//! jointly convex in them. Non-adaptive contributions and one participation: "Near-Exact Privacy
//! Amplification for Matrix Mechanisms", Choquette-Choo et al. 2025.
//!
//! - Balls in bins: any strategy. A part of an epoch is a function of the whole epoch.
//! - Random allocation: Toeplitz strategies of at most as many bands as bins; whole epochs.
//! - Minimum separation: Toeplitz strategies of at most as many bands as the separation. Here, a
//!   unit may take part in the first step. This costs at least as much as a stationary start: given
//!   the number of steps that a unit waits, the rest is a part of a run from the start.

use super::bins::Bins;
use super::sequences::{Sequence, StepRule};
use super::source::LossSource;
use crate::correlated_noise::{Participation, Strategy};
use crate::event::DpEvent;

/// Maximum number of bins in a run.
const MOST_BINS: u64 = 1_024;

/// Returns the source of `count` steps of a run with correlated noise and of all steps before them,
/// where its simulation is tighter than its certified analysis: with several bands, or if the unit
/// is replaced.
pub(super) fn source(event: &DpEvent, count: u64, replaced: bool) -> Option<LossSource> {
    let DpEvent::CorrelatedGaussian { noise_multiplier, strategy, participation, first_step } =
        event
    else {
        return None;
    };
    let noise_multiplier = &rounded_down(*noise_multiplier);
    let steps = first_step.saturating_add(count);
    let bands = strategy.bands();
    if (bands == 1 && !replaced) || steps == 0 {
        return None;
    }
    let whole = |bins: u64| steps.div_ceil(bins).saturating_mul(bins);
    match *participation {
        Participation::BallsInBins { bins } if (2..=MOST_BINS).contains(&bins) => {
            let mut products = strategy.bin_products(whole(bins).min(strategy.steps()), bins)?;
            products.iter_mut().for_each(|x| *x *= noise_multiplier.powi(-2));
            Some(match replaced {
                true => LossSource::ReplacedBins(Bins::replaced(bins as usize, products)),
                false => LossSource::Bins(Bins::new(bins as usize, products)),
            })
        }
        Participation::RandomAllocation { bins } if bins > 1 && bands <= bins => {
            let rule = StepRule::Epochs { bins: bins as usize };
            sequence(rule, whole(bins), strategy, *noise_multiplier, replaced)
        }
        Participation::MinSeparation { separation, sampling_probability: p }
            if bands <= separation && p < 1.0 =>
        {
            let separation = usize::try_from(separation).ok()?;
            let rule = StepRule::Separated { separation, p, warm_start: false };
            sequence(rule, steps, strategy, *noise_multiplier, replaced)
        }
        _ => None,
    }
}

/// Returns less noise, by at most one part in a million, so that a calibrated multiplier that was
/// rounded afterwards leads to the same question and the same answer.
fn rounded_down(noise_multiplier: f64) -> f64 {
    f64::from_bits(noise_multiplier.to_bits() >> 32 << 32)
}

fn sequence(
    rule: StepRule,
    steps: u64,
    strategy: &Strategy,
    noise_multiplier: f64,
    replaced: bool,
) -> Option<LossSource> {
    if strategy.has_normalized_columns() {
        return None;
    }
    let mut column = strategy.coefficients()?;
    column.truncate(strategy.bands() as usize);
    column.iter_mut().for_each(|c| *c = c.abs() / noise_multiplier);
    let sequence = Sequence::new(rule, usize::try_from(steps).ok()?, column);
    Some(if replaced {
        LossSource::ReplacedSequence(sequence)
    } else {
        LossSource::Sequence(sequence)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::math::random::Generator;

    const SAMPLES: usize = 60_000;
    const SIGMA: f64 = 0.9;
    const BAND: f64 = 0.6;

    /// δ of two bins, a strategy of two bands and contributions in the plane, by the definition:
    /// the first bin contributes to both rows, the second one to the last row.
    fn delta_in_the_plane(own: [f64; 2], other: [f64; 2], epsilon: f64, seed: u64) -> f64 {
        let means = |angles: [f64; 2]| -> [[f64; 4]; 2] {
            let [(s, c), (t, d)] = angles.map(f64::sin_cos);
            let first = [c, s, BAND * c, BAND * s].map(|x| x / SIGMA);
            [first, [0.0, 0.0, d, t].map(|x| x / SIGMA)]
        };
        let (own, other) = (means(own), means(other));
        let likelihood = |means: &[[f64; 4]; 2], y: &[f64; 4]| -> f64 {
            let of = |mean: &[f64; 4]| {
                mean.iter().zip(y).map(|(m, y)| m * y - 0.5 * m * m).sum::<f64>().exp()
            };
            0.5 * means.iter().map(of).sum::<f64>()
        };
        let mut generator = Generator::new(seed, 3);
        let mut sum = 0.0;
        for _ in 0..SAMPLES {
            let mean = own[generator.below(2) as usize];
            let y = mean.map(|m| m + generator.normal());
            let ratio = likelihood(&other, &y) / likelihood(&own, &y);
            sum += (1.0 - epsilon.exp() * ratio).max(0.0);
        }
        sum / SAMPLES as f64
    }

    #[test]
    fn opposite_contributions_dominate_all_that_replace_each_other() {
        let event = DpEvent::correlated_gaussian(
            SIGMA,
            &Strategy::banded_toeplitz(2, &[1.0, BAND]).unwrap(),
            Participation::BallsInBins { bins: 2 },
        );
        let Some(LossSource::ReplacedBins(bins)) = source(&event, 2, true) else { panic!("bins") };
        let bound = |epsilon: f64| {
            let (mut generator, mut scratch) = (Generator::new(8, 1), Default::default());
            let losses = (0..SAMPLES).map(|_| bins.replaced_loss(&mut generator, &mut scratch));
            losses.map(|loss| -(epsilon - loss).min(0.0).exp_m1()).sum::<f64>() / SAMPLES as f64
        };
        let mut angles = Generator::new(2, 9);
        for epsilon in [0.0, 1.0, 2.5] {
            let bound = bound(epsilon);
            // Terms are at most 1, so the deviation of a mean is at most the root of itself.
            let spread = 6.0 * (bound / SAMPLES as f64).sqrt();
            let worst = delta_in_the_plane([0.3; 2], [0.3 + std::f64::consts::PI; 2], epsilon, 5);
            assert!((worst - bound).abs() < spread, "{epsilon}: {worst} {bound}");
            for seed in 0..40 {
                let mut angle = || 6.3 * angles.uniform();
                let (own, other) = ([angle(), angle()], [angle(), angle()]);
                let found = delta_in_the_plane(own, other, epsilon, seed);
                assert!(found < bound + spread, "{epsilon} {own:?} {other:?}: {found} {bound}");
            }
        }
    }
}
