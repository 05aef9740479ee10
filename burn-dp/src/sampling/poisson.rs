//! Poisson sampling.

use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::population::{Population, check_size};
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Bernoulli, Domain, Key, Stream};

/// Draws each unit independently of all others with the same probability.
///
/// The size of a draw follows the binomial distribution with N and q. There are no partial batches
/// and no epochs, and nothing is dropped from a draw that is larger than expected.
///
/// # Privacy
///
/// Relation: add or remove one unit. The probability is q exactly, for every `f64` in (0, 1]: a
/// uniform number is compared as an integer with all binary digits of q, and neither is rounded.
/// [`with_expected_batch_size`](Self::with_expected_batch_size) rounds the quotient to q once,
/// before the accountant and the sampler use it.
///
/// The drawn units are secret as long as the key is. Not covered: the time that a draw takes, which
/// depends on its size.
///
/// # Example
///
/// ```
/// use burn_dp::sampling::{PoissonSampler, Sampler};
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let sampler = PoissonSampler::with_expected_batch_size(60_000, 256.0)?;
/// assert_eq!(sampler.sampling_probability(), 256.0 / 60_000.0);
/// let draw = sampler.draw(0)?;
/// assert_eq!(draw, sampler.draw(0)?);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// - M. Abadi et al., "Deep Learning with Differential Privacy", 2016, section 3.1 (the "lot").
/// - I. Mironov, K. Talwar, L. Zhang, "Rényi Differential Privacy of the Sampled Gaussian
///   Mechanism", 2019, definition 2.
#[derive(Clone, Debug)]
pub struct PoissonSampler {
    population: Population,
    sampling_probability: f64,
}

impl PoissonSampler {
    /// Returns a sampler with a new key from the operating system.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `dataset_size` is positive and
    /// `sampling_probability` in (0, 1], and [`DpError::Entropy`] if the operating system provides
    /// no entropy.
    pub fn new(dataset_size: usize, sampling_probability: f64) -> Result<Self, DpError> {
        check_size(dataset_size)?;
        if !(sampling_probability > 0.0 && sampling_probability <= 1.0) {
            return Err(DpError::invalid(
                "sampling_probability",
                format!("must be in (0, 1], got {sampling_probability}"),
            ));
        }
        let expected_batch_size = sampling_probability * dataset_size as f64;
        let population = Population::new(dataset_size, expected_batch_size)?;
        Ok(Self { population, sampling_probability })
    }

    /// Returns the sampler whose draws have `expected_batch_size` units on average; it need not be
    /// an integer.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `expected_batch_size` is positive and at most
    /// `dataset_size`, and [`DpError::Entropy`] if the operating system provides no entropy.
    pub fn with_expected_batch_size(
        dataset_size: usize,
        expected_batch_size: f64,
    ) -> Result<Self, DpError> {
        let (population, sampling_probability) =
            Population::with_probability(dataset_size, expected_batch_size)?;
        Ok(Self { population, sampling_probability })
    }

    /// Replaces the key with the stored key of a resumed run, or with an
    /// [`InsecureSeed`](crate::random::InsecureSeed).
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        Self { population: self.population.with_key(key.into()), ..self }
    }
}

impl Sealed for PoissonSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        successes(&self.population, step, self.sampling_probability, |_| true)
    }
}

/// Returns the units for which `may` holds and whose trial of this step succeeds: each
/// independently with probability `q`, in (0, 1].
///
/// The first 64 digits of the uniform number of a unit are its word in stream 0. The further
/// digits, needed with probability 2^-64, are a stream of the unit's own.
pub(super) fn successes(
    population: &Population,
    step: u64,
    q: f64,
    may: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let units = 0..population.size();
    if q == 1.0 {
        return units.filter(|&unit| may(unit)).collect();
    }
    let key = population.key();
    let words = |position| Stream::new(key, Domain::Sampling, step, position).into_words();
    let trial = Bernoulli::new(q);
    units
        .zip(words(0))
        .filter(|&(unit, word)| may(unit) && trial.succeeds(word, || words(unit as u64 + 1)))
        .map(|(unit, _)| unit)
        .collect()
}

