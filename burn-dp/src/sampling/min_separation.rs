//! Sampling with a minimum number of steps between two steps of a unit.

use std::sync::{Arc, Mutex, PoisonError};

use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::poisson::successes;
use super::population::{Population, check_number};
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Bernoulli, Domain, Key, Stream, below};

/// Draws each unit independently with probability p in each step, except in the b - 1 steps after
/// one in which it took part.
///
/// The first step is drawn as if there had been infinitely many steps before, so that every step
/// has the same expected size, E = N·p / (1 + (b - 1)·p). With b = 1 this is Poisson sampling.
///
/// The draw of a step depends on all steps before it. The sampler keeps its position: the next step
/// costs as much as a Poisson draw, and a step far ahead (in a resumed run) or an earlier one is
/// reached by repeating all draws from step 0.
///
/// # Privacy
///
/// Relation: add or remove one unit. Whether a unit takes part depends on the key and on its own
/// earlier steps, and neither on the data nor on other units. The probability p is used exactly,
/// including in the first step; it is rounded once, when it is computed from E.
///
/// # References
///
/// C. A. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization: A unified approach to
/// private training", 2023 (participation with a minimum separation).
#[derive(Clone)]
pub struct MinSeparationSampler {
    population: Population,
    separation: usize,
    sampling_probability: f64,
    /// Shared by clones, which have the same key.
    place: Arc<Mutex<Option<Place>>>,
}

/// The position of the draws: everything that later steps depend on.
struct Place {
    /// The step of `units`.
    step: u64,
    units: Vec<usize>,
    /// The first step in which each unit may take part.
    free_from: Vec<u64>,
}

