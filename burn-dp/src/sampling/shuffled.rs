//! Shuffled epochs, as in ordinary training.

use std::sync::Arc;

use super::sampler::{check_batch_size, check_dataset_size, sealed::Sealed};
use super::{Draw, Sampler, SamplingMechanism};
use crate::DpError;
use crate::random::sampling::{SamplingKey, WordSource, WordStream};

const REASON: &str = "a shuffled epoch shows every unit exactly once, so its batches depend on each \
                      other and neither the Poisson nor the fixed-size analysis holds; use \
                      PoissonSampler for a smaller epsilon";

/// Cuts one permutation of the data set an epoch into consecutive batches.
///
/// Here for comparison with ordinary training. The last batch of an epoch has what is left over; nothing
/// is dropped, and updates are divided by the same constant as everywhere.
///
/// # Privacy
///
/// Every step is accounted as if every unit had been in it: no amplification. Relation: replace one
/// unit, with a sensitivity of twice the clipping norm. Adding a unit would move others into other
/// batches, so add or remove one unit is not covered.
///
/// # References
///
/// How Private are DP-SGD Implementations?, Chua et al. 2024: how far shuffled batches can be from
/// Poisson sampling.
#[derive(Clone, Debug)]
pub struct ShuffledSampler {
    dataset_size: usize,
    batch_size: usize,
    source: Arc<dyn WordSource>,
}

impl ShuffledSampler {
    /// A sampler with a new key from the operating system. Logs why it gives no amplification.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] unless `1 <= batch_size <= dataset_size`; [`DpError::Entropy`] when
    /// there is no entropy.
    pub fn new(dataset_size: usize, batch_size: usize) -> Result<Self, DpError> {
        check_dataset_size(dataset_size)?;
        check_batch_size(batch_size, dataset_size)?;
        let source = Arc::new(SamplingKey::from_entropy()?);
        let sampler = Self { dataset_size, batch_size, source };
        log::warn!("{}", sampler.mechanism());
        Ok(sampler)
    }

    /// Draws from this key instead: the saved key of a run that is resumed, or an
    /// [`InsecureSamplingSeed`](super::InsecureSamplingSeed).
    pub fn with_key(self, key: impl Into<SamplingKey>) -> Self {
        Self { source: Arc::new(key.into()), ..self }
    }

    /// Number of steps after which every unit was in one batch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.dataset_size.div_ceil(self.batch_size) as u64
    }
}

impl Sealed for ShuffledSampler {}

impl Sampler for ShuffledSampler {
    fn dataset_size(&self) -> usize {
        self.dataset_size
    }

    fn sampling_probability(&self) -> f64 {
        1.0 / self.steps_per_epoch() as f64
    }

    fn expected_batch_size(&self) -> f64 {
        self.batch_size as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        SamplingMechanism::NoAmplification { reason: REASON }
    }

    fn draw(&self, step: u64) -> Result<Draw, DpError> {
        let (epoch, part) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let permutation = WordStream::new(&*self.source, epoch).permutation(self.dataset_size);
        let first = part as usize * self.batch_size;
        let end = (first + self.batch_size).min(self.dataset_size);
        let mut indices = permutation[first..end].to_vec();
        indices.sort_unstable();
        Draw::new(step, indices, self.dataset_size, self.mechanism(), self.origin())
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

    fn seeded(dataset_size: usize, batch_size: usize) -> ShuffledSampler {
        ShuffledSampler::new(dataset_size, batch_size).unwrap().with_key(InsecureSamplingSeed(7))
    }

    #[test]
    fn an_epoch_shows_every_unit_exactly_once_and_the_next_in_another_order() {
        let sampler = seeded(103, 10);
        assert_eq!(sampler.steps_per_epoch(), 11);
        let epoch = |number: u64| -> Vec<Vec<usize>> {
            (11 * number..11 * (number + 1))
                .map(|step| sampler.draw(step).unwrap().private_indices().to_vec())
                .collect()
        };
        for number in 0..3 {
            let mut all = epoch(number).concat();
            all.sort_unstable();
            assert_eq!(all, (0..103).collect::<Vec<_>>());
        }
        assert_ne!(epoch(0), epoch(1));
        assert_eq!(epoch(0).last().unwrap().len(), 3);
    }

    #[test]
    fn the_first_batch_is_uniform_over_the_units_with_error_rate_1e_6() {
        let sampler = seeded(20, 1);
        let epochs = 40_000;
        let mut counts = vec![0.0; 20];
        for epoch in 0..epochs {
            counts[sampler.draw(20 * epoch).unwrap().private_indices()[0]] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[epochs as f64 / 20.0; 20]), 19);
    }

    #[test]
    fn it_gives_no_amplification_and_says_why() {
        let text = seeded(10, 2).mechanism().to_string();
        assert!(text.starts_with("no amplification") && text.contains("PoissonSampler"), "{text}");
    }
}
