//! Translation of an event into counted dominating pairs.

use super::Pair;
use crate::math::ln_binomial;
use crate::{AccountantError, DpEvent, NeighboringRelation};

/// A composition of dominating pairs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lowered {
    /// Each pair with its number of repetitions; equal pairs are merged.
    pub(crate) parts: Vec<(Pair, u64)>,
    /// Probability of an outcome that reveals everything, added to δ (union bound).
    pub(crate) mass_at_infinity: f64,
    /// Total variation `η` between the mechanism and the pairs, on either side:
    /// `δ(ε) <= δ_pairs(ε) + (1 + e^ε) η`, and likewise from below.
    pub(crate) total_variation: f64,
    /// Why ε is infinite, if it is.
    pub(crate) infinite: Option<String>,
    /// The pairs are an upper bound that no data sets attain: they say nothing from below.
    pub(crate) loose: bool,
    /// Nothing is known of what data sets attain, not even pairs below these.
    pub(crate) unattained: bool,
}

impl Lowered {
    /// Pairs that real data sets attain, for a lower bound of ε: the same pairs, or, for a loose
    /// bound of fixed-size sampling, those of a data set whose other units all contribute the
    /// opposite (the unit is then drawn or not, as under Poisson sampling). `None` if unknown.
    pub(crate) fn attained(&self) -> Option<Self> {
        if self.unattained {
            return None;
        }
        let mut attained =
            Self { parts: Vec::new(), mass_at_infinity: 0.0, loose: false, ..self.clone() };
        for (pair, count) in &self.parts {
            let pair = match pair {
                Pair::Symmetrized { q, components } if components.len() == 1 => {
                    Pair::Sampled { q: *q, mu: components[0].1 }
                }
                Pair::Symmetrized { .. } | Pair::RandomizedResponse { .. } => return None,
                other => other.clone(),
            };
            attained.push(pair, *count);
        }
        Some(attained)
    }

    fn push(&mut self, pair: Pair, count: u64) {
        if count == 0 {
            return;
        }
        match self.parts.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, n)) => *n = n.saturating_add(count),
            None => self.parts.push((pair, count)),
        }
    }
}

/// The dominating pairs of `events` under `relation`.
pub(crate) fn lower<'a>(
    events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
    relation: NeighboringRelation,
) -> Result<Lowered, AccountantError> {
    let mut lowered = Lowered::default();
    for (event, count) in events {
        event.validate()?;
        lower_into(&mut lowered, event, count, relation)?;
    }
    Ok(lowered)
}

fn lower_into(
    out: &mut Lowered,
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
                lower_into(out, part, count, relation)?;
            }
        }
        DpEvent::SelfComposed { event, count: inner } => {
            let total = count.checked_mul(*inner).ok_or_else(|| {
                AccountantError::invalid("count", format!("overflows: {count} x {inner}"))
            })?;
            lower_into(out, event, total, relation)?;
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
            lower_poisson(out, event, *sampling_probability, inner, count, relation)?;
        }
        DpEvent::TruncatedPoissonSampled {
            sampling_probability,
            dataset_size,
            max_batch_size,
            event: inner,
        } => {
            lower_poisson(out, event, *sampling_probability, inner, count, relation)?;
            // With and without the cut the distributions differ by at most the probability of a cut,
            // in total variation and on either side (as in "Scalable DP-SGD: Shuffling vs. Poisson
            // Subsampling", Chua et al. 2024). The neighbour may hold one unit more.
            let size = dataset_size.saturating_add(1);
            let tail = binomial_tail_upper(size, *sampling_probability, *max_batch_size);
            out.total_variation += tail * count as f64;
        }
        DpEvent::SampledWithoutReplacement { dataset_size, sample_size, event: inner } => {
            refuse_add_or_remove(event, relation)?;
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
            refuse_add_or_remove(event, relation)?;
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
                "repeat-and-select is analysed by its Rényi divergence; use RdpAccountant",
            ));
        }
    }
    Ok(())
}

