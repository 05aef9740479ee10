//! Sampling a fixed number of units with replacement.

use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::population::Population;
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Domain, Key, Stream, below};

/// Draws one unit m times independently, each time uniformly from the data set.
///
/// A unit that is drawn j times is j rows of the batch: it is clipped in each of them and
/// contributes j times. The accountant counts all multiplicities with their probabilities.
///
/// # Privacy
///
/// Relation: replace one unit. The sums of two neighboring data sets differ by j removed and j
/// added contributions, so the sensitivity of a draw is up to 2m times the clipping threshold; it
/// costs more than [`FixedSizeSampler`](super::FixedSizeSampler), which is the better choice unless
/// an algorithm needs replacement.
///
/// The draws are exactly uniform for a uniform key; see [`random`](crate::random).
#[derive(Clone, Debug)]
pub struct WithReplacementSampler {
    population: Population,
    batch_size: usize,
}

impl WithReplacementSampler {
    /// Returns a sampler with a new key from the operating system.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= batch_size <= dataset_size`, and
    /// [`DpError::Entropy`] if the operating system provides no entropy.
    pub fn new(dataset_size: usize, batch_size: usize) -> Result<Self, DpError> {
        let population = Population::with_batch_size(dataset_size, batch_size)?;
        Ok(Self { population, batch_size })
    }

    /// Replaces the key with the stored key of a resumed run, or with an
    /// [`InsecureSeed`](crate::random::InsecureSeed).
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        Self { population: self.population.with_key(key.into()), ..self }
    }
}

impl Sealed for WithReplacementSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        let (key, size) = (self.population.key(), self.population.size() as u64);
        let mut words = Stream::new(key, Domain::Sampling, step, 0).into_words();
        let mut units: Vec<usize> =
            (0..self.batch_size).map(|_| below(&mut words, size) as usize).collect();
        units.sort_unstable();
        units
    }
}

impl Sampler for WithReplacementSampler {
    fn sampling_probability(&self) -> f64 {
        self.batch_size as f64 / self.population.size() as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::WithReplacement {
            dataset_size: self.population.size(),
            batch_size: self.batch_size,
        }
    }

    fn participation(&self) -> ParticipationPattern {
        ParticipationPattern::Repeated
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::random::statistics::{assert_chi_squared, chi_squared};
    use std::collections::BTreeMap;

    fn seeded(dataset_size: usize, batch_size: usize) -> WithReplacementSampler {
        WithReplacementSampler::new(dataset_size, batch_size).unwrap().with_key(InsecureSeed(5))
    }

    fn units(sampler: &impl Sampler, step: u64) -> Vec<usize> {
        sampler.draw(step).unwrap().private_indices().to_vec()
    }

    // 3 draws from 4 units: 20 multisets, with 1, 3 or 6 orders of 64 each.
    #[test]
    fn every_multiset_has_its_probability_with_error_rate_1e_6() {
        let (sampler, steps) = (seeded(4, 3), 32_000_u64);
        let mut counts: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        for step in 0..steps {
            *counts.entry(units(&sampler, step)).or_default() += 1.0;
        }
        assert_eq!(counts.len(), 20);
        let orders = |set: &[usize]| match (set[0] == set[1], set[1] == set[2]) {
            (true, true) => 1.0,
            (false, false) => 6.0,
            _ => 3.0,
        };
        let expected: Vec<f64> =
            counts.keys().map(|set| orders(set) * steps as f64 / 64.0).collect();
        let observed: Vec<f64> = counts.into_values().collect();
        assert_chi_squared(chi_squared(&observed, &expected), 19);
    }

    #[test]
    fn consecutive_draws_are_independent_with_error_rate_1e_6() {
        let sampler = seeded(3, 1);
        let mut counts = [0.0; 9];
        for pair in 0..20_000 {
            counts[units(&sampler, 2 * pair)[0] * 3 + units(&sampler, 2 * pair + 1)[0]] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[20_000.0 / 9.0; 9]), 8);
    }

    #[test]
    fn every_draw_has_the_size_and_some_repeat_a_unit() {
        let sampler = seeded(20, 10);
        let draws: Vec<_> = (0..50).map(|step| units(&sampler, step)).collect();
        assert!(draws.iter().all(|draw| draw.len() == 10 && draw.is_sorted()));
        // All 10 differ with probability 0.065.
        let repeating = draws.iter().filter(|draw| draw.windows(2).any(|w| w[0] == w[1])).count();
        assert!(repeating > 25, "{repeating}");
        assert_eq!(units(&seeded(1, 1), 7), [0]);
        for size in [0, 21] {
            assert!(WithReplacementSampler::new(20, size).is_err());
        }
    }
}
