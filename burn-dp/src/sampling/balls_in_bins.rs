//! Epochs in which each unit is in one random step.

use super::cyclic_poisson::choices;
use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::population::{Population, check_number, check_size};
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;
use crate::random::{Domain, Key};

/// Puts each unit into one of b bins, uniformly and independently, and uses bin t mod b in step t.
///
/// Every unit takes part exactly once in each epoch of b steps, as in shuffled training, and the
/// bins are independent of each other's content, which shuffled batches are not.
///
/// By default the bins are the same in every epoch (balls in bins): the steps of a unit are exactly
/// b steps apart, which correlated noise requires. With [`with_fresh_bins`](Self::with_fresh_bins),
/// each epoch has its own bins (random allocation): a unit can be in the last step of one epoch and
/// in the first step of the next.
///
/// # Privacy
///
/// Relation: add or remove one unit. The bin of a unit is an independent, exactly uniform choice by
/// the key, which depends neither on the data nor on the other units. The sizes of the bins vary
/// randomly; updates are divided by N/b, a public constant.
///
/// # References
///
/// - L. Chua et al., "Balls-and-Bins Sampling for DP-SGD", 2025.
/// - C. A. Choquette-Choo et al., "Near Exact Privacy Amplification for Matrix Mechanisms", 2025.
/// - V. Feldman, M. Shenfeld, "Privacy Amplification by Random Allocation", 2025.
#[derive(Clone, Debug)]
pub struct BallsInBinsSampler {
    population: Population,
    bins: usize,
    fresh: bool,
}

impl BallsInBinsSampler {
    /// Returns a sampler with a new key from the operating system.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= bins <= dataset_size`, and
    /// [`DpError::Entropy`] if the operating system provides no entropy.
    pub fn new(dataset_size: usize, bins: usize) -> Result<Self, DpError> {
        check_size(dataset_size)?;
        check_number("bins", bins, dataset_size)?;
        let population = Population::new(dataset_size, dataset_size as f64 / bins as f64)?;
        Ok(Self { population, bins, fresh: false })
    }

    /// Chooses the bins again in each epoch.
    pub fn with_fresh_bins(self) -> Self {
        Self { fresh: true, ..self }
    }

    /// Replaces the key with the stored key of a resumed run, or with an
    /// [`InsecureSeed`](crate::random::InsecureSeed).
    pub fn with_key(self, key: impl Into<Key>) -> Self {
        Self { population: self.population.with_key(key.into()), ..self }
    }
}

impl Sealed for BallsInBinsSampler {
    fn population(&self) -> &Population {
        &self.population
    }

    fn units(&self, step: u64) -> Vec<usize> {
        let (epoch, bin) = (step / self.bins as u64, (step % self.bins as u64) as usize);
        let (domain, epoch) =
            if self.fresh { (Domain::Sampling, epoch) } else { (Domain::Assignment, 0) };
        let chosen = choices(&self.population, domain, epoch, self.bins);
        (0..chosen.len()).filter(|&unit| chosen[unit] == bin).collect()
    }
}

impl Sampler for BallsInBinsSampler {
    fn sampling_probability(&self) -> f64 {
        1.0 / self.bins as f64
    }

    fn mechanism(&self) -> SamplingMechanism {
        match self.fresh {
            true => SamplingMechanism::RandomAllocation { bins: self.bins },
            false => SamplingMechanism::BallsInBins { bins: self.bins },
        }
    }

    fn participation(&self) -> ParticipationPattern {
        let steps = self.bins as u64;
        match self.fresh {
            true => ParticipationPattern::OncePerEpoch { steps },
            false => ParticipationPattern::Periodic { period: steps },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::random::statistics::{assert_chi_squared, chi_squared};

    fn seeded(size: usize, bins: usize) -> BallsInBinsSampler {
        BallsInBinsSampler::new(size, bins).unwrap().with_key(InsecureSeed(12))
    }

    /// Returns the bin of each unit in an epoch.
    fn bins(sampler: &BallsInBinsSampler, epoch: u64) -> Vec<usize> {
        let steps = sampler.bins as u64;
        let mut bins = vec![usize::MAX; sampler.dataset_size()];
        for step in 0..steps {
            for &unit in sampler.draw(epoch * steps + step).unwrap().private_indices() {
                assert_eq!(bins[unit], usize::MAX, "unit {unit} is in two bins");
                bins[unit] = step as usize;
            }
        }
        assert!(bins.iter().all(|&bin| bin < sampler.bins), "a unit is in no bin");
        bins
    }

    #[test]
    fn bins_are_uniform_and_independent_between_units_with_error_rate_1e_6() {
        let mut counts = [0.0; 16];
        bins(&seeded(40_000, 4), 0).chunks(2).for_each(|pair| counts[pair[0] * 4 + pair[1]] += 1.0);
        assert_chi_squared(chi_squared(&counts, &[20_000.0 / 16.0; 16]), 15);
    }

    #[test]
    fn fresh_bins_are_independent_between_epochs_with_error_rate_1e_6() {
        let sampler = seeded(20_000, 4).with_fresh_bins();
        let mut counts = [0.0; 16];
        for (now, next) in bins(&sampler, 0).iter().zip(bins(&sampler, 1)) {
            counts[now * 4 + next] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[20_000.0 / 16.0; 16]), 15);
    }

    #[test]
    fn bins_are_the_same_in_every_epoch_unless_they_are_fresh() {
        let sampler = seeded(500, 7);
        assert_eq!(bins(&sampler, 0), bins(&sampler, 1));
        assert_eq!(bins(&sampler, 0), bins(&sampler, 9));
        let fresh = seeded(500, 7).with_fresh_bins();
        assert_ne!(bins(&fresh, 0), bins(&fresh, 1));
        assert_ne!(sampler.mechanism(), fresh.mechanism());
    }

    #[test]
    fn the_divisor_is_the_mean_size_of_a_bin() {
        let sampler = seeded(100, 8);
        assert_eq!((sampler.expected_batch_size(), sampler.sampling_probability()), (12.5, 0.125));
        for bins in [0, 101] {
            let error = BallsInBinsSampler::new(100, bins).unwrap_err().to_string();
            assert!(error.contains("bins") && error.contains("100"), "{error}");
        }
    }
}