impl MinSeparationSampler {
    /// Returns a sampler with a new key from the operating system.
    ///
    /// # Arguments
    ///
    /// - `expected_batch_size`: E, the mean number of units in a draw
    /// - `separation`: b, the smallest difference between two steps of a unit
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= separation <= dataset_size` and
    /// `expected_batch_size` is positive and at most `dataset_size / separation`, and
    /// [`DpError::Entropy`] if the operating system provides no entropy.
    pub fn new(
        dataset_size: usize,
        expected_batch_size: f64,
        separation: usize,
    ) -> Result<Self, DpError> {
        let (population, _) = Population::with_probability(dataset_size, expected_batch_size)?;
        check_number("separation", separation, dataset_size)?;
        let (size, b) = (dataset_size as f64, separation as f64);
        if expected_batch_size * b > size {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!(
                    "must be at most dataset_size / separation = {}, the number of units that can \
                     take part in each step, got {expected_batch_size}",
                    size / b
                ),
            ));
        }
        // From E/N = p / (1 + (b - 1) p); N - (b - 1) E units can take part in each step.
        let may_take_part = size - (b - 1.0) * expected_batch_size;
        let sampling_probability = (expected_batch_size / may_take_part).min(1.0);
        Ok(Self { population, separation, sampling_probability, place: Arc::default() })
    }

    /// Replaces the key with the stored key of a resumed run, or with an
    /// [`InsecureSeed`](crate::random::InsecureSeed).
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        let population = self.population.with_key(key.into());
        Self { population, place: Arc::default(), ..self }
    }

    /// Returns the first step in which each unit may take part.
    ///
    /// In the stationary distribution a unit waits j steps with p times the probability with which
    /// it waits none, for each j from 1 to b - 1: a uniform proposal that is accepted with
    /// probability p unless it is 0.
    fn first_steps(&self) -> Vec<u64> {
        let key = self.population.key();
        let mut words = Stream::new(key, Domain::Assignment, 0, 0).into_words();
        let p = self.sampling_probability;
        let trial = (p < 1.0).then(|| Bernoulli::new(p));
        let mut first_step = || {
            loop {
                let waits = below(&mut words, self.separation as u64);
                let accepted = waits == 0
                    || trial.as_ref().is_none_or(|trial| {
                        words.next().is_some_and(|word| trial.succeeds(word, || words.by_ref()))
                    });
                if accepted {
                    return waits;
                }
            }
        };
        (0..self.population.size()).map(|_| first_step()).collect()
    }

    /// Draws the units of `step` and makes them wait.
    fn advance(&self, step: u64, mut free_from: Vec<u64>) -> Place {
        let units = successes(&self.population, step, self.sampling_probability, |unit| {
            free_from[unit] <= step
        });
        for &unit in &units {
            free_from[unit] = step.saturating_add(self.separation as u64);
        }
        Place { step, units, free_from }
    }
}

impl Sealed for MinSeparationSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        // After a panic of another thread there is no position, and it is computed again.
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = match place.take() {
            Some(found) if found.step <= step => found,
            _ => self.advance(0, self.first_steps()),
        };
        while found.step < step {
            found = self.advance(found.step + 1, found.free_from);
        }
        place.insert(found).units.clone()
    }
}

impl Sampler for MinSeparationSampler {
    fn sampling_probability(&self) -> f64 {
        self.population.expected_batch_size() / self.population.size() as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::MinSeparation {
            separation: self.separation,
            sampling_probability: self.sampling_probability,
        }
    }

    fn participation(&self) -> ParticipationPattern {
        ParticipationPattern::Separated { separation: self.separation as u64 }
    }
}

opaque_debug!(MinSeparationSampler, |this|
    population: this.population,
    separation: this.separation,
    sampling_probability: this.sampling_probability
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::random::statistics::{assert_chi_squared, assert_standard_normal, chi_squared};
    use crate::sampling::PoissonSampler;

    fn seeded(size: usize, expected: f64, separation: usize) -> MinSeparationSampler {
        let sampler = MinSeparationSampler::new(size, expected, separation).unwrap();
        sampler.with_key(InsecureSeed(13))
    }

    fn units(sampler: &impl Sampler, step: u64) -> Vec<usize> {
        sampler.draw(step).unwrap().private_indices().to_vec()
    }

    /// Returns the exact probability of each pattern of `steps` steps, from the stationary start.
    fn patterns(steps: usize, p: f64, separation: usize) -> Vec<f64> {
        let eligible = 1.0 / (1.0 + (separation - 1) as f64 * p);
        let mut states = vec![(0_usize, 0_usize, eligible)];
        states.extend((1..separation).map(|waits| (0, waits, p * eligible)));
        for step in 0..steps {
            states = states
                .into_iter()
                .flat_map(|(pattern, waits, mass)| match waits {
                    0 => vec![
                        (pattern | 1 << step, separation - 1, mass * p),
                        (pattern, 0, mass * (1.0 - p)),
                    ],
                    _ => vec![(pattern, waits - 1, mass)],
                })
                .collect();
        }
        let mut probability = vec![0.0; 1 << steps];
        states.into_iter().for_each(|(pattern, _, mass)| probability[pattern] += mass);
        probability
    }

    #[test]
    fn every_pattern_with_a_pause_has_its_probability_with_error_rate_1e_6() {
        let (size, steps, p) = (60_000, 7, 0.4);
        for separation in [1, 2, 3] {
            let expected_size = size as f64 * p / (1.0 + (separation - 1) as f64 * p);
            let sampler = seeded(size, expected_size, separation);
            assert!((sampler.sampling_probability / p - 1.0).abs() < 1e-14);
            let mut found = vec![0_usize; size];
            for step in 0..steps {
                for unit in units(&sampler, step as u64) {
                    found[unit] |= 1 << step;
                }
            }
            let exact = patterns(steps, p, separation);
            assert!((exact.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut counts = vec![0.0; 1 << steps];
            found.into_iter().for_each(|pattern| counts[pattern] += 1.0);
            let cells: Vec<(f64, f64)> = counts
                .into_iter()
                .zip(exact)
                .filter(|&(count, p)| count > 0.0 || p > 0.0)
                .map(|(count, p)| (count, p * size as f64))
                .collect();
            assert!(cells.iter().all(|&(_, expected)| expected >= 5.0), "an impossible pattern");
            let (observed, expected): (Vec<f64>, Vec<f64>) = cells.into_iter().unzip();
            assert_chi_squared(chi_squared(&observed, &expected), observed.len() - 1);
        }
    }

    #[test]
    fn every_step_has_the_expected_size_from_the_first_with_error_rate_1e_6() {
        let (size, expected, steps) = (20_000, 2_000.0, 40);
        let sampler = seeded(size, expected, 8);
        let deviation = (expected * (1.0 - expected / size as f64)).sqrt();
        let z: Vec<f64> = (0..steps)
            .map(|step| (units(&sampler, step).len() as f64 - expected) / deviation)
            .collect();
        assert_standard_normal(&z);
    }

    #[test]
    fn neighboring_units_are_independent_with_error_rate_1e_6() {
        let sampler = seeded(40_000, 10_000.0, 2);
        for step in [0, 1, 5] {
            let mut cells = vec![0_usize; 40_000];
            units(&sampler, step).into_iter().for_each(|unit| cells[unit] = 1);
            let mut observed = [0.0; 4];
            cells.chunks(2).for_each(|pair| observed[pair[0] * 2 + pair[1]] += 1.0);
            let expected = [0.5625, 0.1875, 0.1875, 0.0625].map(|p| 20_000.0 * p);
            assert_chi_squared(chi_squared(&observed, &expected), 3);
        }
    }

    #[test]
    fn the_largest_batch_is_one_round_after_the_other() {
        let sampler = seeded(90, 30.0, 3);
        assert_eq!(sampler.sampling_probability, 1.0);
        for step in 0..9 {
            assert_eq!(units(&sampler, step), units(&sampler, step + 3));
        }
        let error = MinSeparationSampler::new(90, 30.5, 3).unwrap_err().to_string();
        assert!(error.contains("expected_batch_size") && error.contains("= 30"), "{error}");
        for separation in [0, 91] {
            let error = MinSeparationSampler::new(90, 0.5, separation).unwrap_err().to_string();
            assert!(error.contains("separation"), "{error}");
        }
    }

    #[test]
    fn a_separation_of_one_draws_the_units_of_poisson_sampling() {
        let poisson = PoissonSampler::with_expected_batch_size(300, 20.0).unwrap();
        let poisson = poisson.with_key(InsecureSeed(13));
        for step in 0..10 {
            assert_eq!(units(&seeded(300, 20.0, 1), step), units(&poisson, step));
        }
    }

    #[test]
    fn steps_are_the_same_in_any_order_and_after_a_new_key() {
        let sampler = seeded(300, 20.0, 5);
        let forward: Vec<_> = (0..30).map(|step| units(&sampler, step)).collect();
        for step in [29, 0, 17, 17, 3] {
            assert_eq!(units(&sampler, step), forward[step as usize]);
            assert_eq!(units(&seeded(300, 20.0, 5), step), forward[step as usize]);
        }
        let other = sampler.with_key(InsecureSeed(14));
        assert_ne!(units(&other, 29), forward[29]);
        let text = format!("{other:?}");
        assert!(!text.contains("units") && !text.contains("place"), "{text}");
    }
}
