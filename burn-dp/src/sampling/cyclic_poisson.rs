//! Poisson sampling from one part of the data after another.

use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::poisson::successes;
use super::population::{Population, check_number};
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Domain, Key, Stream, below};

/// Divides the units into b parts for the whole run, and draws the units of step t from part t mod
/// b, each independently with probability b·E/N.
///
/// Two steps of a unit are a multiple of b steps apart, so that noise that is correlated over b
/// steps keeps the amplification by sampling: the run is ⌈n/b⌉ Poisson-sampled releases.
///
/// # Privacy
///
/// Relation: add or remove one unit. The part of a unit is an independent, exactly uniform choice
/// by the key: it depends neither on the data nor on the other units, so a neighboring data set has
/// the same parts. The sizes of the parts vary randomly; a step has E units on average over the
/// choice. The analysis regards the parts as known: both ends of an ε are for somebody who knows
/// the part of the unit, and others may learn less than the lower end.
///
/// # References
///
/// C. A. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization: A unified approach to
/// private training", 2023.
#[derive(Clone, Debug)]
pub struct CyclicPoissonSampler {
    population: Population,
    parts: usize,
    sampling_probability: f64,
}

impl CyclicPoissonSampler {
    /// Returns a sampler with a new key from the operating system.
    ///
    /// # Arguments
    ///
    /// - `expected_batch_size`: E, the mean number of units in a draw
    /// - `parts`: b, the number of parts
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= parts <= dataset_size` and
    /// `expected_batch_size` is positive and at most `dataset_size / parts`, and
    /// [`DpError::Entropy`] if the operating system provides no entropy.
    pub fn new(
        dataset_size: usize,
        expected_batch_size: f64,
        parts: usize,
    ) -> Result<Self, DpError> {
        let (population, _) = Population::with_probability(dataset_size, expected_batch_size)?;
        check_number("parts", parts, dataset_size)?;
        let sampling_probability = expected_batch_size * parts as f64 / dataset_size as f64;
        if sampling_probability > 1.0 {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!(
                    "must be at most dataset_size / parts = {}, the mean size of a part, got \
                     {expected_batch_size}; draw from fewer parts, or draw fewer units",
                    dataset_size as f64 / parts as f64
                ),
            ));
        }
        Ok(Self { population, parts, sampling_probability })
    }

    /// Replaces the key with the stored key of a resumed run, or with an
    /// [`InsecureSeed`](crate::random::InsecureSeed).
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        Self { population: self.population.with_key(key.into()), ..self }
    }
}

/// Returns the uniform, independent choice of each unit among `number` parts or bins.
pub(super) fn choices(
    population: &Population,
    domain: Domain,
    epoch: u64,
    number: usize,
) -> Vec<usize> {
    let mut words = Stream::new(population.key(), domain, epoch, 0).into_words();
    (0..population.size()).map(|_| below(&mut words, number as u64) as usize).collect()
}

impl Sealed for CyclicPoissonSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        let parts = choices(&self.population, Domain::Assignment, 0, self.parts);
        let part = (step % self.parts as u64) as usize;
        successes(&self.population, step, self.sampling_probability, |unit| parts[unit] == part)
    }
}

impl Sampler for CyclicPoissonSampler {
    fn sampling_probability(&self) -> f64 {
        self.sampling_probability / self.parts as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::CyclicPoisson {
            parts: self.parts,
            sampling_probability: self.sampling_probability,
        }
    }

    fn participation(&self) -> ParticipationPattern {
        ParticipationPattern::Separated { separation: self.parts as u64 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::random::statistics::{assert_chi_squared, chi_squared};

    fn seeded(size: usize, expected: f64, parts: usize) -> CyclicPoissonSampler {
        let sampler = CyclicPoissonSampler::new(size, expected, parts).unwrap();
        sampler.with_key(InsecureSeed(11))
    }

    // Exact: a unit is in one of 3 parts, and in each of the 2 steps of its part with probability
    // 0.3; it is never drawn with probability 0.49.
    #[test]
    fn every_pattern_of_a_part_has_its_probability_with_error_rate_1e_6() {
        let units = 40_000;
        let sampler = seeded(units, 0.1 * units as f64, 3);
        assert!((sampler.sampling_probability() - 0.1).abs() < 1e-12);
        let mut patterns = vec![0_usize; units];
        for step in 0..6 {
            for &unit in sampler.draw(step).unwrap().private_indices() {
                patterns[unit] |= 1 << step;
            }
        }
        let q = 0.3_f64;
        let (mut observed, mut expected) = (vec![0.0; 10], vec![units as f64 * (1.0 - q).powi(2)]);
        for part in 0..3 {
            for p in [q * (1.0 - q), (1.0 - q) * q, q * q] {
                expected.push(units as f64 * p / 3.0);
            }
            let places = [1 << part, 8 << part, 9 << part];
            for (cell, place) in places.into_iter().enumerate() {
                let found = patterns.iter().filter(|&&pattern| pattern == place).count();
                observed[1 + 3 * part + cell] = found as f64;
            }
        }
        observed[0] = patterns.iter().filter(|&&pattern| pattern == 0).count() as f64;
        assert_eq!(observed.iter().sum::<f64>(), units as f64);
        assert_chi_squared(chi_squared(&observed, &expected), 9);
    }

    #[test]
    fn parts_and_trials_of_neighboring_units_are_independent_with_error_rate_1e_6() {
        let sampler = seeded(40_000, 8_000.0, 2);
        let draws = [0, 1].map(|step| sampler.draw(step).unwrap().private_indices().to_vec());
        // Step 0, step 1 or neither, for units 2i and 2i + 1; 0.2, 0.2 and 0.6.
        let mut cells = vec![2_usize; 40_000];
        for (step, draw) in draws.iter().enumerate() {
            draw.iter().for_each(|&unit| cells[unit] = step);
        }
        let mut observed = [0.0; 9];
        cells.chunks(2).for_each(|pair| observed[pair[0] * 3 + pair[1]] += 1.0);
        let p = [0.2, 0.2, 0.6];
        let expected: Vec<f64> = (0..9).map(|cell| 20_000.0 * p[cell / 3] * p[cell % 3]).collect();
        assert_chi_squared(chi_squared(&observed, &expected), 8);
    }

    #[test]
    fn a_unit_that_is_added_changes_the_part_of_no_other() {
        let (few, more) = (seeded(999, 99.9, 4), seeded(1000, 100.0, 4));
        let parts =
            |sampler: &CyclicPoissonSampler| choices(&sampler.population, Domain::Assignment, 0, 4);
        assert_eq!(parts(&few), parts(&more)[..999]);
    }

    #[test]
    fn a_batch_larger_than_a_part_is_refused_with_the_size_of_a_part() {
        let error = CyclicPoissonSampler::new(100, 30.0, 4).unwrap_err().to_string();
        assert!(error.contains("expected_batch_size") && error.contains("= 25"), "{error}");
        assert!(CyclicPoissonSampler::new(100, 25.0, 4).is_ok());
        for parts in [0, 101] {
            let error = CyclicPoissonSampler::new(100, 0.5, parts).unwrap_err().to_string();
            assert!(error.contains("parts"), "{error}");
        }
    }
}
