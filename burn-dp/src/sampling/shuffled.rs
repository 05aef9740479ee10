//! Shuffled epochs, as in ordinary training.

use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::population::Population;
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Domain, Key, Stream, permutation};

const REASON: &str = "each unit is in exactly one batch of a shuffled epoch, so the batches depend \
                      on each other and neither the Poisson nor the fixed-size analysis holds; use \
                      PoissonSampler for a smaller epsilon";
const REASON_ONE_ORDER: &str = "each unit is in exactly one batch of an epoch, in the same order \
                                in every epoch, so neither the Poisson nor the fixed-size analysis \
                                holds; use PoissonSampler for a smaller epsilon";

/// Divides one permutation of the data set for each epoch into consecutive batches.
///
/// For comparison with ordinary training. The last batch of an epoch holds the remaining units;
/// nothing is dropped, and updates are divided by the same constant in every step.
///
/// A unit takes part exactly once in each epoch. With
/// [`with_one_order`](Self::with_one_order) all epochs have one permutation, and the steps of a
/// unit are exactly an epoch apart.
///
/// # Privacy
///
/// No amplification: a [`PrivacyPlan`](crate::optim::PrivacyPlan) accounts for one release of a
/// unit in each epoch, as if its step were public. With a noise schedule, and in the event of a
/// single step, every step is accounted for as if it contained every unit. Relation: replace one
/// unit, with a sensitivity of twice the clipping threshold. Adding a unit would move others into
/// other batches, so the relation add-or-remove one unit is not covered.
///
/// # References
///
/// L. Chua et al., "How Private are DP-SGD Implementations?", 2024: the difference between shuffled
/// batches and Poisson sampling.
#[derive(Clone, Debug)]
pub struct ShuffledSampler {
    population: Population,
    batch_size: usize,
    one_order: bool,
}

impl ShuffledSampler {
    /// Returns a sampler with a new key from the operating system. Logs why it provides no
    /// amplification.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= batch_size <= dataset_size`, and
    /// [`DpError::Entropy`] if the operating system provides no entropy.
    pub fn new(dataset_size: usize, batch_size: usize) -> Result<Self, DpError> {
        let population = Population::with_batch_size(dataset_size, batch_size)?;
        let sampler = Self { population, batch_size, one_order: false };
        log::warn!("{}", sampler.mechanism());
        Ok(sampler)
    }

    /// Replaces the key with the stored key of a resumed run, or with an
    /// [`InsecureSeed`](crate::random::InsecureSeed).
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        Self { population: self.population.with_key(key.into()), ..self }
    }

    /// Uses one permutation for all epochs, so that the steps of a unit are exactly an epoch apart.
    pub fn with_one_order(self) -> Self {
        Self { one_order: true, ..self }
    }

    /// Returns the number of steps after which every unit has been in one batch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.population.size().div_ceil(self.batch_size) as u64
    }
}

impl Sealed for ShuffledSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        let (epoch, part) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let (size, key) = (self.population.size(), self.population.key());
        let order = match self.one_order {
            true => Stream::new(key, Domain::Assignment, 0, 0),
            false => Stream::new(key, Domain::Sampling, epoch, 0),
        };
        let mut words = order.into_words();
        let permutation = permutation(&mut words, size);
        let first = part as usize * self.batch_size;
        let mut units = permutation[first..(first + self.batch_size).min(size)].to_vec();
        units.sort_unstable();
        units
    }
}

impl Sampler for ShuffledSampler {
    fn sampling_probability(&self) -> f64 {
        1.0 / self.steps_per_epoch() as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        let reason = if self.one_order { REASON_ONE_ORDER } else { REASON };
        SamplingMechanism::NoAmplification { reason }
    }

    fn participation(&self) -> ParticipationPattern {
        let steps = self.steps_per_epoch();
        match self.one_order {
            true => ParticipationPattern::Periodic { period: steps },
            false => ParticipationPattern::OncePerEpoch { steps },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::random::statistics::{assert_chi_squared, chi_squared};

    fn seeded(dataset_size: usize, batch_size: usize) -> ShuffledSampler {
        ShuffledSampler::new(dataset_size, batch_size).unwrap().with_key(InsecureSeed(7))
    }

    #[test]
    fn an_epoch_has_every_unit_exactly_once_in_an_order_of_its_own() {
        let sampler = seeded(103, 10);
        assert_eq!((sampler.steps_per_epoch(), sampler.sampling_probability()), (11, 1.0 / 11.0));
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
    fn one_order_repeats_the_batches_of_the_first_epoch() {
        let sampler = seeded(103, 10).with_one_order();
        let units = |step| sampler.draw(step).unwrap().private_indices().to_vec();
        for step in 0..11 {
            assert_eq!(units(step), units(step + 11));
            assert_eq!(units(step), units(step + 110));
        }
        assert_ne!(units(0), seeded(103, 10).draw(0).unwrap().private_indices());
        assert_ne!(sampler.mechanism(), seeded(103, 10).mechanism());
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
    fn shuffling_gives_no_amplification_and_names_the_reason() {
        let text = seeded(10, 2).mechanism().to_string();
        assert!(text.starts_with("no amplification") && text.contains("PoissonSampler"), "{text}");
    }
}
