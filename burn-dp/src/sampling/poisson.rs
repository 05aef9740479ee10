//! Poisson sampling.

use std::sync::Arc;

use super::sampler::{check_dataset_size, sealed::Sealed};
use super::{Draw, Sampler, SamplingMechanism};
use crate::DpError;
use crate::random::sampling::{SamplingKey, WordSource};

/// Draws each unit independently of all others with the same probability.
///
/// The size of a draw follows the binomial distribution with N and q. There is no partial batch, no
/// epoch, and nothing is dropped from a draw that is larger than expected.
///
/// # Privacy
///
/// The probability is q exactly, for every `f64` in (0, 1]: a uniform number is compared with all binary
/// digits of q, not with a rounded one. Relation: add or remove one unit.
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
/// Deep Learning with Differential Privacy, Abadi et al. 2016, section 3.1 (the "lot"); Rényi
/// Differential Privacy of the Sampled Gaussian Mechanism, Mironov, Talwar and Zhang 2019, definition 2.
#[derive(Clone, Debug)]
pub struct PoissonSampler {
    dataset_size: usize,
    sampling_probability: f64,
    expected_batch_size: f64,
    source: Arc<dyn WordSource>,
}

impl PoissonSampler {
    /// A sampler with a new key from the operating system.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] unless `dataset_size` is positive and `sampling_probability` in
    /// (0, 1]; [`DpError::Entropy`] when there is no entropy.
    pub fn new(dataset_size: usize, sampling_probability: f64) -> Result<Self, DpError> {
        check_dataset_size(dataset_size)?;
        if !(sampling_probability > 0.0 && sampling_probability <= 1.0) {
            return Err(DpError::invalid(
                "sampling_probability",
                format!("must be in (0, 1], got {sampling_probability}"),
            ));
        }
        Ok(Self {
            dataset_size,
            sampling_probability,
            expected_batch_size: sampling_probability * dataset_size as f64,
            source: Arc::new(SamplingKey::from_entropy()?),
        })
    }

    /// The sampler whose draws have `expected_batch_size` units in the mean; need not be an integer.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] unless `expected_batch_size` is positive and at most
    /// `dataset_size`, and as for [`new`](Self::new).
    pub fn with_expected_batch_size(
        dataset_size: usize,
        expected_batch_size: f64,
    ) -> Result<Self, DpError> {
        check_dataset_size(dataset_size)?;
        let probability = expected_batch_size / dataset_size as f64;
        if !(probability > 0.0 && expected_batch_size <= dataset_size as f64) {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!(
                    "must be positive and at most dataset_size = {dataset_size}, got \
                     {expected_batch_size}"
                ),
            ));
        }
        Ok(Self { expected_batch_size, ..Self::new(dataset_size, probability)? })
    }

    /// Draws from this key instead: the saved key of a run that is resumed, or an
    /// [`InsecureSamplingSeed`](super::InsecureSamplingSeed).
    pub fn with_key(self, key: impl Into<SamplingKey>) -> Self {
        self.with_source(Arc::new(key.into()))
    }

    /// Draws from another stream of words.
    pub(crate) fn with_source(self, source: Arc<dyn WordSource>) -> Self {
        Self { source, ..self }
    }
}

impl Sealed for PoissonSampler {}

impl Sampler for PoissonSampler {
    fn dataset_size(&self) -> usize {
        self.dataset_size
    }

    fn sampling_probability(&self) -> f64 {
        self.sampling_probability
    }

    fn expected_batch_size(&self) -> f64 {
        self.expected_batch_size
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::Poisson { sampling_probability: self.sampling_probability }
    }

    fn draw(&self, step: u64) -> Result<Draw, DpError> {
        let mut indices = Vec::new();
        if self.sampling_probability == 1.0 {
            indices.extend(0..self.dataset_size);
        } else {
            let coin = Coin::new(self.sampling_probability);
            let mut words = vec![0; self.dataset_size.min(4096)];
            for first in (0..self.dataset_size).step_by(4096) {
                let words = &mut words[..(self.dataset_size - first).min(4096)];
                self.source.words(step, first as u64, words);
                for (offset, &word) in words.iter().enumerate() {
                    if coin.includes(word, &*self.source, step, (first + offset) as u64) {
                        indices.push(first + offset);
                    }
                }
            }
        }
        Draw::new(step, indices, self.dataset_size, self.mechanism(), self.origin())
    }

    fn origin(&self) -> u64 {
        self.source.origin()
    }

    fn is_insecure(&self) -> bool {
        self.source.is_insecure()
    }
}

/// A coin that shows heads with a probability below 1 that is an `f64`, exactly.
struct Coin {
    /// The binary digits of the probability, 64 at a time.
    digits: Vec<u64>,
}