fn lower_poisson(
    out: &mut Lowered,
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
        return lower_into(out, inner, count, relation);
    }
    if let DpEvent::Laplace { noise_multiplier } = inner {
        if relation == NeighboringRelation::ReplaceOne {
            // Given who else was drawn, both data sets release either the same or sums that differ by
            // at most 2C; the hockey-stick divergence is jointly convex, so that the mixture costs no
            // more than the release without sampling. Nothing better is proven here.
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

/// The multiplier of the single Gaussian release to which Gaussian releases on one draw of units
/// amount: `(Σ z_i^-2)^(-1/2)` (McMahan et al. 2018, Andrew et al. 2021).
pub(crate) fn gaussian_multiplier(
    event: &DpEvent,
    whole: &DpEvent,
) -> Result<f64, AccountantError> {
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
            "amplification by sampling is known for Gaussian releases (and, under Poisson sampling, one Laplace release)",
        )),
    }
}

fn refuse_add_or_remove(
    event: &DpEvent,
    relation: NeighboringRelation,
) -> Result<(), AccountantError> {
    if relation == NeighboringRelation::AddOrRemoveOne {
        return Err(AccountantError::unsupported(
            event.to_string(),
            "sampling of a fixed size is defined for data sets of equal size; use the relation replace-one",
        ));
    }
    Ok(())
}

/// How often one unit is drawn: the probability `q` of at least once, the conditional distribution
/// with the shift of each multiplicity, and an upper bound of the probability that was left out.
fn multiplicities(dataset_size: u64, sample_size: u64, mu: f64) -> (f64, Vec<(f64, f64)>, f64) {
    let (n, k) = (dataset_size as f64, sample_size as f64);
    if dataset_size == 1 {
        return (1.0, Vec::new(), 0.0);
    }
    let q = -(k * (-1.0 / n).ln_1p()).exp_m1();
    let ln_mass = |j: f64| ln_binomial(k, j) - j * n.ln() + (k - j) * (-1.0 / n).ln_1p();
    let mut components: Vec<(f64, f64)> = Vec::new();
    let mut rest = 0.0;
    for j in 1..=sample_size {
        let mass = ln_mass(j as f64).exp();
        // Beyond the mode the masses fall at least geometrically.
        let ratio = (k - j as f64) / ((j as f64 + 1.0) * (n - 1.0));
        if mass < 1e-30 && ratio < 0.5 {
            rest = 2.0 * mass;
            break;
        }
        components.push((mass, j as f64 * mu));
    }
    let total: f64 = components.iter().map(|(w, _)| w).sum();
    for (w, _) in &mut components {
        *w /= total;
    }
    (q, components, rest)
}

/// Upper bound of `P[Binomial(n, q) > limit]`: the sum of the masses, closed by a geometric series.
pub(crate) fn binomial_tail_upper(n: u64, q: f64, limit: u64) -> f64 {
    if limit >= n || q == 0.0 {
        return 0.0;
    }
    if q == 1.0 {
        return 1.0;
    }
    let (size, odds) = (n as f64, q / (1.0 - q));
    let mean = size * q;
    if (limit as f64) < mean {
        return 1.0;
    }
    let mut j = limit as f64 + 1.0;
    let mut mass = (ln_binomial(size, j) + j * q.ln() + (size - j) * (-q).ln_1p()).exp();
    let mut sum = 0.0;
    while j <= size {
        sum += mass;
        let ratio = (size - j) / (j + 1.0) * odds;
        if ratio < 1.0 && mass * ratio / (1.0 - ratio) < 1e-12 * sum {
            sum += mass * ratio / (1.0 - ratio);
            break;
        }
        mass *= ratio;
        j += 1.0;
    }
    // The logarithms of factorials carry a relative error that grows with their size.
    (sum * (1.0 + 1e-14 * size * size.ln().max(1.0))).min(1.0)
}
