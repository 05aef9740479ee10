//! Pairs of releases in which a unit takes part at random steps.

use std::sync::Arc;

use super::allocation::{Allocation, LARGEST_SHIFT};
use super::composition::DominatingPairs;
use super::pair::Pair;
use crate::event::{GaussianMixture, PatternedGaussian, RandomParticipation};
use crate::relation::NeighboringRelation;

/// Adds random allocation of `participations` steps out of `steps`, with a shift `mu` in each.
///
/// Several participations: a uniformly random partition of `⌊steps/k⌋ k` steps into `k` blocks, and
/// one random step of each block, is a uniformly random set of `k` steps. With the partition as
/// part of the outcome the blocks compose (Feldman and Shenfeld 2025).
///
/// Replace-one: with equal choices, the outcomes differ by two contributions in each chosen step.
/// No better bound is proven here.
pub(super) fn add_allocation(
    out: &mut DominatingPairs,
    steps: u64,
    participations: u64,
    mu: f64,
    count: u64,
    relation: NeighboringRelation,
) {
    let bins = steps / participations;
    let all = participations == steps;
    let replaced = relation == NeighboringRelation::ReplaceOne && !all;
    if replaced || bins == 1 || mu > LARGEST_SHIFT {
        let mu = relation.sensitivity() * mu * (participations as f64).sqrt();
        out.push(Pair::Gaussian { mu }, count);
        out.loose |= !all;
        out.unattained |= !all;
        return;
    }
    out.push(Pair::Allocated(Allocation::new(bins, mu)), count.saturating_mul(participations));
    out.loose |= participations > 1;
    out.unattained |= participations > 1;
}

/// Adds a mixture. Means on one side of a line are exact. Otherwise the component is part of the
/// outcome: a bound by joint convexity; `MonteCarloAccountant` has the mixture itself.
pub(super) fn add_mixture(out: &mut DominatingPairs, mixture: &GaussianMixture, count: u64) {
    if let Some(components) = on_a_line(mixture) {
        return out.push(Pair::Line { components }, count);
    }
    let shift =
        |mean: &Vec<f64>| mean.iter().map(|m| m * m).sum::<f64>().sqrt() / mixture.noise_multiplier;
    let shifts = mixture.weights.iter().zip(mixture.means.iter().map(shift));
    // The weights are given as decimal numbers, and no mass may be missing.
    let total: f64 = mixture.weights.iter().sum();
    // Means of 0 only make the divergence smaller; a tiny shift keeps all weights.
    let components: Vec<(f64, Pair)> =
        shifts.map(|(weight, mu)| (weight / total, Pair::Gaussian { mu: mu.max(1e-12) })).collect();
    match &components[..] {
        [(_, pair)] => out.push(pair.clone(), count),
        _ => {
            out.push(Pair::Mixture { components, attained: None }, count);
            out.loose = true;
            out.unattained = true;
        }
    }
}

/// Returns weights and shifts of several means of one number that is not negative.
fn on_a_line(mixture: &GaussianMixture) -> Option<Arc<[(f64, f64)]>> {
    let shift = |mean: &Vec<f64>| match mean[..] {
        [mean] if mean >= 0.0 => Some(mean / mixture.noise_multiplier),
        _ => None,
    };
    let shifts: Option<Vec<f64>> = mixture.means.iter().map(shift).collect();
    let shifts = shifts.filter(|shifts| {
        shifts.len() > 1
            && shifts.iter().all(|mu| *mu <= LARGEST_SHIFT)
            && shifts.iter().any(|mu| *mu > 0.0)
    })?;
    let total: f64 = mixture.weights.iter().sum();
    Some(mixture.weights.iter().map(|weight| weight / total).zip(shifts).collect())
}

/// Adds patterned releases. `MonteCarloAccountant` has the exact mixture; this is certified.
///
/// - Cyclic Poisson: with the part of the unit as part of the outcome, its `⌈n/cycle⌉` steps are
///   Poisson-subsampled Gaussian releases of the norm of the column (columns do not overlap).
/// - One of several bins with independent noise is random allocation.
/// - Otherwise the pattern is part of the outcome, with the largest norm of a mean.
pub(super) fn add_patterned(out: &mut DominatingPairs, patterned: &PatternedGaussian, count: u64) {
    let shift = patterned.column_norm() / patterned.noise_multiplier;
    let steps = patterned.steps;
    let mut add = |mu: f64| {
        out.push(Pair::Gaussian { mu }, count);
        out.loose = true;
        out.unattained = true;
    };
    match patterned.participation {
        RandomParticipation::CyclicPoisson { cycle, sampling_probability: q } => {
            let rounds = count.saturating_mul(steps.div_ceil(cycle));
            match q {
                0.0 => {}
                1.0 => out.push(Pair::Gaussian { mu: shift }, rounds),
                _ => out.push(Pair::Sampled { q, mu: shift }, rounds),
            }
            out.loose |= cycle > 1;
            out.unattained |= cycle > 1;
        }
        RandomParticipation::Subset { participations } => {
            add_allocation(
                out,
                steps,
                participations,
                shift,
                count,
                NeighboringRelation::AddOrRemoveOne,
            );
        }
        RandomParticipation::BallsInBins { cycle } if patterned.column.len() == 1 => {
            // Bins beyond the last step only help: the pair is the pair of the longest bins.
            let mu = (steps.div_ceil(cycle) as f64).sqrt() * shift;
            let exact = steps.is_multiple_of(cycle);
            add_allocation(out, cycle, 1, mu, count, NeighboringRelation::AddOrRemoveOne);
            out.loose |= !exact;
            out.unattained |= !exact;
        }
        RandomParticipation::BallsInBins { cycle } => {
            // The columns may overlap; the coefficients are not negative.
            let participations = steps.div_ceil(cycle) as f64;
            let overlaps = (patterned.column.len() as u64).div_ceil(cycle) as f64;
            add((participations * overlaps.min(participations)).sqrt() * shift);
        }
        RandomParticipation::MinimumSeparation { separation, .. } => {
            add((steps.div_ceil(separation) as f64).sqrt() * shift);
        }
    }
}
