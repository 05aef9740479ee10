//! Sampling a fixed number of units without replacement.

use std::collections::BTreeSet;

use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::population::Population;
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Domain, Key, Stream, below};

/// Draws exactly m units. Every subset of that size has the same probability, independently in each
/// step.
///
/// # Privacy
///
/// Relation: replace one unit. The sums of two neighboring data sets differ by one removed unit
/// *and* one added unit, so the sensitivity is twice the clipping threshold.
///
/// The draw is exactly uniform for a uniform key; see [`random`](crate::random).
///
/// # References
///
/// - Y.-X. Wang, B. Balle, S. Kasiviswanathan, "Subsampled Rényi Differential Privacy and
///   Analytical Moments Accountant", 2019.
/// - J. Bentley, R. W. Floyd, "Programming Pearls: A Sample of Brilliance", 1987 (the algorithm).
#[derive(Clone, Debug)]
pub struct FixedSizeSampler {
    population: Population,
    batch_size: usize,
}

impl FixedSizeSampler {
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

impl Sealed for FixedSizeSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        let key = self.population.key();
        let mut words = Stream::new(key, Domain::Sampling, step, 0).into_words();
        let mut chosen = BTreeSet::new();
        let size = self.population.size();
        for last in size - self.batch_size..size {
            let candidate = below(&mut words, last as u64 + 1) as usize;
            if !chosen.insert(candidate) {
                chosen.insert(last);
            }
        }
        chosen.into_iter().collect()
    }
}

impl Sampler for FixedSizeSampler {
    fn sampling_probability(&self) -> f64 {
        self.batch_size as f64 / self.population.size() as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::WithoutReplacement {
            dataset_size: self.population.size(),
            batch_size: self.batch_size,
        }
    }

    fn participation(&self) -> ParticipationPattern {
        ParticipationPattern::AnyStep
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::random::statistics::{assert_chi_squared, chi_squared};
    use std::collections::BTreeMap;

    fn seeded(dataset_size: usize, batch_size: usize) -> FixedSizeSampler {
        FixedSizeSampler::new(dataset_size, batch_size).unwrap().with_key(InsecureSeed(6))
    }

    #[test]
    fn every_subset_of_the_size_is_equally_likely_with_error_rate_1e_6() {
        let sampler = seeded(7, 3);
        let steps = 35_000_u64;
        let mut counts = BTreeMap::new();
        for step in 0..steps {
            let draw = sampler.draw(step).unwrap();
            *counts.entry(draw.private_indices().to_vec()).or_insert(0.0) += 1.0;
        }
        assert_eq!(counts.len(), 35);
        let observed: Vec<f64> = counts.into_values().collect();
        assert_chi_squared(chi_squared(&observed, &[steps as f64 / 35.0; 35]), 34);
    }

    #[test]
    fn every_draw_has_exactly_the_size_and_no_unit_twice() {
        for (units, size) in [(1, 1), (2, 1), (100, 99), (100, 100), (5000, 300)] {
            let sampler = seeded(units, size);
            for step in 0..50 {
                let draw = sampler.draw(step).unwrap();
                let distinct: BTreeSet<_> = draw.private_indices().iter().collect();
                assert_eq!((draw.private_indices().len(), distinct.len()), (size, size));
            }
        }
    }

    #[test]
    fn a_draw_depends_on_the_key_and_the_step_alone() {
        let sampler = seeded(1000, 100);
        let late = sampler.draw(9).unwrap();
        (0..9).for_each(|step| assert_ne!(sampler.draw(step).unwrap(), late));
        assert_eq!(seeded(1000, 100).draw(9).unwrap(), late);
        assert!(FixedSizeSampler::new(2, 1).unwrap().is_secure() && !sampler.is_secure());
    }

    #[test]
    fn the_mechanism_is_sampling_without_replacement() {
        let sampler = seeded(1000, 100);
        let mechanism =
            SamplingMechanism::WithoutReplacement { dataset_size: 1000, batch_size: 100 };
        assert_eq!(sampler.mechanism(), mechanism);
        assert_eq!((sampler.sampling_probability(), sampler.expected_batch_size()), (0.1, 100.0));
    }
}