impl Sampler for PoissonSampler {
    fn sampling_probability(&self) -> f64 {
        self.sampling_probability
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::Poisson { sampling_probability: self.sampling_probability }
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
    use crate::random::statistics::{assert_chi_squared, assert_standard_normal, chi_squared};

    fn seeded(dataset_size: usize, q: f64, seed: u64) -> PoissonSampler {
        PoissonSampler::new(dataset_size, q).unwrap().with_key(InsecureSeed(seed))
    }

    fn indices(sampler: &impl Sampler, step: u64) -> Vec<usize> {
        sampler.draw(step).unwrap().private_indices().to_vec()
    }

    #[test]
    fn each_unit_is_drawn_with_the_stated_probability_with_error_rate_1e_6() {
        let (units, steps, q) = (50, 20_000, 0.3);
        let sampler = seeded(units, q, 1);
        let mut counts = vec![0.0; units];
        for step in 0..steps {
            for i in indices(&sampler, step) {
                counts[i] += 1.0;
            }
        }
        let mean = steps as f64 * q;
        let deviation = (mean * (1.0 - q)).sqrt();
        let z: Vec<f64> = counts.iter().map(|count| (count - mean) / deviation).collect();
        assert_standard_normal(&z);
        assert_chi_squared(z.iter().map(|z| z * z).sum(), units);
    }

    #[test]
    fn units_and_steps_are_pairwise_independent_with_error_rate_1e_6() {
        let (units, steps, q) = (50, 20_000_u64, 0.3);
        let sampler = seeded(units, q, 2);
        let draws: Vec<Vec<f64>> = (0..steps)
            .map(|step| {
                let mut centered = vec![-q; units];
                indices(&sampler, step).into_iter().for_each(|i| centered[i] += 1.0);
                centered
            })
            .collect();
        let correlation = |lag: usize, i: usize, j: usize| {
            let pairs = draws.iter().zip(&draws[lag..]);
            let sum: f64 = pairs.map(|(now, later)| now[i] * later[j]).sum();
            sum / (q * (1.0 - q) * ((steps as usize - lag) as f64).sqrt())
        };
        let within: Vec<f64> = (0..units)
            .flat_map(|i| (0..i).map(move |j| (i, j)))
            .map(|(i, j)| correlation(0, i, j))
            .collect();
        assert_standard_normal(&within);
        assert_chi_squared(within.iter().map(|z| z * z).sum(), within.len());
        let across: Vec<f64> = (0..units).map(|i| correlation(1, i, i)).collect();
        assert_standard_normal(&across);
        assert_chi_squared(across.iter().map(|z| z * z).sum(), across.len());
    }

    #[test]
    fn the_batch_size_is_binomial_with_error_rate_1e_6() {
        let (units, steps, q) = (100_usize, 50_000_u64, 0.1_f64);
        let sampler = seeded(units, q, 3);
        let mut probability = vec![(1.0 - q).powi(units as i32)];
        for k in 0..units {
            probability.push(probability[k] * (units - k) as f64 / (k + 1) as f64 * q / (1.0 - q));
        }
        // Sizes outside 2..=20 share the two outer cells, so that every cell expects 10 or more.
        let cell = |size: usize| size.clamp(2, 20) - 2;
        let (mut observed, mut expected) = (vec![0.0; 19], vec![0.0; 19]);
        for (size, p) in probability.iter().enumerate() {
            expected[cell(size)] += p * steps as f64;
        }
        assert!(expected.iter().all(|&e| e >= 10.0));
        for step in 0..steps {
            observed[cell(indices(&sampler, step).len())] += 1.0;
        }
        assert_chi_squared(chi_squared(&observed, &expected), 18);
    }

    #[test]
    fn a_draw_depends_on_the_key_and_the_step_alone() {
        let sampler = seeded(10_000, 0.05, 4);
        let forward: Vec<_> = (0..20).map(|step| indices(&sampler, step)).collect();
        let backward: Vec<_> =
            (0..20).rev().map(|step| indices(&seeded(10_000, 0.05, 4), step)).collect();
        assert!(forward.iter().eq(backward.iter().rev()));
        assert_ne!(forward[0], forward[1]);
        assert_ne!(forward[0], indices(&seeded(10_000, 0.05, 5), 0));
    }

    #[test]
    fn a_unit_is_drawn_if_its_own_word_is_below_the_probability() {
        let (units, q, step) = (10_001, 0.25, 77);
        let words = Stream::new(&InsecureSeed(9).into(), Domain::Sampling, step, 0).into_words();
        let expected: Vec<usize> =
            (0..units).zip(words).filter(|&(_, word)| word < 1 << 62).map(|(i, _)| i).collect();
        assert_eq!(indices(&seeded(units, q, 9), step), expected);
        assert_eq!(indices(&seeded(2 * units, q, 9), step)[..expected.len()], expected);
    }

    #[test]
    fn the_digits_after_the_first_word_of_a_unit_are_its_own_stream() {
        let (seed, step) = (10, 3);
        let words = |position: u64| {
            let key = InsecureSeed(seed).into();
            Stream::new(&key, Domain::Sampling, step, position).into_words()
        };
        // A word and a one after its last digit are an exact probability.
        let small = (0..).zip(words(0)).filter(|&(_, word)| word < 1 << 52);
        for (unit, word) in small.take(16) {
            let q = (word as f64 + 0.5) * 2f64.powi(-64);
            let is_drawn = indices(&seeded(unit + 1, q, seed), step).contains(&unit);
            assert_eq!(is_drawn, words(unit as u64 + 1).next().unwrap() < 1 << 63, "{unit}");
        }
    }

    #[test]
    fn steps_and_nearby_units_are_independent_in_a_large_data_set() {
        // Disjoint pairs of units of a fair draw; error rate 1e-6 for each of the four bounds.
        let units = 1 << 20;
        let sampler = seeded(units, 0.5, 8);
        let draw = |step| {
            let mut present = vec![false; units];
            indices(&sampler, step).into_iter().for_each(|unit| present[unit] = true);
            present
        };
        let (first, second) = (draw(0), draw(1));
        let bound = |pairs: usize| 4.892 * (pairs as f64 * 3.0 / 16.0).sqrt();
        let both = first.iter().zip(&second).filter(|(a, b)| **a && **b).count() as f64;
        assert!((both - units as f64 / 4.0).abs() < bound(units));
        for lag in [1, 16, 128] {
            let pairs = (0..units).filter(|unit| (unit / lag) % 2 == 0);
            let both = pairs.filter(|&unit| first[unit] && first[unit + lag]).count();
            assert!((both as f64 - units as f64 / 8.0).abs() < bound(units / 2), "lag {lag}");
        }
    }

    #[test]
    fn two_samplers_from_entropy_draw_differently_and_are_secure() {
        let (a, b) =
            (PoissonSampler::new(1000, 0.5).unwrap(), PoissonSampler::new(1000, 0.5).unwrap());
        assert_ne!(a.draw(0).unwrap(), b.draw(0).unwrap());
        assert!(a.is_secure() && !seeded(1, 0.5, 0).is_secure());
    }

    #[test]
    fn draws_are_empty_at_tiny_probabilities_and_complete_at_one() {
        assert!(indices(&seeded(1000, f64::MIN_POSITIVE, 0), 0).is_empty());
        assert!(indices(&seeded(1000, f64::from_bits(1), 0), 0).is_empty());
        assert_eq!(indices(&seeded(5000, 1.0, 0), 3), (0..5000).collect::<Vec<_>>());
    }

    #[test]
    fn a_single_unit_is_drawn_in_some_steps_and_not_in_others() {
        let sampler = seeded(1, 0.5, 0);
        let drawn = (0..1000).filter(|&step| indices(&sampler, step) == [0]).count();
        // 500 ± 6.3 standard deviations.
        assert!((400..=600).contains(&drawn), "{drawn}");
        assert!((0..1000).all(|step| indices(&sampler, step).len() <= 1));
    }

    #[test]
    fn the_expected_batch_size_is_the_given_constant() {
        let sampler = PoissonSampler::with_expected_batch_size(49_999, 1000.5).unwrap();
        assert_eq!(sampler.expected_batch_size(), 1000.5);
        let q = sampler.sampling_probability();
        assert_eq!(q, 1000.5 / 49_999.0);
        assert_eq!(sampler.mechanism(), SamplingMechanism::Poisson { sampling_probability: q });
        let all = PoissonSampler::with_expected_batch_size(49_999, 49_999.0).unwrap();
        assert_eq!(all.sampling_probability(), 1.0);
    }

    #[test]
    fn bad_arguments_are_refused_by_name_and_value() {
        for q in [0.0, -0.1, 1.000_000_1, f64::NAN, f64::INFINITY] {
            let error = PoissonSampler::new(10, q).unwrap_err().to_string();
            assert!(
                error.contains("sampling_probability") && error.contains(&q.to_string()),
                "{error}"
            );
        }
        for m in [0.0, -1.0, 10.5, f64::NAN, f64::INFINITY] {
            let error = PoissonSampler::with_expected_batch_size(10, m).unwrap_err().to_string();
            assert!(
                error.contains("expected_batch_size") && error.contains(&m.to_string()),
                "{error}"
            );
        }
        let error = PoissonSampler::new(0, 0.5).unwrap_err().to_string();
        assert!(error.contains("dataset_size"), "{error}");
        assert!(PoissonSampler::new(usize::MAX, 0.5).is_err());
    }
}
