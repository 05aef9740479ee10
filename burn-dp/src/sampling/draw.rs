//! The units of one step.

use std::sync::Arc;

use super::mechanism::SamplingMechanism;
use crate::DpError;

/// The units that a sampler drew for one step, each at most once. Only
/// [`WithReplacementSampler`](super::WithReplacementSampler) draws a unit several times.
///
/// # Privacy
///
/// Which units were drawn, and how many, is private. The type has no `len`. Of everything that is
/// derived from the draw, only the noisy release may leave the training process.
///
/// Its units reach an optimizer only in [parts](Self::parts), which carry the mark of the draw and
/// are consumed.
#[derive(Clone, PartialEq)]
pub struct Draw {
    step: u64,
    indices: Arc<[usize]>,
    mechanism: SamplingMechanism,
    origin: u64,
}

impl Draw {
    /// Returns the draw of `indices`, a set of units of the data set in ascending order.
    ///
    /// A unit that occurs twice contributes twice the clipping threshold, so only a mechanism whose
    /// event counts it twice may repeat units.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if `indices` is not such a set.
    pub(crate) fn new(
        step: u64,
        indices: Vec<usize>,
        dataset_size: usize,
        mechanism: SamplingMechanism,
        origin: u64,
    ) -> Result<Self, DpError> {
        let repeats = mechanism.repeats_units();
        let wrong = |pair: &&[usize]| pair[0] > pair[1] || (pair[0] == pair[1] && !repeats);
        if let Some(pair) = indices.windows(2).find(wrong) {
            return Err(DpError::state(format!(
                "the draw of step {step} must hold each unit once, in ascending order, but unit {} \
                 is followed by unit {}; nothing may be released from it",
                pair[0], pair[1]
            )));
        }
        match indices.last() {
            Some(&last) if last >= dataset_size => Err(DpError::state(format!(
                "the draw of step {step} holds unit {last} of {dataset_size}; nothing may be \
                 released from it"
            ))),
            _ => Ok(Self { step, indices: indices.into(), mechanism, origin }),
        }
    }

    /// Returns the step that the draw belongs to.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the description of the draw for the accountant.
    pub fn mechanism(&self) -> &SamplingMechanism {
        &self.mechanism
    }

    /// Returns a mark of the key that the units were drawn with, which does not reveal it.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// Returns the drawn units, ascending; a unit that was drawn several times appears that many
    /// times.
    ///
    /// # Privacy
    ///
    /// For loading the data only. Neither the indices nor their number may influence a release,
    /// except through the clipped sum.
    pub fn private_indices(&self) -> &[usize] {
        &self.indices
    }
}

opaque_debug!(Draw, |this| step: this.step);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn draw(step: u64, indices: Vec<usize>, dataset_size: usize) -> Result<Draw, DpError> {
        let mechanism = SamplingMechanism::Poisson { sampling_probability: 0.5 };
        Draw::new(step, indices, dataset_size, mechanism, 0)
    }

    #[test]
    fn a_unit_that_occurs_twice_is_refused_by_name() {
        let error = draw(9, vec![1, 4, 4, 7], 10).unwrap_err().to_string();
        assert!(error.contains("step 9") && error.contains("unit 4"), "{error}");
    }

    #[test]
    fn a_draw_with_replacement_repeats_units_in_ascending_order() {
        let mechanism = SamplingMechanism::WithReplacement { dataset_size: 10, batch_size: 4 };
        let draw = |units| Draw::new(0, units, 10, mechanism.clone(), 0);
        assert_eq!(draw(vec![1, 4, 4, 7]).unwrap().private_indices(), [1, 4, 4, 7]);
        assert!(draw(vec![4, 1, 4, 7]).is_err());
    }

    #[test]
    fn units_out_of_order_or_outside_of_the_data_set_are_refused() {
        assert!(draw(0, vec![3, 2], 10).is_err());
        let error = draw(0, vec![0, 10], 10).unwrap_err().to_string();
        assert!(error.contains("unit 10 of 10"), "{error}");
        assert!(draw(0, vec![0, 9], 10).is_ok());
        assert!(draw(0, vec![], 10).is_ok());
    }

    #[test]
    fn debug_output_shows_neither_the_units_nor_their_number() {
        let (few, many) = (draw(1, vec![], 99).unwrap(), draw(1, vec![42, 43], 99).unwrap());
        assert_eq!(format!("{few:?}"), format!("{many:?}"));
    }
}
