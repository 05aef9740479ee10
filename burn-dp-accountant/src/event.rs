//! What a mechanism released, as data. Accountants analyse it.
//!
//! Rules of compatibility of the serialised form (see
//! [`LEDGER_FORMAT_VERSION`](crate::LEDGER_FORMAT_VERSION)):
//!
//! 1. A variant or a field is never removed and never changes its meaning.
//! 2. A new variant is added only together with a new format version.
//! 3. A reader refuses what it does not know (an unknown variant, field or version); it never skips
//!    an event, because a skipped event is privacy loss that nobody counts.
//! 4. Parameters are those that the mechanism used, never values derived for the accountant.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::AccountantError;

/// One release, or a structure of releases, on private data.
///
/// A noise multiplier is the standard deviation (Laplace: the scale) of the noise over the norm to
/// which one unit's contribution is clipped. The sensitivity under a
/// [`NeighboringRelation`](crate::NeighboringRelation) is applied by the accountant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum DpEvent {
    /// A sum of contributions of norm at most `C`, plus Gaussian noise of standard deviation
    /// `noise_multiplier · C`.
    Gaussian {
        /// Noise standard deviation over clipping norm.
        noise_multiplier: f64,
    },
    /// The same with Laplace noise of scale `noise_multiplier · C` and the 1-norm.
    Laplace {
        /// Noise scale over clipping norm.
        noise_multiplier: f64,
    },
    /// Several Gaussian releases on one and the same draw of units: a clipped gradient and the
    /// counts of adaptive clipping, or the layers of per-layer clipping. Each multiplier refers to
    /// the norm of its own release.
    JointGaussian {
        /// One noise multiplier per release.
        noise_multipliers: Vec<f64>,
    },
    /// Every unit takes part independently with the same probability; then `event` on the sample.
    PoissonSampled {
        /// Probability of each unit.
        sampling_probability: f64,
        /// What is released from the sample.
        event: Box<DpEvent>,
    },
    /// Poisson sampling whose sample is cut, uniformly at random, to at most `max_batch_size` units.
    TruncatedPoissonSampled {
        /// Probability of each unit before the cut.
        sampling_probability: f64,
        /// Number of units in the data set (public).
        dataset_size: u64,
        /// Largest number of units that is ever used.
        max_batch_size: u64,
        /// What is released from the sample.
        event: Box<DpEvent>,
    },
    /// A uniformly random subset of fixed size; then `event` on it.
    SampledWithoutReplacement {
        /// Number of units in the data set (public).
        dataset_size: u64,
        /// Size of the sample.
        sample_size: u64,
        /// What is released from the sample.
        event: Box<DpEvent>,
    },
    /// A fixed number of independent uniform draws; a unit may be drawn, and counts, several times.
    SampledWithReplacement {
        /// Number of units in the data set (public).
        dataset_size: u64,
        /// Number of draws.
        sample_size: u64,
        /// What is released from the sample.
        event: Box<DpEvent>,
    },
    /// All of the events, each with its own randomness.
    Composed {
        /// The events, in any order.
        events: Vec<DpEvent>,
    },
    /// The same event `count` times, each with its own randomness.
    SelfComposed {
        /// The event.
        event: Box<DpEvent>,
        /// How often.
        count: u64,
    },
    /// A mechanism known only to be ρ-zero-concentrated differentially private.
    ZeroConcentrated {
        /// The parameter ρ under the relation of the ledger.
        rho: f64,
    },
    /// A mechanism known only to be (ε, δ)-differentially private under the relation of the ledger.
    EpsilonDelta {
        /// Its ε.
        epsilon: f64,
        /// Its δ.
        delta: f64,
    },
    /// `event` is run a random number of times on the same data and only the best result is
    /// released: hyper-parameter search.
    RepeatAndSelect {
        /// One run.
        event: Box<DpEvent>,
        /// Distribution of the number of runs.
        runs: RunCount,
    },
    /// A release without any protection. ε is infinite.
    NonPrivate,
    /// Something happened that no accountant can analyse. Every accountant refuses it.
    Unsupported {
        /// What happened.
        reason: String,
    },
}

/// Distribution of the number of runs of [`DpEvent::RepeatAndSelect`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RunCount {
    /// Poisson.
    Poisson {
        /// Expected number of runs.
        mean: f64,
    },
    /// Truncated negative binomial; `shape` 1 is the geometric, 0 the logarithmic distribution.
    TruncatedNegativeBinomial {
        /// Expected number of runs.
        mean: f64,
        /// The shape η, larger than -1.
        shape: f64,
    },
}

impl DpEvent {
    /// A Gaussian release.
    pub fn gaussian(noise_multiplier: f64) -> Self {
        Self::Gaussian { noise_multiplier }
    }

    /// `event` on a Poisson sample.
    pub fn poisson_sampled(sampling_probability: f64, event: DpEvent) -> Self {
        Self::PoissonSampled { sampling_probability, event: Box::new(event) }
    }

    /// `event`, `count` times.
    pub fn self_composed(event: DpEvent, count: u64) -> Self {
        Self::SelfComposed { event: Box::new(event), count }
    }

