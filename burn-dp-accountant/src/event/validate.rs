//! The domains of the parameters of events.

use super::DpEvent;
use crate::domain::{check_count, check_epsilon, check_positive, check_probability};
use crate::error::AccountantError;

impl DpEvent {
    /// Checks every parameter, at every depth.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] with the name of the first parameter that is
    /// outside its domain.
    pub fn validate(&self) -> Result<(), AccountantError> {
        match self {
            Self::Gaussian { noise_multiplier } | Self::Laplace { noise_multiplier } => {
                check_positive("noise_multiplier", *noise_multiplier)
            }
            Self::JointGaussian { noise_multipliers } => {
                if noise_multipliers.is_empty() {
                    return Err(AccountantError::invalid(
                        "noise_multipliers",
                        "must not be empty: a joint release has at least one part",
                    ));
                }
                noise_multipliers.iter().try_for_each(|&z| check_positive("noise_multipliers", z))
            }
            Self::CorrelatedGaussian { noise_multiplier, strategy, participation, first_step } => {
                check_positive("noise_multiplier", *noise_multiplier)?;
                participation.validate_for(strategy)?;
                strategy.check_steps(first_step.saturating_add(1))
            }
            Self::PoissonSampled { sampling_probability, event } => {
                check_probability("sampling_probability", *sampling_probability)?;
                event.validate_part()
            }
            Self::TruncatedPoissonSampled {
                sampling_probability,
                dataset_size,
                max_batch_size,
                event,
            } => {
                check_probability("sampling_probability", *sampling_probability)?;
                check_count("dataset_size", *dataset_size)?;
                check_count("max_batch_size", *max_batch_size)?;
                event.validate_part()
            }
            Self::TruncatedPoissonExamples {
                sampling_probability,
                dataset_size,
                max_batch_size,
                examples,
                noise_multiplier,
            } => {
                check_count("dataset_size", *dataset_size)?;
                check_count("max_batch_size", *max_batch_size)?;
                let (q, sigma) = (*sampling_probability, *noise_multiplier);
                Self::poisson_sampled_examples(q, sigma, *examples).map(drop)
            }
            Self::SampledWithoutReplacement { dataset_size, sample_size, event } => {
                if *dataset_size == 0 || sample_size > dataset_size {
                    return Err(AccountantError::invalid(
                        "sample_size",
                        format!(
                            "must be at most dataset_size = {dataset_size} (which must be at least \
                             1), got {sample_size}"
                        ),
                    ));
                }
                event.validate_part()
            }
            Self::SampledWithReplacement { dataset_size, sample_size, event } => {
                check_count("dataset_size", *dataset_size)?;
                if *sample_size / *dataset_size > 10_000 {
                    return Err(AccountantError::invalid(
                        "sample_size",
                        format!(
                            "must be at most 10,000 times the data set size, {dataset_size}, got \
                             {sample_size}"
                        ),
                    ));
                }
                event.validate_part()
            }
            Self::RandomAllocation { steps, participations, epochs, event } => {
                check_count("steps", *steps)?;
                check_count("epochs", *epochs)?;
                if !(1..=*steps).contains(participations) {
                    return Err(AccountantError::invalid(
                        "participations",
                        format!(
                            "must be at least 1 and at most steps = {steps}, got {participations}"
                        ),
                    ));
                }
                event.validate_part()
            }
            Self::Composed { events } => events.iter().try_for_each(Self::validate_part),
            Self::SelfComposed { event, .. } => event.validate_part(),
            Self::ZeroConcentrated { rho } => {
                if *rho >= 0.0 && rho.is_finite() {
                    Ok(())
                } else {
                    Err(AccountantError::invalid(
                        "rho",
                        format!("must be finite and not negative, got {rho}"),
                    ))
                }
            }
            Self::EpsilonDelta { epsilon, delta } => {
                check_epsilon(*epsilon)?;
                check_probability("delta", *delta)
            }
            Self::RepeatAndSelect { event, runs } => {
                runs.validate()?;
                event.validate_part()
            }
            Self::DiscreteGaussian { sigma, sensitivity } => {
                check_positive("sigma", *sigma)?;
                check_count("sensitivity", *sensitivity)
            }
            Self::Exponential { epsilon } => check_epsilon(*epsilon),
            Self::GaussianMixture(mixture) => mixture.validate(),
            Self::Patterned(patterned) => patterned.validate(),
            Self::NonPrivate | Self::Unsupported { .. } => Ok(()),
        }
    }
    /// Checks an event inside another event. The steps of a run with correlated noise are not
    /// independent, so no structure of events may repeat, sample, or select one of them.
    fn validate_part(&self) -> Result<(), AccountantError> {
        if let Self::CorrelatedGaussian { .. } = self {
            return Err(AccountantError::invalid(
                "event",
                "must not be a step with correlated noise inside of another event: record the \
                 steps directly, or use the event of the whole run, \
                 DpEvent::without_correlation(steps)",
            ));
        }
        self.validate()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::{GaussianMixture, PatternedGaussian, RandomParticipation, RunCount};

    fn good() -> Box<DpEvent> {
        Box::new(DpEvent::gaussian(1.0))
    }

    fn mixture(z: f64, weights: &[f64], means: &[&[f64]]) -> DpEvent {
        DpEvent::GaussianMixture(GaussianMixture {
            noise_multiplier: z,
            weights: weights.to_vec(),
            means: means.iter().map(|mean| mean.to_vec()).collect(),
        })
    }

    fn patterned(
        z: f64,
        steps: u64,
        column: &[f64],
        participation: RandomParticipation,
    ) -> DpEvent {
        DpEvent::Patterned(PatternedGaussian {
            noise_multiplier: z,
            steps,
            column: column.to_vec(),
            participation,
        })
    }

    #[test]
    fn every_number_outside_of_its_domain_is_refused() {
        let truncated = |q, n, b| DpEvent::TruncatedPoissonSampled {
            sampling_probability: q,
            dataset_size: n,
            max_batch_size: b,
            event: good(),
        };
        let truncated_examples = |q, n, b| DpEvent::TruncatedPoissonExamples {
            sampling_probability: q,
            dataset_size: n,
            max_batch_size: b,
            examples: 2,
            noise_multiplier: 1.0,
        };
        let without = |n, k| DpEvent::SampledWithoutReplacement {
            dataset_size: n,
            sample_size: k,
            event: good(),
        };
        let with = |n, k| DpEvent::SampledWithReplacement {
            dataset_size: n,
            sample_size: k,
            event: good(),
        };
        let allocation = |s, k, e| DpEvent::RandomAllocation {
            steps: s,
            participations: k,
            epochs: e,
            event: good(),
        };
        let select = |mean, shape| DpEvent::RepeatAndSelect {
            event: good(),
            runs: RunCount::TruncatedNegativeBinomial { mean, shape },
        };
        let bins = |cycle| RandomParticipation::BallsInBins { cycle };
        let cyclic =
            |cycle, q| RandomParticipation::CyclicPoisson { cycle, sampling_probability: q };
        let apart = |b, q| RandomParticipation::MinimumSeparation {
            separation: b,
            sampling_probability: q,
            warm_start: false,
        };
        let subset = |k| RandomParticipation::Subset { participations: k };
        let fine = [
            truncated(0.1, 10, 5),
            truncated_examples(0.1, 10, 5),
            without(10, 10),
            with(1, 10_000),
            allocation(4, 4, 1),
            select(1.0, 0.0),
            mixture(1.0, &[0.25, 0.75], &[&[0.0], &[1.0]]),
            patterned(1.0, 8, &[1.0, 0.0], bins(4)),
            patterned(1.0, 8, &[1.0, 0.5], cyclic(2, 0.1)),
            patterned(1.0, 8, &[1.0, 0.5], apart(2, 0.1)),
            patterned(1.0, 8, &[1.0], subset(8)),
            DpEvent::ZeroConcentrated { rho: 0.0 },
            DpEvent::DiscreteGaussian { sigma: 1.0, sensitivity: 1 },
        ];
        for event in fine {
            assert!(event.validate().is_ok(), "{event}: {:?}", event.validate());
        }
        let nan = f64::NAN;
        let refused = [
            truncated(1.5, 10, 5),
            truncated(0.1, 0, 5),
            truncated(0.1, 10, 0),
            truncated_examples(0.1, 0, 5),
            truncated_examples(0.1, 10, 0),
            without(0, 0),
            without(10, 11),
            with(0, 1),
            with(1, 10_001),
            allocation(0, 1, 1),
            allocation(4, 5, 1),
            allocation(4, 1, 0),
            select(0.9, 0.0),
            select(nan, 0.0),
            select(2.0, -1.0),
            select(2.0, f64::INFINITY),
            mixture(0.0, &[1.0], &[&[0.0]]),
            mixture(1.0, &[0.5, 0.6], &[&[0.0], &[1.0]]),
            mixture(1.0, &[0.4, 0.5], &[&[0.0], &[1.0]]),
            mixture(1.0, &[0.0, 1.0], &[&[0.0], &[1.0]]),
            mixture(1.0, &[-1.0, 2.0], &[&[0.0], &[1.0]]),
            mixture(1.0, &[1.0], &[&[0.0], &[1.0]]),
            mixture(1.0, &[1.0], &[&[]]),
            mixture(1.0, &[0.5, 0.5], &[&[0.0], &[1.0, 2.0]]),
            mixture(1.0, &[1.0], &[&[f64::INFINITY]]),
            patterned(0.0, 8, &[1.0], bins(4)),
            patterned(1.0, 0, &[1.0], bins(4)),
            patterned(1.0, 8, &[], bins(4)),
            patterned(1.0, 8, &[0.0, 1.0], bins(4)),
            patterned(1.0, 8, &[1.0, -0.5], bins(4)),
            patterned(1.0, 8, &[1.0, f64::INFINITY], bins(4)),
            patterned(1.0, 8, &[1.0], bins(0)),
            patterned(1.0, 8, &[1.0], cyclic(2, 1.5)),
            patterned(1.0, 8, &[1.0, 0.5], cyclic(1, 0.1)),
            patterned(1.0, 8, &[1.0], apart(2, -0.1)),
            patterned(1.0, 8, &[1.0, 0.5], apart(1, 0.1)),
            patterned(1.0, 8, &[1.0, 0.5], subset(2)),
            patterned(1.0, 8, &[1.0], subset(0)),
            patterned(1.0, 8, &[1.0], subset(9)),
            DpEvent::ZeroConcentrated { rho: -0.1 },
            DpEvent::ZeroConcentrated { rho: f64::INFINITY },
            DpEvent::EpsilonDelta { epsilon: -1.0, delta: 0.1 },
            DpEvent::EpsilonDelta { epsilon: 1.0, delta: 1.5 },
            DpEvent::Exponential { epsilon: -1.0 },
            DpEvent::DiscreteGaussian { sigma: 0.0, sensitivity: 1 },
            DpEvent::DiscreteGaussian { sigma: 1.0, sensitivity: 0 },
        ];
        for event in refused {
            assert!(event.validate().is_err(), "{event:?}");
        }
    }
}