impl Coin {
    fn new(mut probability: f64) -> Self {
        const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
        let mut digits = Vec::new();
        // Every operation here is exact: a power of two, a floor, and a difference that only drops
        // leading bits.
        while probability > 0.0 {
            probability *= TWO_TO_64;
            digits.push(probability as u64);
            probability -= probability.floor();
        }
        Self { digits }
    }

    /// Compares the uniform number whose first 64 digits are `word` with the probability. The further
    /// digits, needed once in 2^64 cases, stand behind the words of all units.
    fn includes(&self, word: u64, source: &dyn WordSource, step: u64, unit: u64) -> bool {
        let mut word = word;
        for (level, &digits) in self.digits.iter().enumerate() {
            if level > 0 {
                let mut next = [0];
                source.words(step, ((level as u64) << 56) + unit, &mut next);
                word = next[0];
            }
            if word != digits {
                return word < digits;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSamplingSeed;
    use crate::sampling::statistics::{assert_chi_squared, assert_standard_normal, chi_squared};

    fn seeded(dataset_size: usize, q: f64, seed: u64) -> PoissonSampler {
        PoissonSampler::new(dataset_size, q).unwrap().with_key(InsecureSamplingSeed(seed))
    }

    fn indices(sampler: &impl Sampler, step: u64) -> Vec<usize> {
        sampler.draw(step).unwrap().private_indices().to_vec()
    }

    /// Answers every position with the word planted for it.
    #[derive(Debug)]
    struct Planted(fn(u64) -> u64);

    impl WordSource for Planted {
        fn words(&self, _step: u64, start: u64, out: &mut [u64]) {
            for (word, position) in out.iter_mut().zip(start..) {
                *word = (self.0)(position);
            }
        }

        fn is_insecure(&self) -> bool {
            true
        }
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
                let mut centred = vec![-q; units];
                indices(&sampler, step).into_iter().for_each(|i| centred[i] += 1.0);
                centred
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
        // Sizes outside of 2..=20 share the two outer cells, so that every cell expects 10 or more.
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
    fn a_unit_is_drawn_if_and_only_if_its_own_word_is_below_the_probability() {
        let (units, q, step) = (10_001, 0.25, 77);
        let mut words = vec![0; units];
        SamplingKey::from(InsecureSamplingSeed(9)).words(step, 0, &mut words);
        let expected: Vec<usize> = (0..units).filter(|&i| words[i] < 1 << 62).collect();
        assert_eq!(indices(&seeded(units, q, 9), step), expected);
    }

    #[test]
    fn two_samplers_from_entropy_draw_differently_and_are_secure() {
        let (a, b) =
            (PoissonSampler::new(1000, 0.5).unwrap(), PoissonSampler::new(1000, 0.5).unwrap());
        assert_ne!(a.draw(0).unwrap(), b.draw(0).unwrap());
        assert!(!a.is_insecure() && seeded(1, 0.5, 0).is_insecure());
    }

    #[test]
    fn draws_of_a_tiny_probability_are_empty_and_of_probability_one_complete() {
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
    fn the_comparison_has_no_rounding_at_its_edge() {
        let sampler =
            |q, words| PoissonSampler::new(1, q).unwrap().with_source(Arc::new(Planted(words)));
        // q = 1/2: exactly the words below 2^63.
        assert_eq!(indices(&sampler(0.5, |_| (1 << 63) - 1), 0), [0]);
        assert!(indices(&sampler(0.5, |_| 1 << 63), 0).is_empty());
        // q = 2^-65: the first word must be 0 and the second below 2^63.
        let q = 2.0_f64.powi(-65);
        assert!(indices(&sampler(q, |_| 1), 0).is_empty());
        assert_eq!(indices(&sampler(q, |p| if p == 0 { 0 } else { (1 << 63) - 1 }), 0), [0]);
        assert!(indices(&sampler(q, |p| if p == 0 { 0 } else { 1 << 63 }), 0).is_empty());
    }

    #[test]
    fn the_digits_of_a_probability_add_up_to_it() {
        for q in [0.1, 1.0 / 3.0, 0.999_999_999, 1e-5, 1e-18, 1e-30, 1e-300, f64::from_bits(1)] {
            let digits = Coin::new(q).digits;
            let mut sum = 0.0_f64;
            for (level, &digit) in digits.iter().enumerate() {
                // In two factors, since 2^-1088 alone is not a number.
                let half = 2.0_f64.powi(-32 * (level as i32 + 1));
                sum += digit as f64 * half * half;
            }
            assert_eq!(sum, q, "{digits:?}");
        }
    }

    #[test]
    fn the_constants_are_those_that_were_given() {
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