    /// One step of DP-SGD: a Gaussian release on a Poisson sample.
    pub fn dp_sgd_step(sampling_probability: f64, noise_multiplier: f64) -> Self {
        Self::poisson_sampled(sampling_probability, Self::gaussian(noise_multiplier))
    }

    /// Checks every parameter, at every depth.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] naming the first parameter outside of its domain.
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
            Self::PoissonSampled { sampling_probability, event } => {
                check_probability("sampling_probability", *sampling_probability)?;
                event.validate()
            }
            Self::TruncatedPoissonSampled {
                sampling_probability,
                dataset_size,
                max_batch_size,
                event,
            } => {
                check_probability("sampling_probability", *sampling_probability)?;
                if *dataset_size == 0 {
                    return Err(AccountantError::invalid(
                        "dataset_size",
                        "must be at least 1, got 0",
                    ));
                }
                if *max_batch_size == 0 {
                    return Err(AccountantError::invalid(
                        "max_batch_size",
                        "must be at least 1, got 0",
                    ));
                }
                event.validate()
            }
            Self::SampledWithoutReplacement { dataset_size, sample_size, event } => {
                if *dataset_size == 0 || sample_size > dataset_size {
                    return Err(AccountantError::invalid(
                        "sample_size",
                        format!(
                            "must be at most dataset_size = {dataset_size} (which must be at least 1), got {sample_size}"
                        ),
                    ));
                }
                event.validate()
            }
            Self::SampledWithReplacement { dataset_size, event, .. } => {
                if *dataset_size == 0 {
                    return Err(AccountantError::invalid(
                        "dataset_size",
                        "must be at least 1, got 0",
                    ));
                }
                event.validate()
            }
            Self::Composed { events } => events.iter().try_for_each(Self::validate),
            Self::SelfComposed { event, .. } => event.validate(),
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
                crate::budget::check_epsilon(*epsilon)?;
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
                                    "must be at least 1 (a truncated distribution runs at least once), got {mean}"
                                ),
                            ));
                        }
                        if !(shape > -1.0 && shape.is_finite()) {
                            return Err(AccountantError::invalid(
                                "shape",
                                format!("must be larger than -1, got {shape}"),
                            ));
                        }
                    }
                }
                event.validate()
            }
            Self::NonPrivate | Self::Unsupported { .. } => Ok(()),
        }
    }
}

fn check_positive(name: &'static str, value: f64) -> Result<(), AccountantError> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(AccountantError::invalid(name, format!("must be positive and finite, got {value}")))
    }
}

fn check_probability(name: &'static str, value: f64) -> Result<(), AccountantError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(AccountantError::invalid(name, format!("must be between 0 and 1, got {value}")))
    }
}

impl fmt::Display for DpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gaussian { noise_multiplier } => {
                write!(f, "Gaussian(noise_multiplier = {noise_multiplier})")
            }
            Self::Laplace { noise_multiplier } => {
                write!(f, "Laplace(noise_multiplier = {noise_multiplier})")
            }
            Self::JointGaussian { noise_multipliers } => {
                write!(f, "JointGaussian(noise_multipliers = {noise_multipliers:?})")
            }
            Self::PoissonSampled { sampling_probability, event } => {
                write!(f, "PoissonSampled({sampling_probability}, {event})")
            }
            Self::TruncatedPoissonSampled {
                sampling_probability,
                dataset_size,
                max_batch_size,
                event,
            } => write!(
                f,
                "TruncatedPoissonSampled({sampling_probability} of {dataset_size}, at most {max_batch_size}, {event})"
            ),
            Self::SampledWithoutReplacement { dataset_size, sample_size, event } => {
                write!(f, "SampledWithoutReplacement({sample_size} of {dataset_size}, {event})")
            }
            Self::SampledWithReplacement { dataset_size, sample_size, event } => {
                write!(f, "SampledWithReplacement({sample_size} of {dataset_size}, {event})")
            }
            Self::Composed { events } => {
                f.write_str("Composed(")?;
                for (i, event) in events.iter().enumerate() {
                    write!(f, "{}{event}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
            Self::SelfComposed { event, count } => write!(f, "{count} x {event}"),
            Self::ZeroConcentrated { rho } => write!(f, "ZeroConcentrated(rho = {rho})"),
            Self::EpsilonDelta { epsilon, delta } => write!(f, "EpsilonDelta({epsilon}, {delta})"),
            Self::RepeatAndSelect { event, runs } => match runs {
                RunCount::Poisson { mean } => {
                    write!(f, "RepeatAndSelect(Poisson({mean}) runs, {event})")
                }
                RunCount::TruncatedNegativeBinomial { mean, shape } => write!(
                    f,
                    "RepeatAndSelect(negative binomial of mean {mean} and shape {shape}, {event})"
                ),
            },
            Self::NonPrivate => f.write_str("NonPrivate"),
            Self::Unsupported { reason } => write!(f, "Unsupported({reason})"),
        }
    }
}
