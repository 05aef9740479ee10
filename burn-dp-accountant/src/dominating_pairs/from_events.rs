//! Translation of events into counted dominating pairs.

use super::binomial::{binomial_tail_upper, multiplicities};
use super::composition::DominatingPairs;
use super::pair::Pair;
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

impl DominatingPairs {
    /// Returns the dominating pairs of `events` under `relation`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if an event has no dominating pair, and
    /// [`AccountantError::InvalidArgument`] if a parameter is outside of its domain.
    pub(crate) fn of_events<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let mut pairs = Self::default();
        for (event, count) in events {
            event.validate()?;
            add(&mut pairs, event, count, relation)?;
        }
        Ok(pairs)
    }
}

fn add(
    out: &mut DominatingPairs,
    event: &DpEvent,
    count: u64,
    relation: NeighboringRelation,
) -> Result<(), AccountantError> {
    if count == 0 {
        return Ok(());
    }
    let sensitivity = relation.sensitivity();
    match event {
        DpEvent::NonPrivate => {
            out.infinite = Some("an event is not private".to_string());
        }
        DpEvent::Unsupported { reason } => {
            return Err(AccountantError::unsupported("an unsupported event", reason.clone()));
        }
        DpEvent::Composed { events } => {
            for part in events {
                add(out, part, count, relation)?;
            }
        }
        DpEvent::SelfComposed { event, count: inner } => {
            let total = count.checked_mul(*inner).ok_or_else(|| {
                AccountantError::invalid("count", format!("overflows: {count} x {inner}"))
            })?;
            add(out, event, total, relation)?;
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
        DpEvent::Laplace { noise_multiplier } => {
            out.push(Pair::Laplace { mu: sensitivity / noise_multiplier }, count);
        }
        DpEvent::PoissonSampled { sampling_probability, event: inner } => {
            add_poisson(out, event, *sampling_probability, inner, count, relation)?;
        }
        DpEvent::TruncatedPoissonSampled {
            sampling_probability,
            dataset_size,
            max_batch_size,
            event: inner,
        } => {
            add_poisson(out, event, *sampling_probability, inner, count, relation)?;
            // With and without the cut the distributions differ by at most the probability of a
            // cut, in total variation and on either side ("Scalable DP-SGD: Shuffling vs. Poisson
            // Subsampling", Chua et al. 2024). The neighbor may hold one unit more.
            let size = dataset_size.saturating_add(1);
            let tail = binomial_tail_upper(size, *sampling_probability, *max_batch_size);
            out.total_variation += tail * count as f64;
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
                out.total_variation += rest * count as f64;
                if q >= 1.0 {
                    out.push(Pair::Gaussian { mu: mu * *sample_size as f64 }, count);
                } else {
                    out.push(Pair::Symmetrized { q, components }, count);
                }
            }
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
                "repeat-and-select is analyzed by its Rényi divergence; use RdpAccountant",
            ));
        }
    }
    Ok(())
}

fn add_poisson(
    out: &mut DominatingPairs,
    event: &DpEvent,
    q: f64,
    inner: &DpEvent,
    count: u64,
    relation: NeighboringRelation,
) -> Result<(), AccountantError> {
    if q == 0.0 {
        return Ok(());
    }
    if let DpEvent::NonPrivate = inner {
        out.infinite = Some("an event is not private".to_string());
        return Ok(());
    }
    if q == 1.0 {
        return add(out, inner, count, relation);
    }
    if let DpEvent::Laplace { noise_multiplier } = inner {
        if relation == NeighboringRelation::ReplaceOne {
            // Given the other drawn units, both data sets release equal sums or sums that differ by
            // at most 2C. The hockey-stick divergence is jointly convex, so that the mixture costs
            // no more than the release without sampling. Nothing better is proven here.
            out.push(Pair::Laplace { mu: 2.0 / noise_multiplier }, count);
            out.loose = true;
            out.unattained = true;
            return Ok(());
        }
        out.push(Pair::SampledLaplace { q, mu: 1.0 / noise_multiplier }, count);
        return Ok(());
    }
    let mu = 1.0 / gaussian_multiplier(inner, event)?;
    out.push(
        match relation {
            NeighboringRelation::AddOrRemoveOne | NeighboringRelation::ReplaceSpecial => {
                Pair::Sampled { q, mu }
            }
            NeighboringRelation::ReplaceOne => Pair::Substituted { q, mu },
        },
        count,
    );
    Ok(())
}

/// Returns the noise multiplier of the one Gaussian release that is equivalent to several on one
/// draw of units: `(Σ z_i^-2)^(-1/2)` (McMahan et al. 2018, Andrew et al. 2021).
fn gaussian_multiplier(event: &DpEvent, whole: &DpEvent) -> Result<f64, AccountantError> {
    Ok(1.0 / gaussian_precision(event, whole)?.sqrt())
}

fn gaussian_precision(event: &DpEvent, whole: &DpEvent) -> Result<f64, AccountantError> {
    match event {
        DpEvent::Gaussian { noise_multiplier } => Ok(noise_multiplier.powi(-2)),
        DpEvent::JointGaussian { noise_multipliers } => {
            Ok(noise_multipliers.iter().map(|z| z.powi(-2)).sum())
        }
        DpEvent::Composed { events } if !events.is_empty() => {
            events.iter().map(|part| gaussian_precision(part, whole)).sum()
        }
        DpEvent::SelfComposed { event, count } if *count > 0 => {
            Ok(gaussian_precision(event, whole)? * *count as f64)
        }
        _ => Err(AccountantError::unsupported(
            whole.to_string(),
            "amplification by sampling is known for Gaussian releases and, under Poisson sampling, \
             for one Laplace release",
        )),
    }
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
