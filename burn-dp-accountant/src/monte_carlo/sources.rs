//! From events to sources of random privacy losses.

use crate::dominating_pairs::{Direction, DominatingPairs, Pair, ln_mixture};
use crate::error::AccountantError;
use crate::event::{DpEvent, GaussianMixture, PatternedGaussian, RandomParticipation};
use crate::math::random::Generator;
use crate::relation::NeighboringRelation;

/// What draws the privacy loss of one event.
#[derive(Debug, Clone)]
enum Source {
    Pair(Pair),
    Patterned(PatternedGaussian),
    Mixture(GaussianMixture),
}

/// The sources of a composition.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    sources: Vec<(Source, u64)>,
    /// δ of outcomes that reveal everything.
    pub(super) mass_at_infinity: f64,
    /// Why ε is infinite, if it is.
    pub(super) infinite: Option<String>,
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
                    let patterned = PatternedGaussian {
                        participation: RandomParticipation::Subset {
                            participations: *participations,
                        },
                        steps: *steps,
                        column: vec![1.0],
                        noise_multiplier: noise_multiplier / (*epochs as f64).sqrt(),
                    };
                    self.sources.push((Source::Patterned(patterned), count));
                    return Ok(());
                }
            }
            DpEvent::Patterned(patterned) if !replaced => {
                self.sources.push((Source::Patterned(patterned.clone()), count));
                return Ok(());
            }
            DpEvent::GaussianMixture(mixture) if !replaced => {
                self.sources.push((Source::Mixture(mixture.clone()), count));
                return Ok(());
            }
            _ => {}
        }
        let pairs = DominatingPairs::of_events([(event, count)], relation)?;
        let known = pairs.parts.iter().all(|(pair, _)| has_losses(pair));
        if !known || pairs.total_variation > 0.0 {
            return Err(AccountantError::unsupported(
                event.to_string(),
                "its privacy loss cannot be drawn; use PldAccountant for events of this kind",
            ));
        }
        self.mass_at_infinity += pairs.mass_at_infinity;
        self.infinite = self.infinite.take().or(pairs.infinite);
        self.sources.extend(pairs.parts.into_iter().map(|(pair, n)| (Source::Pair(pair), n)));
        Ok(())
    }

    /// Returns about how many random numbers one loss takes.
    pub(super) fn work(&self) -> f64 {
        let one = |(source, count): &(Source, u64)| match source {
            Source::Pair(Pair::Gaussian { .. }) => 1.0,
            Source::Pair(_) => *count as f64,
            Source::Patterned(patterned) => {
                let modes = match patterned.participation {
                    RandomParticipation::BallsInBins { cycle }
                        if cycle < patterned.column.len() as u64 =>
                    {
                        cycle as f64
                    }
                    RandomParticipation::Subset { participations } => participations as f64,
                    _ => patterned.column.len() as f64,
                };
                *count as f64 * patterned.steps as f64 * modes
            }
            Source::Mixture(mixture) => {
                *count as f64 * mixture.means.iter().map(|mean| mean.len() as f64).sum::<f64>()
            }
        };
        self.sources.iter().map(one).sum()
    }

    /// Draws the privacy loss of the composition.
    pub(super) fn loss(&self, direction: Direction, generator: &mut Generator) -> f64 {
        let with_unit = direction == Direction::Remove;
        let signed = |loss: f64| if with_unit { loss } else { -loss };
        let mut total = 0.0;
        for (source, count) in &self.sources {
            if let Source::Pair(Pair::Gaussian { mu }) = source {
                let mu = mu * (*count as f64).sqrt();
                total += mu * generator.normal() + 0.5 * mu * mu;
                continue;
            }
            for _ in 0..*count {
                total += match source {
                    Source::Pair(pair) => loss_of_pair(pair, direction, generator),
                    Source::Patterned(one) => signed(one.loss(&one.output(with_unit, generator))),
                    Source::Mixture(one) => signed(one.loss(&one.output(with_unit, generator))),
                };
            }
        }
        total
    }
}

/// Returns whether the losses of a pair can be drawn.
fn has_losses(pair: &Pair) -> bool {
    match pair {
        Pair::Gaussian { .. } | Pair::Sampled { .. } | Pair::Substituted { .. } => true,
        Pair::Mixture { components, .. } => components.iter().all(|(_, pair)| has_losses(pair)),
        _ => false,
    }
}

fn loss_of_pair(pair: &Pair, direction: Direction, generator: &mut Generator) -> f64 {
    let mut outcome = |q: f64, mu: f64| {
        let shift = if generator.uniform() < q { mu } else { 0.0 };
        shift + generator.normal()
    };
    match *pair {
        Pair::Gaussian { mu } => mu * outcome(0.0, mu) + 0.5 * mu * mu,
        Pair::Sampled { q, mu } if direction == Direction::Remove => {
            ln_mixture(q, mu, outcome(q, mu))
        }
        Pair::Sampled { q, mu } => -ln_mixture(q, mu, outcome(0.0, mu)),
        Pair::Substituted { q, mu } => {
            let x = outcome(q, mu);
            ln_mixture(q, mu, x) - ln_mixture(q, mu, -x)
        }
        Pair::Mixture { ref components, .. } => {
            let mut left = generator.uniform();
            let chosen = components.iter().find(|(weight, _)| {
                left -= weight;
                left < 0.0
            });
            match chosen.or(components.last()) {
                Some((_, pair)) => loss_of_pair(pair, direction, generator),
                None => 0.0,
            }
        }
        _ => f64::NAN,
    }
}
