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
//! The choices of other units are independent of the choice of the unit, and the divergence is
//! jointly convex in them. Non-adaptive contributions and one participation: "Near-Exact Privacy
//! Amplification for Matrix Mechanisms", Choquette-Choo et al. 2025.
//!
//! - Balls in bins: any strategy. A part of an epoch is a function of the whole epoch.
//! - Random allocation: Toeplitz strategies of at most as many bands as bins; whole epochs.
//! - Minimum separation: Toeplitz strategies of at most as many bands as the separation. A unit may
//!   take part in the first step here. That costs at least as much as a stationary start: given the
//!   number of steps that a unit waits, the rest is a part of a run from the start.

use super::bins::Bins;
use super::sequences::{Rule, Sequence};
use super::source::Source;
use crate::correlated_noise::{Participation, Strategy};
use crate::event::DpEvent;

/// Most bins of a run.
const MOST_BINS: u64 = 1_024;

/// Returns the source of `count` steps of a run with correlated noise and of all steps before them,
/// where its simulation is tighter than its certified analysis. Under replace-one it is not.
pub(super) fn source(event: &DpEvent, count: u64) -> Option<Source> {
    let DpEvent::CorrelatedGaussian { noise_multiplier, strategy, participation, first_step } =
        event
    else {
        return None;
    };
    let noise_multiplier = &rounded_down(*noise_multiplier);
    let steps = first_step.saturating_add(count);
    let bands = strategy.bands();
    if bands == 1 || steps == 0 {
        return None;
    }
    let whole = |bins: u64| steps.div_ceil(bins).saturating_mul(bins);
    match *participation {
        Participation::BallsInBins { bins } if (2..=MOST_BINS).contains(&bins) => {
            let mut products = strategy.bin_products(whole(bins).min(strategy.steps()), bins)?;
            products.iter_mut().for_each(|x| *x *= noise_multiplier.powi(-2));
            Some(Source::Bins(Bins::new(bins as usize, products)))
        }
        Participation::RandomAllocation { bins } if bins > 1 && bands <= bins => {
            let rule = Rule::Epochs { bins: bins as usize };
            sequence(rule, whole(bins), strategy, *noise_multiplier)
        }
        Participation::MinSeparation { separation, sampling_probability: p }
            if bands <= separation && p < 1.0 =>
        {
            let separation = usize::try_from(separation).ok()?;
            let rule = Rule::Separated { separation, p, warm_start: false };
            sequence(rule, steps, strategy, *noise_multiplier)
        }
        _ => None,
    }
}

/// Returns less noise, by at most one part in a million, so that a calibrated multiplier that was
/// rounded since is the same question with the same answer.
fn rounded_down(noise_multiplier: f64) -> f64 {
    f64::from_bits(noise_multiplier.to_bits() >> 32 << 32)
}

fn sequence(rule: Rule, steps: u64, strategy: &Strategy, noise_multiplier: f64) -> Option<Source> {
    if strategy.has_normalized_columns() {
        return None;
    }
    let mut column = strategy.coefficients()?;
    column.truncate(strategy.bands() as usize);
    column.iter_mut().for_each(|c| *c = c.abs() / noise_multiplier);
    Some(Source::Sequence(Sequence::new(rule, usize::try_from(steps).ok()?, column)))
}
