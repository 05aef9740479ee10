//! The description of a draw for the accountant.

use std::fmt;

use burn_dp_accountant::{DpEvent, NeighboringRelation, Rounded};

/// How the units of a step are drawn, in the terms of the accountant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SamplingMechanism {
    /// Each unit is in the batch independently, with this probability.
    Poisson {
        /// The sampling probability q.
        sampling_probability: f64,
    },
    /// The batch is a uniform subset of fixed size.
    WithoutReplacement {
        /// Number of units N.
        dataset_size: usize,
        /// Size of the subset m.
        batch_size: usize,
    },
    /// Every step counts as if every unit had been in it.
    NoAmplification {
        /// Why there is no amplification.
        reason: &'static str,
    },
}

impl SamplingMechanism {
    /// Returns the event of a release of `event` from a draw. Without amplification, it is `event`.
    pub fn event(&self, event: DpEvent) -> DpEvent {
        match *self {
            Self::Poisson { sampling_probability } => {
                DpEvent::poisson_sampled(sampling_probability, event)
            }
            Self::WithoutReplacement { dataset_size, batch_size } => {
                DpEvent::SampledWithoutReplacement {
                    dataset_size: dataset_size as u64,
                    sample_size: batch_size as u64,
                    event: Box::new(event),
                }
            }
            Self::NoAmplification { .. } => event,
        }
    }

    /// Returns the relation under which the event holds.
    ///
    /// Where the number of units is fixed, neighboring data sets differ by one replaced unit, which
    /// doubles the sensitivity of the sum.
    pub fn relation(&self) -> NeighboringRelation {
        match self {
            Self::Poisson { .. } => NeighboringRelation::AddOrRemoveOne,
            Self::WithoutReplacement { .. } | Self::NoAmplification { .. } => {
                NeighboringRelation::ReplaceOne
            }
        }
    }
}

impl fmt::Display for SamplingMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson { sampling_probability } => {
                // For a reader; the event has the exact number.
                let probability = Rounded::up(*sampling_probability).with_digits(4).shortest();
                write!(f, "Poisson sampling with probability {probability}")
            }
            Self::WithoutReplacement { dataset_size, batch_size } => {
                write!(f, "sampling {batch_size} of {dataset_size} units without replacement")
            }
            Self::NoAmplification { reason } => {
                write!(f, "no amplification by sampling: {reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn the_reason_for_no_amplification_is_printed() {
        let text = SamplingMechanism::NoAmplification { reason: "shuffled" }.to_string();
        assert_eq!(text, "no amplification by sampling: shuffled");
    }
}
