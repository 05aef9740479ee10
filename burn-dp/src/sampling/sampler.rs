//! What every sampler is and says.

use std::fmt;

use burn_dp_accountant::{DpEvent, NeighboringRelation};

use super::Draw;
use crate::DpError;

/// A way to draw the units of a step, together with what it is worth to the accountant.
///
/// The trait is sealed. A sampler from elsewhere would have to be believed, and a wrong description of a
/// sampler makes every ε wrong:
///
/// ```compile_fail
/// #[derive(Debug)]
/// struct Mine;
/// impl burn_dp::sampling::Sampler for Mine {}
/// ```
///
/// # Privacy
///
/// All constants here are public: they are fixed at construction and do not depend on what was drawn.
pub trait Sampler: sealed::Sealed + fmt::Debug + Send + Sync {
    /// Number of units that are drawn from.
    fn dataset_size(&self) -> usize;

    /// The probability with which a given unit is in a given draw; the mean over the steps of an epoch
    /// if it differs between them.
    ///
    /// It alone does not say what the accountant may conclude; [`mechanism`](Self::mechanism) does.
    fn sampling_probability(&self) -> f64;

    /// The public constant that updates are divided by.
    fn expected_batch_size(&self) -> f64;

    /// What the accountant may conclude from the way units are drawn.
    fn mechanism(&self) -> SamplingMechanism;

    /// The units of `step`, a function of the key and the step alone.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when the draw is not a set of units of the data set.
    fn draw(&self, step: u64) -> Result<Draw, DpError>;

    /// Marks the key of the sampler, without giving it away: draws carry it, and a private step
    /// accepts only those of its own plan.
    #[doc(hidden)]
    fn origin(&self) -> u64;

    /// Whether the draws follow from a known seed, so that sampling gives no privacy at all.
    fn is_insecure(&self) -> bool;
}

/// What the way of drawing is worth, in the terms of the accountant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SamplingMechanism {
    /// Each unit is in the batch independently, with this probability.
    Poisson {
        /// The probability q.
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
        /// Why nothing better can be said.
        reason: &'static str,
    },
}

impl SamplingMechanism {
    /// What the accountant is told when `event` is released from a draw: without amplification, just
    /// `event`.
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

    /// The relation under which the event holds. Where the number of units is fixed, a neighbour has
    /// one unit exchanged, which doubles the sensitivity of the sum.
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
                write!(f, "Poisson sampling with probability {sampling_probability}")
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

/// Refuses a data set that cannot be drawn from.
pub(crate) fn check_dataset_size(dataset_size: usize) -> Result<(), DpError> {
    /// Far beyond any list of units, and small enough for the positions in the random stream.
    const LIMIT: u64 = 1 << 48;
    match dataset_size as u64 {
        0 => Err(DpError::invalid("dataset_size", "must be at least 1, got 0")),
        size if size > LIMIT => {
            Err(DpError::invalid("dataset_size", format!("must be at most {LIMIT}, got {size}")))
        }
        _ => Ok(()),
    }
}

/// Refuses a batch size that no subset of the data set can have.
pub(crate) fn check_batch_size(batch_size: usize, dataset_size: usize) -> Result<(), DpError> {
    if batch_size == 0 || batch_size > dataset_size {
        return Err(DpError::invalid(
            "batch_size",
            format!("must be from 1 to dataset_size = {dataset_size}, got {batch_size}"),
        ));
    }
    Ok(())
}

pub(crate) mod sealed {
    pub trait Sealed {}

    impl<S: Sealed + ?Sized> Sealed for Box<S> {}
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn dataset_size(&self) -> usize {
        (**self).dataset_size()
    }

    fn sampling_probability(&self) -> f64 {
        (**self).sampling_probability()
    }

    fn expected_batch_size(&self) -> f64 {
        (**self).expected_batch_size()
    }

    fn mechanism(&self) -> SamplingMechanism {
        (**self).mechanism()
    }

    fn draw(&self, step: u64) -> Result<Draw, DpError> {
        (**self).draw(step)
    }

    fn origin(&self) -> u64 {
        (**self).origin()
    }

    fn is_insecure(&self) -> bool {
        (**self).is_insecure()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sampling::{FixedSizeSampler, PoissonSampler, ShuffledSampler};

    #[test]
    fn each_sampler_tells_the_accountant_what_it_does_and_no_more() {
        let gaussian = DpEvent::gaussian(1.5);
        let poisson = PoissonSampler::new(100, 0.3).unwrap().mechanism();
        assert_eq!(poisson.event(gaussian.clone()), DpEvent::dp_sgd_step(0.3, 1.5));
        assert_eq!(poisson.relation(), NeighboringRelation::AddOrRemoveOne);

        let fixed = FixedSizeSampler::new(100, 30).unwrap().mechanism();
        let expected = DpEvent::SampledWithoutReplacement {
            dataset_size: 100,
            sample_size: 30,
            event: Box::new(gaussian.clone()),
        };
        assert_eq!(fixed.event(gaussian.clone()), expected);
        assert_eq!(fixed.relation(), NeighboringRelation::ReplaceOne);

        let shuffled = ShuffledSampler::new(100, 30).unwrap().mechanism();
        assert_eq!(shuffled.event(gaussian.clone()), gaussian);
        assert_eq!(shuffled.relation(), NeighboringRelation::ReplaceOne);
    }

    #[test]
    fn the_reason_for_no_amplification_is_printed() {
        let text = SamplingMechanism::NoAmplification { reason: "shuffled" }.to_string();
        assert_eq!(text, "no amplification by sampling: shuffled");
    }
}
