//! Translates events into sources of random privacy losses.

use super::bins::Bins;
use super::correlated;
use super::pairs::{has_losses, loss_of_pair, sampled_powers};
use super::source::LossSource;
use crate::dominating_pairs::{Direction, Pair, dominating_pairs_of, ln_mixture};
use crate::error::AccountantError;
use crate::event::{DpEvent, PatternedGaussian, RandomParticipation};
use crate::gdp::GaussianDp;
use crate::math::random::Generator;
use crate::relation::NeighboringRelation;

/// Maximum number of steps in an epoch whose bins are drawn together.
const MOST_ALLOCATED: u64 = 1_024;

/// Buffers of a thread.
pub(super) type Scratch = [Vec<f64>; 2];

/// The sources of a composition.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    sources: Vec<(LossSource, u64)>,
    /// δ of outcomes that reveal everything.
    pub(super) mass_at_infinity: f64,
    /// The reason why ε is infinite, if it is.
    pub(super) infinite: Option<String>,
    /// Whether the certified analysis of a source is not tight.
    pub(super) is_tighter: bool,
}

impl Sources {
    /// Returns the sources of `events` under `relation`.
    pub(super) fn of<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let mut sources = Self::default();
        for (event, count) in events {
            event.validate()?;
            sources.add(event, count, relation)?;
        }
        Ok(sources)
    }

    fn add(
        &mut self,
        event: &DpEvent,
        count: u64,
        relation: NeighboringRelation,
    ) -> Result<(), AccountantError> {
        event.for_each_part(count, &mut |part, count| self.add_part(part, count, relation))
    }

    fn add_part(
        &mut self,
        event: &DpEvent,
        count: u64,
        relation: NeighboringRelation,
    ) -> Result<(), AccountantError> {
        let replaced = relation == NeighboringRelation::ReplaceOne;
        match event {
            DpEvent::RandomAllocation { steps, participations, epochs, event: inner }
                if !replaced =>
            {
                if let DpEvent::Gaussian { noise_multiplier } = **inner {
                    if *participations == 1 && *steps <= MOST_ALLOCATED {
                        let norm = (*epochs as f64).sqrt() / noise_multiplier;
                        let bins = Bins::orthogonal(*steps as usize, norm);
                        self.sources.push((LossSource::Bins(bins), count));
                        return Ok(());
                    }
                    self.is_tighter |= *participations > 1 && participations < steps;
                    let patterned = PatternedGaussian {
                        participation: RandomParticipation::Subset {
                            participations: *participations,
                        },
                        steps: *steps,
                        column: vec![1.0],
                        noise_multiplier: noise_multiplier / (*epochs as f64).sqrt(),
                    };
                    self.sources.push((LossSource::Patterned(patterned), count));
                    return Ok(());
                }
            }
            DpEvent::RandomAllocation { steps, participations: 1, epochs, event: inner }
                if (2..=MOST_ALLOCATED).contains(steps) =>
            {
                if let DpEvent::Gaussian { noise_multiplier } = **inner {
                    let norm = (*epochs as f64).sqrt() / noise_multiplier;
                    let bins = Bins::replaced_orthogonal(*steps as usize, norm);
                    self.sources.push((LossSource::ReplacedBins(bins), count));
                    self.is_tighter = true;
                    return Ok(());
                }
            }
            DpEvent::CorrelatedGaussian { .. } => {
                if let Some(source) = correlated::source(event, count, replaced) {
                    self.sources.push((source, 1));
                    self.is_tighter = true;
                    return Ok(());
                }
            }
            DpEvent::Patterned(patterned) if !replaced => {
                self.is_tighter = true;
                self.sources.push((LossSource::Patterned(patterned.clone()), count));
                return Ok(());
            }
            DpEvent::GaussianMixture(mixture) if !replaced => {
                self.is_tighter |= mixture.means.iter().any(|mean| mean.len() > 1);
                self.sources.push((LossSource::Mixture(mixture.clone()), count));
                return Ok(());
            }
            _ => {}
        }
        let pairs = dominating_pairs_of([(event, count)], relation)?;
        let known = pairs.parts.iter().all(|(pair, _)| has_losses(pair));
        if !known || pairs.total_variation > 0.0 {
            return Err(AccountantError::unsupported(
                event.to_string(),
                "its privacy loss cannot be drawn; use PldAccountant for events of this kind",
            ));
        }
        self.mass_at_infinity += pairs.mass_at_infinity;
        self.infinite = self.infinite.take().or(pairs.infinite);
        self.sources.extend(pairs.parts.into_iter().map(|(pair, n)| (LossSource::Pair(pair), n)));
        Ok(())
    }

    /// Returns about how many random numbers one loss takes.
    pub(super) fn work(&self) -> f64 {
        let one = |(source, count): &(LossSource, u64)| match source {
            LossSource::Pair(Pair::Gaussian { .. }) => 1.0,
            LossSource::Pair(_) => *count as f64,
            LossSource::Patterned(patterned) => {
                let modes = match patterned.participation {
                    RandomParticipation::BallsInBins { cycle }
                        if cycle < patterned.column.len() as u64 =>
                    {
                        cycle as f64
                    }
                    RandomParticipation::Subset { participations } => participations as f64,
                    _ => patterned.column.len() as f64,
                };
                let parts = match patterned.participation {
                    RandomParticipation::BallsInBins { cycle }
                    | RandomParticipation::CyclicPoisson { cycle, .. } => cycle as f64,
                    _ => 0.0,
                };
                *count as f64 * (patterned.steps as f64 * modes + parts)
            }
            LossSource::Bins(bins) => *count as f64 * bins.work(),
            LossSource::Sequence(sequence) => *count as f64 * sequence.work(),
            LossSource::ReplacedBins(bins) => *count as f64 * bins.work(),
            LossSource::ReplacedSequence(sequence) => *count as f64 * 2.0 * sequence.work(),
            LossSource::Mixture(mixture) => {
                *count as f64 * mixture.means.iter().map(|mean| mean.len() as f64).sum::<f64>()
            }
        };
        self.sources.iter().map(one).sum()
    }

    /// Returns a certified bound on δ at `epsilon` in the direction "add"; 1 if none is known.
    ///
    /// The logarithm of the likelihood ratio is at least the mean of the exponents, which is normal
    /// under `Q` with a mean `-h` and a variance `g` (Jensen's inequality). Hence
    /// `δ <= E[(1 - e^{ε-h+√g z})^+]`, the δ of a Gaussian release of shift `√g` at `ε - h + g/2`.
    pub(super) fn added_delta(&self, epsilon: f64) -> f64 {
        let (mut mean, mut variance) = (0.0, 0.0);
        for (source, count) in &self.sources {
            let (one, spread) = match source {
                LossSource::Pair(Pair::Gaussian { mu }) => (-0.5 * mu * mu, mu * mu),
                LossSource::Pair(Pair::Sampled { q, mu }) => (-0.5 * q * mu * mu, (q * mu).powi(2)),
                LossSource::Bins(bins) => bins.lower_bound(),
                LossSource::Sequence(sequence) => sequence.lower_bound(),
                _ => return 1.0,
            };
            mean += one * *count as f64;
            variance += spread * *count as f64;
        }
        // Room for the rounding of the sums.
        let shifted = epsilon + mean * (1.0 + 1e-9) + 0.5 * variance;
        let release = GaussianDp::new((variance * (1.0 + 1e-9)).sqrt());
        let delta = release.and_then(|release| release.delta(shifted));
        delta.map_or(1.0, |delta| delta * (1.0 + 1e-9) + self.mass_at_infinity)
    }

    /// Returns the logarithm of `E_Q[X^power]` of the likelihood ratio `X` of the composition;
    /// `None` if a source cannot be drawn from this power.
    pub(super) fn ln_moment(&self, power: u32) -> Option<f64> {
        if power == 1 {
            return Some(0.0);
        }
        let one = |(source, count): &(LossSource, u64)| -> Option<f64> {
            let each = match source {
                LossSource::Pair(Pair::Gaussian { mu }) => {
                    0.5 * f64::from(power * (power - 1)) * mu * mu
                }
                LossSource::Pair(Pair::Sampled { q, mu }) => sampled_powers(*q, *mu, power).1,
                LossSource::Bins(bins) => bins.ln_moment(power)?,
                _ => return None,
            };
            Some(each * *count as f64)
        };
        self.sources.iter().map(one).sum::<Option<f64>>().filter(|sum| sum.is_finite())
    }

    /// Draws the privacy loss of the composition in a direction; in the direction "remove" from the
    /// density `X^power/E_Q[X^power]` with respect to `Q`, so that power 1 is `P`.
    pub(super) fn loss(
        &self,
        direction: Direction,
        power: u32,
        generator: &mut Generator,
        scratch: &mut Scratch,
    ) -> f64 {
        let with_unit = direction == Direction::Remove;
        let signed = |loss: f64| if with_unit { loss } else { -loss };
        let mut total = 0.0;
        for (source, count) in &self.sources {
            match source {
                LossSource::Pair(Pair::Gaussian { mu }) => {
                    let mu = mu * (*count as f64).sqrt();
                    let shift = if with_unit { f64::from(power) - 0.5 } else { 0.5 };
                    total += mu * generator.normal() + shift * mu * mu;
                    continue;
                }
                LossSource::Pair(Pair::Sampled { q, mu }) if with_unit && power > 1 => {
                    let (cumulative, _) = sampled_powers(*q, *mu, power);
                    for _ in 0..*count {
                        let at = generator.uniform();
                        let draws = cumulative.iter().filter(|sum| **sum < at).count();
                        total += ln_mixture(*q, *mu, draws as f64 * mu + generator.normal());
                    }
                    continue;
                }
                _ => {}
            }
            for _ in 0..*count {
                total += match source {
                    LossSource::Pair(pair) => loss_of_pair(pair, direction, generator),
                    LossSource::Patterned(one) => {
                        signed(one.loss(&one.output(with_unit, generator)))
                    }
                    LossSource::Mixture(one) => signed(one.loss(&one.output(with_unit, generator))),
                    LossSource::Bins(one) => {
                        let power = if with_unit { power } else { 0 };
                        signed(one.loss(power, generator, scratch))
                    }
                    LossSource::Sequence(one) => signed(one.loss(with_unit, generator, scratch)),
                    // Both directions have the same distribution.
                    LossSource::ReplacedBins(one) => one.replaced_loss(generator, scratch),
                    LossSource::ReplacedSequence(one) => one.replaced_loss(generator, scratch),
                };
            }
        }
        total
    }
}
