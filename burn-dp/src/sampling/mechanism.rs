//! The description of a draw for the accountant.

use std::fmt;

use burn_dp_accountant::{DpEvent, NeighboringRelation, Rounded};

use crate::DpError;

/// How the units of a step are drawn, in the terms of the accountant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SamplingMechanism {
    /// Each unit is in the batch independently, with this probability.
    Poisson {
        /// The sampling probability q.
        sampling_probability: f64,
    },
    /// A Poisson sample, reduced to a uniform subset of the maximum size if it is larger.
    TruncatedPoisson {
        /// The sampling probability q, before truncation.
        sampling_probability: f64,
        /// Number of units N.
        dataset_size: usize,
        /// Maximum number of units in a draw.
        max_batch_size: usize,
    },
    /// The batch is a uniform subset of fixed size.
    WithoutReplacement {
        /// Number of units N.
        dataset_size: usize,
        /// Size of the subset m.
        batch_size: usize,
    },
    /// The batch has a fixed number of independent uniform draws. A unit that is drawn j times is
    /// clipped once and contributes j times.
    WithReplacement {
        /// Number of units N.
        dataset_size: usize,
        /// Number of draws m.
        batch_size: usize,
    },
    /// Each unit is in one of `parts` parts, by an independent uniform choice for the whole run.
    /// Step t draws from part t mod `parts`, each unit of it independently with this probability.
    CyclicPoisson {
        /// Number of parts b.
        parts: usize,
        /// Sampling probability of a unit in the steps of its part.
        sampling_probability: f64,
    },
    /// Each unit is in one of `bins` bins, by an independent uniform choice for the whole run. Step
    /// t uses bin t mod `bins`.
    BallsInBins {
        /// Number of bins, which is the number of steps in an epoch.
        bins: usize,
    },
    /// Like balls in bins, with an independent choice in each epoch.
    RandomAllocation {
        /// Number of bins, which is the number of steps in an epoch.
        bins: usize,
    },
    /// Each unit takes part independently with this probability in each step, except in the
    /// `separation - 1` steps after one in which it took part. The first step is drawn as if there
    /// had been infinitely many steps before.
    MinSeparation {
        /// The smallest difference between two steps of a unit.
        separation: usize,
        /// Sampling probability of a unit in a step in which it may take part.
        sampling_probability: f64,
    },
    /// Every step counts as if it contained every unit.
    NoAmplification {
        /// Why there is no amplification.
        reason: &'static str,
    },
}

impl SamplingMechanism {
    /// Returns the event of a release of `event` from a draw. Without amplification, it is `event`.
    ///
    /// A mechanism whose draws depend on earlier draws has no event for one step: its event is
    /// [`DpEvent::Unsupported`], which every accountant refuses.
    pub fn event(&self, event: DpEvent) -> DpEvent {
        match *self {
            Self::Poisson { sampling_probability } => {
                DpEvent::poisson_sampled(sampling_probability, event)
            }
            Self::TruncatedPoisson { sampling_probability, dataset_size, max_batch_size } => {
                DpEvent::TruncatedPoissonSampled {
                    sampling_probability,
                    dataset_size: dataset_size as u64,
                    max_batch_size: max_batch_size as u64,
                    event: Box::new(event),
                }
            }
            Self::WithoutReplacement { dataset_size, batch_size } => {
                DpEvent::SampledWithoutReplacement {
                    dataset_size: dataset_size as u64,
                    sample_size: batch_size as u64,
                    event: Box::new(event),
                }
            }
            Self::WithReplacement { dataset_size, batch_size } => DpEvent::SampledWithReplacement {
                dataset_size: dataset_size as u64,
                sample_size: batch_size as u64,
                event: Box::new(event),
            },
            Self::CyclicPoisson { .. }
            | Self::BallsInBins { .. }
            | Self::RandomAllocation { .. }
            | Self::MinSeparation { .. } => DpEvent::Unsupported { reason: self.to_string() },
            Self::NoAmplification { .. } => event,
        }
    }

