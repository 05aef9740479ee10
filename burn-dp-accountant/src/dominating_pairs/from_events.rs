//! Translation of events into counted dominating pairs.

use super::binomial::multiplicities;
use super::composition::DominatingPairs;
use super::multiplier::gaussian_multiplier;
use super::pair::Pair;
use super::participation::{add_allocation, add_mixture, add_patterned};
use super::poisson::{Sampling, add_poisson, add_truncated};
use super::truncation::{Truncation, add_cut, examples_are_cut};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

/// Maximum σ and shift of a discrete Gaussian with a privacy loss distribution.
const LARGEST_DISCRETE: f64 = 1e5;

/// Returns the dominating pairs of `events` under `relation`.
///
/// # Errors
///
/// Returns [`AccountantError::Unsupported`] if an event has no dominating pair, and
/// [`AccountantError::InvalidArgument`] if a parameter is outside its domain.
pub(crate) fn dominating_pairs_of<'a>(
    events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
    relation: NeighboringRelation,
) -> Result<DominatingPairs, AccountantError> {
    let mut pairs = DominatingPairs::default();
    for (event, count) in events {
        event.validate()?;
        add(&mut pairs, event, count, relation)?;
    }
    Ok(pairs)
}

fn add(
    out: &mut DominatingPairs,
    event: &DpEvent,
    count: u64,
    relation: NeighboringRelation,
) -> Result<(), AccountantError> {
    event.for_each_part(count, &mut |part, count| add_part(out, part, count, relation))
}

