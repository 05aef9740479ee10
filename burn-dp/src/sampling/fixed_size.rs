//! Sampling a fixed number of units without replacement.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::sampler::{check_batch_size, check_dataset_size, sealed::Sealed};
use super::{Draw, Sampler, SamplingMechanism};
use crate::DpError;
use crate::random::sampling::{SamplingKey, WordSource, WordStream};

/// Draws exactly m units, every subset of that size with the same probability, anew in each step.
///
/// # Privacy
///
/// Relation: replace one unit. Two neighbouring sums differ by one unit taken out *and* one put in, so
/// the sensitivity is twice the clipping norm.
///
/// # References
///
/// Subsampled Rényi Differential Privacy and Analytical Moments Accountant, Wang, Balle and
/// Kasiviswanathan 2019; Programming Pearls: a sample of brilliance, Bentley and Floyd 1987 (the
/// algorithm).
#[derive(Clone, Debug)]
pub struct FixedSizeSampler {
    dataset_size: usize,
    batch_size: usize,
    source: Arc<dyn WordSource>,
}

impl FixedSizeSampler {
    /// A sampler with a new key from the operating system.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] unless `1 <= batch_size <= dataset_size`; [`DpError::Entropy`] when
    /// there is no entropy.
    pub fn new(dataset_size: usize, batch_size: usize) -> Result<Self, DpError> {
        check_dataset_size(dataset_size)?;
        check_batch_size(batch_size, dataset_size)?;
        Ok(Self { dataset_size, batch_size, source: Arc::new(SamplingKey::from_entropy()?) })
    }

    /// Draws from this key instead: the saved key of a run that is resumed, or an
    /// [`InsecureSamplingSeed`](super::InsecureSamplingSeed).
    pub fn with_key(self, key: impl Into<SamplingKey>) -> Self {
        Self { source: Arc::new(key.into()), ..self }
    }
}

impl Sealed for FixedSizeSampler {}

impl Sampler for FixedSizeSampler {
    fn dataset_size(&self) -> usize {
        self.dataset_size
    }

    fn sampling_probability(&self) -> f64 {
        self.batch_size as f64 / self.dataset_size as f64
    }

    fn expected_batch_size(&self) -> f64 {
        self.batch_size as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::WithoutReplacement {
            dataset_size: self.dataset_size,
            batch_size: self.batch_size,
        }
    }

    fn draw(&self, step: u64) -> Result<Draw, DpError> {
        let mut words = WordStream::new(&*self.source, step);
        let mut chosen = BTreeSet::new();
        for last in self.dataset_size - self.batch_size..self.dataset_size {
            let candidate = words.below(last as u64 + 1) as usize;
            if !chosen.insert(candidate) {
                chosen.insert(last);
            }
        }
        Draw::new(
            step,
            chosen.into_iter().collect(),
            self.dataset_size,
            self.mechanism(),
            self.origin(),
        )
    }

    fn origin(&self) -> u64 {
        self.source.origin()
    }

    fn is_insecure(&self) -> bool {
        self.source.is_insecure()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSamplingSeed;
    use crate::sampling::statistics::{assert_chi_squared, chi_squared};
    use std::collections::BTreeMap;

    fn seeded(dataset_size: usize, batch_size: usize) -> FixedSizeSampler {
        FixedSizeSampler::new(dataset_size, batch_size).unwrap().with_key(InsecureSamplingSeed(6))
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
        assert!(!FixedSizeSampler::new(2, 1).unwrap().is_insecure() && sampler.is_insecure());
    }

    #[test]
    fn it_describes_itself_as_sampling_without_replacement() {
        let sampler = seeded(1000, 100);
        let mechanism =
            SamplingMechanism::WithoutReplacement { dataset_size: 1000, batch_size: 100 };
        assert_eq!(sampler.mechanism(), mechanism);
        assert_eq!((sampler.sampling_probability(), sampler.expected_batch_size()), (0.1, 100.0));
    }

    #[test]
    fn a_batch_size_outside_of_the_data_set_is_refused_by_name() {
        for size in [0, 11] {
            let error = FixedSizeSampler::new(10, size).unwrap_err().to_string();
            assert!(
                error.contains("batch_size") && error.contains(&format!("got {size}")),
                "{error}"
            );
        }
        assert!(FixedSizeSampler::new(0, 1).unwrap_err().to_string().contains("dataset_size"));
    }
}
