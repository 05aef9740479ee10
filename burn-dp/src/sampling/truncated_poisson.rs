//! Poisson sampling with a maximum batch size.

use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::poisson::successes;
use super::population::{Population, check_number};
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Domain, Key, Stream, choose_without_replacement};

/// Draws like [`PoissonSampler`](super::PoissonSampler), and keeps a uniform subset of
/// `max_batch_size` units if a draw is larger.
///
/// The physical batches of a padded loader then have a fixed number as well as a fixed shape: one
/// compiled graph, and memory that is known before the run.
///
/// Updates are divided by the expected size before truncation, a public constant. Truncation is
/// rare if `max_batch_size` is a few standard deviations (the square root of the expected size)
/// above it.
///
/// # Privacy
///
/// Relation: add or remove one unit. Each unit is drawn independently with exactly the sampling
/// probability, and the units that remain after truncation are exactly uniform among the drawn
/// ones, with words of the key. Truncation itself is private: nobody learns whether a draw was
/// truncated.
///
/// # References
///
/// L. Chua et al., "Scalable DP-SGD: Shuffling vs. Poisson Subsampling", 2024 (truncated Poisson
/// batches).
#[derive(Clone, Debug)]
pub struct TruncatedPoissonSampler {
    population: Population,
    sampling_probability: f64,
    max_batch_size: usize,
}

impl TruncatedPoissonSampler {
    /// Returns a sampler with a new key from the operating system.
    ///
    /// # Arguments
    ///
    /// - `expected_batch_size`: mean number of units in a draw before truncation
    /// - `max_batch_size`: maximum number of units in a draw
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `expected_batch_size` is positive and at most
    /// `dataset_size`, and `max_batch_size` is from 1 to `dataset_size`, and [`DpError::Entropy`]
    /// if the operating system provides no entropy.
    pub fn new(
        dataset_size: usize,
        expected_batch_size: f64,
        max_batch_size: usize,
    ) -> Result<Self, DpError> {
        let (population, sampling_probability) =
            Population::with_probability(dataset_size, expected_batch_size)?;
        check_number("max_batch_size", max_batch_size, dataset_size)?;
        Ok(Self { population, sampling_probability, max_batch_size })
    }

    /// Replaces the key with the stored key of a resumed run, or with an
    /// [`InsecureSeed`](crate::random::InsecureSeed).
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        Self { population: self.population.with_key(key.into()), ..self }
    }

    /// Returns the maximum number of units in a draw.
    pub fn max_batch_size(&self) -> usize {
        self.max_batch_size
    }
}

impl Sealed for TruncatedPoissonSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        let mut units = successes(&self.population, step, self.sampling_probability, |_| true);
        let key = self.population.key();
        if units.len() > self.max_batch_size {
            let mut words = Stream::new(key, Domain::Cut, step, 0).into_words();
            choose_without_replacement(&mut words, &mut units, self.max_batch_size);
        }
        units
    }
}

impl Sampler for TruncatedPoissonSampler {
    fn sampling_probability(&self) -> f64 {
        self.sampling_probability
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::TruncatedPoisson {
            sampling_probability: self.sampling_probability,
            dataset_size: self.population.size(),
            max_batch_size: self.max_batch_size,
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
    use crate::sampling::PoissonSampler;
    use std::collections::BTreeMap;

    fn seeded(size: usize, expected: f64, max: usize, seed: u64) -> TruncatedPoissonSampler {
        let sampler = TruncatedPoissonSampler::new(size, expected, max).unwrap();
        sampler.with_key(InsecureSeed(seed))
    }

    fn units(sampler: &impl Sampler, step: u64) -> Vec<usize> {
        sampler.draw(step).unwrap().private_indices().to_vec()
    }

    // The exact probability of each of the 26 sets: C(5,k) q^k (1-q)^(5-k) / C(5,k) below the
    // limit, and the whole tail divided evenly among the sets of 3.
    #[test]
    fn every_set_of_a_cut_draw_has_its_probability_with_error_rate_1e_6() {
        let (size, q, max, steps) = (5, 0.5, 3, 60_000_u64);
        let sampler = seeded(size, q * size as f64, max, 1);
        let mut counts: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        for step in 0..steps {
            *counts.entry(units(&sampler, step)).or_default() += 1.0;
        }
        // 1 + 5 + 10 sets of at most 2 units with probability 1/32, and 10 of 3 units with
        // (10 + 5 + 1) / 32 / 10.
        assert_eq!(counts.len(), 26);
        let expected: Vec<f64> = counts
            .keys()
            .map(|set| steps as f64 / 32.0 * if set.len() == 3 { 1.6 } else { 1.0 })
            .collect();
        let observed: Vec<f64> = counts.into_values().collect();
        assert_chi_squared(chi_squared(&observed, &expected), 25);
    }

    #[test]
    fn consecutive_cut_draws_are_independent_with_error_rate_1e_6() {
        let sampler = seeded(3, 3.0, 1, 2);
        let mut counts = [0.0; 9];
        for pair in 0..20_000 {
            counts[units(&sampler, 2 * pair)[0] * 3 + units(&sampler, 2 * pair + 1)[0]] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[20_000.0 / 9.0; 9]), 8);
    }

    #[test]
    fn no_draw_exceeds_the_limit_and_only_larger_ones_are_cut() {
        let (sampler, max) = (seeded(1000, 100.0, 100, 3), 100);
        let whole = PoissonSampler::with_expected_batch_size(1000, 100.0).unwrap();
        let whole = whole.with_key(InsecureSeed(3));
        let mut cut = 0;
        for step in 0..200 {
            let (all, kept) = (units(&whole, step), units(&sampler, step));
            assert_eq!(kept.len(), all.len().min(max));
            assert!(kept.iter().all(|unit| all.contains(unit)));
            cut += usize::from(kept.len() < all.len());
        }
        assert!((40..160).contains(&cut), "{cut}");
    }

    #[test]
    fn the_mechanism_has_the_probability_before_the_cut() {
        let sampler = seeded(1000, 100.0, 120, 4);
        let mechanism = SamplingMechanism::TruncatedPoisson {
            sampling_probability: 0.1,
            dataset_size: 1000,
            max_batch_size: 120,
        };
        assert_eq!(sampler.mechanism(), mechanism);
        assert_eq!((sampler.expected_batch_size(), sampler.max_batch_size()), (100.0, 120));
    }

    #[test]
    fn a_limit_outside_of_the_data_set_is_refused_by_name() {
        for max in [0, 11] {
            let error = TruncatedPoissonSampler::new(10, 5.0, max).unwrap_err().to_string();
            assert!(error.contains("max_batch_size") && error.contains("10"), "{error}");
        }
        assert!(TruncatedPoissonSampler::new(10, 10.5, 10).is_err());
        assert!(TruncatedPoissonSampler::new(0, 1.0, 1).is_err());
    }
}
