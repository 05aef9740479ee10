use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::random::Key;
use crate::sampling::{
    BallsInBinsSampler, CyclicPoissonSampler, FixedSizeSampler, MinSeparationSampler,
    PoissonSampler, Sampler, ShuffledSampler, TruncatedPoissonSampler, WithReplacementSampler,
};

/// How the units of a step are drawn.
///
/// Where a unit cannot take part in every step, the run as a whole is accounted for: how often and
/// how soon a unit takes part again. Correlated noise needs such a scheme
/// ([`with_correlated_noise`](super::PrivacyPlanConfig::with_correlated_noise)). A noise schedule
/// needs events of single steps: shuffled epochs then count every step as if it contained every
/// unit, and cyclic Poisson, both kinds of bins, and the minimum separation do not accept a
/// schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum SamplingScheme {
    /// Every unit independently with probability q. Neighbors differ by one unit added or removed.
    #[default]
    Poisson,
    /// Like Poisson, with a uniform subset of the maximum size where a draw is larger. The sum is
    /// divided by the expected batch size before truncation. Neighbors differ by one unit added or
    /// removed.
    TruncatedPoisson {
        /// Maximum number of units in a step.
        max_batch_size: usize,
    },
    /// A uniform subset of exactly the expected batch size. Neighbors differ by one unit replaced.
    FixedSize,
    /// The expected batch size in independent draws; a unit that is drawn several times contributes
    /// several times. Neighbors differ by one unit replaced.
    WithReplacement,
    /// Consecutive parts of a permutation, a new one in each epoch. Provides no amplification: ε is
    /// computed as if it were known which step of each epoch used a unit. Neighbors differ by one
    /// unit replaced.
    Shuffled,
    /// Like shuffled, with one permutation for all epochs: the steps of a unit are exactly an epoch
    /// apart.
    ShuffledOnce,
    /// Every unit of one of `parts` random parts, with the probability that results in the expected
    /// batch size; one part after another. The draws from a part amplify privacy; the division into
    /// parts does not. Neighbors differ by one unit added or removed.
    CyclicPoisson {
        /// Number of parts.
        parts: usize,
    },
    /// Every unit in one random step of each epoch of `bins` steps, the same in every epoch. The
    /// expected batch size is the size of the data set over `bins`.
    BallsInBins {
        /// Number of steps in an epoch.
        bins: usize,
    },
    /// Like balls in bins, with a new random step in each epoch.
    RandomAllocation {
        /// Number of steps in an epoch.
        bins: usize,
    },
    /// Like Poisson, except that a unit takes no part in the `separation - 1` steps after each of
    /// its steps. Every step has the expected batch size.
    MinSeparation {
        /// The smallest difference between two steps of a unit.
        separation: usize,
    },
}

impl SamplingScheme {
    /// Returns the sampler of the scheme, with a key derived from the key of the run.
    pub(crate) fn sampler(
        self,
        dataset_size: usize,
        expected_batch_size: f64,
        key: &Key,
    ) -> Result<Box<dyn Sampler>, DpError> {
        let (size, batch, key) = (dataset_size, expected_batch_size, key.clone());
        let whole = batch as usize;
        Ok(match self {
            Self::Poisson => {
                Box::new(PoissonSampler::with_expected_batch_size(size, batch)?.with_key(key))
            }
            Self::TruncatedPoisson { max_batch_size } => {
                Box::new(TruncatedPoissonSampler::new(size, batch, max_batch_size)?.with_key(key))
            }
            Self::FixedSize => Box::new(FixedSizeSampler::new(size, whole)?.with_key(key)),
            Self::WithReplacement => {
                Box::new(WithReplacementSampler::new(size, whole)?.with_key(key))
            }
            Self::Shuffled => Box::new(ShuffledSampler::new(size, whole)?.with_key(key)),
            Self::ShuffledOnce => {
                Box::new(ShuffledSampler::new(size, whole)?.with_one_order().with_key(key))
            }
            Self::CyclicPoisson { parts } => {
                Box::new(CyclicPoissonSampler::new(size, batch, parts)?.with_key(key))
            }
            Self::BallsInBins { bins } => Box::new(of_bins(size, batch, bins)?.with_key(key)),
            Self::RandomAllocation { bins } => {
                Box::new(of_bins(size, batch, bins)?.with_fresh_bins().with_key(key))
            }
            Self::MinSeparation { separation } => {
                Box::new(MinSeparationSampler::new(size, batch, separation)?.with_key(key))
            }
        })
    }