    /// Returns an error if no event describes the draws of independent steps.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`], which names the mechanism and its alternatives.
    pub(crate) fn check_accounted(&self) -> Result<(), DpError> {
        match self.event(DpEvent::NonPrivate) {
            DpEvent::Unsupported { reason } => Err(DpError::invalid(
                "sampling",
                format!(
                    "is {reason}: its draws depend on each other, so the privacy of a run with a \
                     noise schedule is unknown; leave the schedule out, or use Poisson sampling"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the relation under which the event holds.
    ///
    /// Where the number of units is fixed, neighboring data sets differ by one replaced unit, which
    /// doubles the sensitivity of the sum. Where the draws of one unit do not depend on the other
    /// units, they differ by one unit added or removed.
    pub fn relation(&self) -> NeighboringRelation {
        match self {
            Self::Poisson { .. }
            | Self::TruncatedPoisson { .. }
            | Self::CyclicPoisson { .. }
            | Self::BallsInBins { .. }
            | Self::RandomAllocation { .. }
            | Self::MinSeparation { .. } => NeighboringRelation::AddOrRemoveOne,
            Self::WithoutReplacement { .. }
            | Self::WithReplacement { .. }
            | Self::NoAmplification { .. } => NeighboringRelation::ReplaceOne,
        }
    }

    /// Returns whether the draws of two data sets that are neighbors under `relation` differ in one
    /// unit alone, as an event assumes.
    ///
    /// Where the number of units is fixed, adding or removing a unit moves others.
    pub fn holds_under(&self, relation: NeighboringRelation) -> bool {
        let adds_or_removes = NeighboringRelation::AddOrRemoveOne;
        relation != adds_or_removes || self.relation() == adds_or_removes
    }

    /// Returns whether one draw can contain a unit several times.
    pub(super) fn repeats_units(&self) -> bool {
        matches!(self, Self::WithReplacement { .. })
    }

    /// Returns the maximum size of a draw, if it is public.
    pub(super) fn max_batch_size(&self) -> Option<usize> {
        match *self {
            Self::TruncatedPoisson { max_batch_size, .. } => Some(max_batch_size),
            Self::WithoutReplacement { batch_size, .. }
            | Self::WithReplacement { batch_size, .. } => Some(batch_size),
            _ => None,
        }
    }
}

impl fmt::Display for SamplingMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // For a reader; the event has the exact number.
        let rounded = |probability: f64| Rounded::up(probability).with_digits(4).shortest();
        match self {
            Self::Poisson { sampling_probability } => {
                write!(f, "Poisson sampling with probability {}", rounded(*sampling_probability))
            }
            Self::TruncatedPoisson { sampling_probability, dataset_size, max_batch_size } => {
                write!(
                    f,
                    "Poisson sampling of {dataset_size} units with probability {}, cut to at most \
                 {max_batch_size} units",
                    rounded(*sampling_probability)
                )
            }
            Self::WithoutReplacement { dataset_size, batch_size } => {
                write!(f, "sampling {batch_size} of {dataset_size} units without replacement")
            }
            Self::WithReplacement { dataset_size, batch_size } => {
                write!(f, "sampling {batch_size} of {dataset_size} units with replacement")
            }
            Self::CyclicPoisson { parts, sampling_probability } => write!(
                f,
                "cyclic Poisson sampling from {parts} parts with probability {}",
                rounded(*sampling_probability)
            ),
            Self::BallsInBins { bins } => {
                write!(f, "balls in bins with {bins} bins, the same in every epoch")
            }
            Self::RandomAllocation { bins } => {
                write!(f, "random allocation to {bins} bins in every epoch")
            }
            Self::MinSeparation { separation, sampling_probability } => write!(
                f,
                "sampling with a minimum separation of {separation} steps and probability {}",
                rounded(*sampling_probability)
            ),
            Self::NoAmplification { reason } => {
                write!(f, "no amplification by sampling: {reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_mechanism_has_the_event_and_the_relation_of_its_analysis() {
        let gaussian = DpEvent::gaussian(1.5);
        let poisson = SamplingMechanism::Poisson { sampling_probability: 0.3 };
        assert_eq!(poisson.event(gaussian.clone()), DpEvent::dp_sgd_step(0.3, 1.5));
        assert_eq!(poisson.relation(), NeighboringRelation::AddOrRemoveOne);

        let fixed = SamplingMechanism::WithoutReplacement { dataset_size: 100, batch_size: 30 };
        let expected = DpEvent::SampledWithoutReplacement {
            dataset_size: 100,
            sample_size: 30,
            event: Box::new(gaussian.clone()),
        };
        assert_eq!(fixed.event(gaussian.clone()), expected);
        assert_eq!(fixed.relation(), NeighboringRelation::ReplaceOne);

        let none = SamplingMechanism::NoAmplification { reason: "shuffled" };
        assert_eq!(none.event(gaussian.clone()), gaussian);
        assert_eq!(none.relation(), NeighboringRelation::ReplaceOne);
        for mechanism in [&fixed, &none] {
            assert!(!mechanism.holds_under(NeighboringRelation::AddOrRemoveOne));
            assert!(mechanism.holds_under(NeighboringRelation::ReplaceSpecial));
        }
        assert!(poisson.holds_under(NeighboringRelation::AddOrRemoveOne));
        assert!(poisson.holds_under(NeighboringRelation::ReplaceOne));

        let truncated = SamplingMechanism::TruncatedPoisson {
            sampling_probability: 0.3,
            dataset_size: 100,
            max_batch_size: 40,
        };
        let expected = DpEvent::TruncatedPoissonSampled {
            sampling_probability: 0.3,
            dataset_size: 100,
            max_batch_size: 40,
            event: Box::new(gaussian.clone()),
        };
        assert_eq!(truncated.event(gaussian.clone()), expected);
        assert_eq!(truncated.relation(), NeighboringRelation::AddOrRemoveOne);

        let repeated = SamplingMechanism::WithReplacement { dataset_size: 100, batch_size: 30 };
        let expected = DpEvent::SampledWithReplacement {
            dataset_size: 100,
            sample_size: 30,
            event: Box::new(gaussian.clone()),
        };
        assert_eq!(repeated.event(gaussian), expected);
        assert_eq!(repeated.relation(), NeighboringRelation::ReplaceOne);
    }

    #[test]
    fn a_mechanism_without_accounting_has_no_event() {
        for (mechanism, name) in [
            (SamplingMechanism::CyclicPoisson { parts: 4, sampling_probability: 0.5 }, "cyclic"),
            (SamplingMechanism::BallsInBins { bins: 4 }, "balls in bins with 4 bins"),
            (SamplingMechanism::RandomAllocation { bins: 4 }, "random allocation to 4 bins"),
            (
                SamplingMechanism::MinSeparation { separation: 3, sampling_probability: 0.25 },
                "minimum separation of 3 steps and probability 0.25",
            ),
        ] {
            let event = mechanism.event(DpEvent::gaussian(1.0));
            assert!(matches!(event, DpEvent::Unsupported { .. }), "{event}");
            let error = mechanism.check_accounted().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("noise schedule"), "{error}");
        }
        let poisson = SamplingMechanism::Poisson { sampling_probability: 0.5 };
        assert!(poisson.check_accounted().is_ok());
    }

    #[test]
    fn the_reason_for_no_amplification_is_printed() {
        let text = SamplingMechanism::NoAmplification { reason: "shuffled" }.to_string();
        assert_eq!(text, "no amplification by sampling: shuffled");
    }
}
