//! The domains of the parameters of events.

use super::{DpEvent, RunCount};
use crate::domain::{check_count, check_epsilon, check_positive, check_probability};
use crate::error::AccountantError;
use crate::math::selection::has_mean;

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
                match *runs {
                    RunCount::Poisson { mean } => check_positive("mean", mean)?,
                    RunCount::TruncatedNegativeBinomial { mean, shape } => {
                        if !(mean >= 1.0 && mean.is_finite()) {
                            return Err(AccountantError::invalid(
                                "mean",
                                format!(
                                    "must be at least 1 (a truncated distribution runs at least \
                                     once), got {mean}"
                                ),
                            ));
                        }
                        if !(shape > -1.0 && shape.is_finite()) {
                            return Err(AccountantError::invalid(
                                "shape",
                                format!("must be larger than -1, got {shape}"),
                            ));
                        }
                        if !has_mean(mean, shape) {
                            return Err(AccountantError::invalid(
                                "mean",
                                format!(
                                    "must be smaller for a shape of {shape}, whose largest mean \
                                     that can be computed with is exceeded by {mean}; use a shape \
                                     that is further from -1"
                                ),
                            ));
                        }
                    }
                }
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