    /// Returns whether all draws have exactly the expected batch size.
    pub(super) fn has_fixed_size(self) -> bool {
        matches!(
            self,
            Self::FixedSize | Self::WithReplacement | Self::Shuffled | Self::ShuffledOnce
        )
    }
}

/// Returns the sampler of bins whose mean size is the expected batch size.
fn of_bins(size: usize, batch: f64, bins: usize) -> Result<BallsInBinsSampler, DpError> {
    let sampler = BallsInBinsSampler::new(size, bins)?;
    if sampler.expected_batch_size() == batch {
        return Ok(sampler);
    }
    Err(DpError::invalid(
        "expected_batch_size",
        format!(
            "must be dataset_size / bins = {}, the mean size of {bins} bins, got {batch}",
            sampler.expected_batch_size()
        ),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::GaussianDp;

    use super::*;
    use crate::optim::PrivacyPlanConfig;
    use crate::schedule::Schedule;

    #[test]
    fn a_run_is_accounted_for_by_the_participation_of_a_unit() {
        let plan = |scheme| {
            let plan = PrivacyPlanConfig::new(1000, 10.0).with_steps(300);
            plan.with_noise_multiplier(10.0).with_sampling(scheme)
        };
        let epsilon = |scheme| plan(scheme).init().unwrap().epsilon_at_end(1e-5).unwrap();
        let gaussian = |times: f64, relation: f64| {
            let mu = GaussianDp::new(times.sqrt() * relation / 10.0).unwrap();
            mu.epsilon(1e-5).unwrap()
        };
        // Three epochs, with twice the sensitivity under replacement.
        for scheme in [SamplingScheme::Shuffled, SamplingScheme::ShuffledOnce] {
            assert!((epsilon(scheme) / gaussian(3.0, 2.0) - 1.0).abs() < 1e-3);
        }
        for scheme in [
            SamplingScheme::BallsInBins { bins: 100 },
            SamplingScheme::RandomAllocation { bins: 100 },
            SamplingScheme::MinSeparation { separation: 100 },
        ] {
            let found = epsilon(scheme);
            assert!(found <= gaussian(3.0, 1.0) * (1.0 + 1e-3) && found > 0.01, "{found}");
        }
        // 75 Poisson samples with four times the probability.
        let cyclic = epsilon(SamplingScheme::CyclicPoisson { parts: 4 });
        let poisson = PrivacyPlanConfig::new(1000, 40.0).with_steps(75).with_noise_multiplier(10.0);
        let poisson = poisson.init().unwrap().epsilon_at_end(1e-5).unwrap();
        assert!((cyclic / poisson - 1.0).abs() < 1e-3, "{cyclic} {poisson}");
    }

    #[test]
    fn a_noise_schedule_needs_events_of_single_steps() {
        let schedule = Schedule::steps([(3, 2.0)]).unwrap();
        let plan = PrivacyPlanConfig::new(100, 10.0).with_steps(5).with_noise_multiplier(1.0);
        let plan = plan.with_noise_schedule(schedule);
        assert!(plan.clone().with_sampling(SamplingScheme::Shuffled).init().is_ok());
        let bins = SamplingScheme::BallsInBins { bins: 10 };
        let error = plan.with_sampling(bins).init().unwrap_err().to_string();
        assert!(error.contains("balls in bins") && error.contains("schedule"), "{error}");
    }

    #[test]
    fn parameters_of_a_scheme_are_refused_by_name() {
        for (scheme, name) in [
            (SamplingScheme::TruncatedPoisson { max_batch_size: 0 }, "max_batch_size"),
            (SamplingScheme::TruncatedPoisson { max_batch_size: 101 }, "max_batch_size"),
            (SamplingScheme::CyclicPoisson { parts: 11 }, "expected_batch_size"),
            (SamplingScheme::BallsInBins { bins: 9 }, "must be dataset_size / bins = 11.1"),
            (SamplingScheme::MinSeparation { separation: 11 }, "expected_batch_size"),
        ] {
            let plan = PrivacyPlanConfig::new(100, 10.0).with_steps(5).with_noise_multiplier(1.0);
            let error = plan.with_sampling(scheme).init().unwrap_err().to_string();
            assert!(error.contains(name), "{error} does not mention {name}");
        }
        for scheme in [SamplingScheme::WithReplacement, SamplingScheme::ShuffledOnce] {
            let plan = PrivacyPlanConfig::new(100, 2.5).with_steps(5).with_noise_multiplier(1.0);
            let error = plan.with_sampling(scheme).init().unwrap_err().to_string();
            assert!(error.contains("whole number"), "{error}");
        }
    }
}
