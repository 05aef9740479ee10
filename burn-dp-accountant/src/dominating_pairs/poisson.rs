//! Pairs of releases from Poisson samples, whole or truncated.

use super::composition::DominatingPairs;
use super::multiplier::gaussian_multiplier;
use super::pair::Pair;
use super::truncation::{Cuts, Truncation};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

/// The work that remains for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Nothing: the pairs were added.
    Added,
    /// Every unit is always drawn, so the caller adds the inner event.
    None,
}

/// Adds `inner` on a Poisson sample; `event` is named in errors.
pub(super) fn add_poisson(
    out: &mut DominatingPairs,
    event: &DpEvent,
    q: f64,
    inner: &DpEvent,
    count: u64,
    relation: NeighboringRelation,
) -> Result<Sampling, AccountantError> {
    if q == 0.0 {
        return Ok(Sampling::Added);
    }
    if let DpEvent::NonPrivate = inner {
        out.infinite = Some("an event is not private".to_string());
        return Ok(Sampling::Added);
    }
    if q == 1.0 {
        return Ok(Sampling::None);
    }
    if let DpEvent::Laplace { noise_multiplier } = inner {
        if relation == NeighboringRelation::ReplaceOne {
            // Given the other drawn units, both data sets release equal sums or sums that differ by
            // at most 2C. The hockey-stick divergence is jointly convex, so the mixture costs no
            // more than the release without sampling. No better bound is proven here.
            out.push(Pair::Laplace { mu: 2.0 / noise_multiplier }, count);
            out.loose = true;
            out.unattained = true;
            return Ok(Sampling::Added);
        }
        out.push(Pair::SampledLaplace { q, mu: 1.0 / noise_multiplier }, count);
        return Ok(Sampling::Added);
    }
    let mu = 1.0 / gaussian_multiplier(inner, event)?;
    out.push(sampled_gaussian(q, mu, relation), count);
    Ok(Sampling::Added)
}

/// Returns the pair of a Gaussian release on a Poisson sample.
fn sampled_gaussian(q: f64, mu: f64, relation: NeighboringRelation) -> Pair {
    match relation {
        NeighboringRelation::AddOrRemoveOne | NeighboringRelation::ReplaceSpecial => {
            Pair::Sampled { q, mu }
        }
        NeighboringRelation::ReplaceOne => Pair::Substituted { q, mu },
    }
}

/// Adds `inner` on a truncated Poisson sample.
pub(super) fn add_truncated(
    out: &mut DominatingPairs,
    event: &DpEvent,
    truncation: Truncation,
    inner: &DpEvent,
    count: u64,
    relation: NeighboringRelation,
) -> Result<Sampling, AccountantError> {
    let q = truncation.sampling_probability;
    let removed = relation == NeighboringRelation::AddOrRemoveOne;
    if let DpEvent::Laplace { noise_multiplier } = inner
        && !removed
        && q > 0.0
    {
        // With equal draws the sums differ by the sensitivity, whether they are truncated or not.
        // No better bound is proven here.
        out.push(Pair::Laplace { mu: relation.sensitivity() / noise_multiplier }, count);
        out.loose = true;
        out.unattained = true;
        return Ok(Sampling::Added);
    }
    let mixture = match truncation.cuts(relation) {
        Cuts::Frequent(mixture) if q > 0.0 && !matches!(inner, DpEvent::NonPrivate) => mixture,
        Cuts::Rare(probability) => {
            out.mass_at_infinity += probability * count as f64;
            return add_poisson(out, event, q, inner, count, relation);
        }
        _ => return add_poisson(out, event, q, inner, count, relation),
    };
    let pair = if let DpEvent::Laplace { noise_multiplier } = inner {
        let laplace = |q: f64, mu: f64| match q {
            1.0.. => Pair::Laplace { mu },
            _ => Pair::SampledLaplace { q, mu },
        };
        let mu = 1.0 / noise_multiplier;
        mixture.pair(q, |q| laplace(q, mu), |q| laplace(q, 2.0 * mu))
    } else {
        let mu = 1.0 / gaussian_multiplier(inner, event)?;
        let sampled = |q: f64, mu: f64, relation: NeighboringRelation| match q {
            1.0.. => Pair::Gaussian { mu: mu * relation.sensitivity() },
            _ => sampled_gaussian(q, mu, relation),
        };
        let displaced = if removed { relation } else { NeighboringRelation::ReplaceOne };
        mixture.pair(q, |q| sampled(q, mu, relation), |q| sampled(q, 2.0 * mu, displaced))
    };
    out.push(pair, count);
    out.loose = true;
    Ok(Sampling::Added)
}