fn add_part(
    out: &mut DominatingPairs,
    event: &DpEvent,
    count: u64,
    relation: NeighboringRelation,
) -> Result<(), AccountantError> {
    let sensitivity = relation.sensitivity();
    match event {
        DpEvent::NonPrivate => {
            out.infinite = Some("an event is not private".to_string());
        }
        DpEvent::Unsupported { reason } => {
            return Err(AccountantError::unsupported("an unsupported event", reason.clone()));
        }
        // `add` gives their parts.
        DpEvent::Composed { .. } | DpEvent::SelfComposed { .. } => {
            add(out, event, count, relation)?;
        }
        DpEvent::EpsilonDelta { epsilon, delta } => {
            out.mass_at_infinity += delta * count as f64;
            if *epsilon > 0.0 {
                out.push(Pair::RandomizedResponse { epsilon: *epsilon }, count);
            }
            out.loose = true;
        }
        DpEvent::Gaussian { .. } | DpEvent::JointGaussian { .. } => {
            let mu = sensitivity / gaussian_multiplier(event, event)?;
            out.push(Pair::Gaussian { mu }, count);
        }
        DpEvent::CorrelatedGaussian { .. } => {
            if let Some(run) = event.uncorrelated(count, relation)? {
                out.loose |= !run.is_attained;
                out.unattained |= !run.is_attained;
                add(out, &run.event, run.count, relation)?;
            }
        }
        DpEvent::Laplace { noise_multiplier } => {
            out.push(Pair::Laplace { mu: sensitivity / noise_multiplier }, count);
        }
        DpEvent::PoissonSampled { sampling_probability, event: inner } => {
            let q = *sampling_probability;
            if add_poisson(out, event, q, inner, count, relation)? == Sampling::None {
                add(out, inner, count, relation)?;
            }
        }
        DpEvent::TruncatedPoissonSampled {
            sampling_probability,
            dataset_size,
            max_batch_size,
            event: inner,
        } => {
            let truncation = Truncation {
                sampling_probability: *sampling_probability,
                dataset_size: *dataset_size,
                max_batch_size: *max_batch_size,
            };
            let added = add_truncated(out, event, truncation, inner, count, relation)?;
            if added == Sampling::None {
                add(out, inner, count, relation)?;
            }
        }
        DpEvent::TruncatedPoissonExamples {
            sampling_probability,
            dataset_size,
            max_batch_size,
            examples,
            noise_multiplier,
        } => {
            if relation != NeighboringRelation::AddOrRemoveOne {
                return Err(AccountantError::unsupported(
                    event.to_string(),
                    "the examples of a unit displace others only in the data set with the unit; \
                     use the relation add-or-remove-one",
                ));
            }
            let q = *sampling_probability;
            let drawn = |sigma: f64| -> Result<DominatingPairs, AccountantError> {
                let event = DpEvent::poisson_sampled_examples(q, sigma, *examples)?;
                dominating_pairs_of([(&event, 1)], relation)
            };
            let cut = examples_are_cut(*dataset_size, q, *max_batch_size, *examples);
            let (whole, cut_release) = (drawn(*noise_multiplier)?, drawn(noise_multiplier / 2.0)?);
            add_cut(out, (whole, cut_release), cut, count);
        }
        DpEvent::SampledWithoutReplacement { dataset_size, sample_size, event: inner } => {
            require_equal_sizes(event, relation)?;
            if *sample_size > 0 {
                let q = *sample_size as f64 / *dataset_size as f64;
                let mu = 2.0 / gaussian_multiplier(inner, event)?;
                out.loose = true;
                if q >= 1.0 {
                    out.push(Pair::Gaussian { mu }, count);
                } else {
                    out.push(Pair::Symmetrized { q, components: vec![(1.0, mu)] }, count);
                }
            }
        }
        DpEvent::SampledWithReplacement { dataset_size, sample_size, event: inner } => {
            require_equal_sizes(event, relation)?;
            if *sample_size > 0 {
                let mu = 2.0 / gaussian_multiplier(inner, event)?;
                out.loose = true;
                let (q, components, rest) = multiplicities(*dataset_size, *sample_size, mu);
                out.mass_at_infinity += rest * count as f64;
                if q >= 1.0 {
                    out.push(Pair::Gaussian { mu: mu * *sample_size as f64 }, count);
                } else {
                    out.push(Pair::Symmetrized { q, components }, count);
                }
            }
        }
        DpEvent::RandomAllocation { steps, participations, epochs, event: inner } => {
            let mu = (*epochs as f64).sqrt() / gaussian_multiplier(inner, event)?;
            add_allocation(out, *steps, *participations, mu, count, relation);
        }
        DpEvent::DiscreteGaussian { sigma, sensitivity: units } => {
            let shift = sensitivity * *units as f64;
            if *sigma > LARGEST_DISCRETE || shift > LARGEST_DISCRETE {
                return Err(AccountantError::unsupported(
                    event.to_string(),
                    "its privacy loss has too many values; use RdpAccountant",
                ));
            }
            out.push(Pair::DiscreteGaussian { sigma: *sigma, shift }, count);
        }
        DpEvent::Exponential { epsilon } => {
            // Pure differential privacy; the Rényi bound is better for many of them.
            if *epsilon > 0.0 {
                out.push(Pair::RandomizedResponse { epsilon: *epsilon }, count);
            }
            out.loose = true;
        }
        DpEvent::GaussianMixture(mixture) => {
            require_no_replacement(event, relation)?;
            add_mixture(out, mixture, count);
        }
        DpEvent::Patterned(patterned) => {
            require_no_replacement(event, relation)?;
            add_patterned(out, patterned, count);
        }
        DpEvent::ZeroConcentrated { .. } => {
            return Err(AccountantError::unsupported(
                event.to_string(),
                "only its Rényi divergence is known; use RdpAccountant",
            ));
        }
        DpEvent::RepeatAndSelect { .. } => {
            return Err(AccountantError::unsupported(
                event.to_string(),
                "only PldAccountant and RdpAccountant analyze repeat-and-select",
            ));
        }
    }
    Ok(())
}

fn require_no_replacement(
    event: &DpEvent,
    relation: NeighboringRelation,
) -> Result<(), AccountantError> {
    if relation == NeighboringRelation::ReplaceOne {
        return Err(AccountantError::unsupported(
            event.to_string(),
            "means are known against a unit that contributes nothing; use add-or-remove-one or \
             replace-special",
        ));
    }
    Ok(())
}

fn require_equal_sizes(
    event: &DpEvent,
    relation: NeighboringRelation,
) -> Result<(), AccountantError> {
    if relation == NeighboringRelation::AddOrRemoveOne {
        return Err(AccountantError::unsupported(
            event.to_string(),
            "sampling of a fixed size is defined for data sets of equal size; use the relation \
             replace-one",
        ));
    }
    Ok(())
}
