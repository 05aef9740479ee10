//! The units of one step, and parts of them, which are used once.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Bool, Device, Tensor, TensorData, assert_shape};

use super::mechanism::SamplingMechanism;
use super::records::{RecordFacts, RecordIdentity};
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

    /// Returns parts of at most `size` units, in order, for a loop that loads its data itself; each
    /// unit appears exactly once.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `size` is 0.
    pub fn parts(&self, size: usize) -> Result<impl Iterator<Item = DrawPart> + use<>, DpError> {
        if size == 0 {
            return Err(DpError::invalid("size", "must be at least 1, got 0"));
        }
        let (draw, units) = (self.clone(), self.private_indices().len());
        Ok((0..units).step_by(size).map(move |start| {
            DrawPart::of(draw.clone(), start..units.min(start.saturating_add(size)))
        }))
    }
}

opaque_debug!(Draw, |this| step: this.step);

/// Some units of a draw: proof that its owner may add exactly these units to the step of the draw,
/// once.
///
/// A [`PhysicalBatch`](super::PhysicalBatch) contains one. Only [`Draw::parts`] and the loaders
/// create parts, and an optimizer consumes them: neither indices from elsewhere nor a second use
/// can replace a drawn unit.
///
/// ```compile_fail,E0599
/// # fn twice(part: burn_dp::sampling::DrawPart) {
/// let again = part.clone();
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # use burn_dp::{DpError, optim::DpOptimizer, updates::UnitUpdate};
/// # fn own_indices(optim: &mut DpOptimizer, model: &burn::nn::Linear) -> Result<(), DpError> {
/// optim.unit_updates(model, &[1, 2, 3], |_, _: usize| Ok(UnitUpdate::zero()))
/// # }
/// ```
///
/// # Privacy
///
/// The units and their number are private. A private step uses [`is_padding`](Self::is_padding) to
/// exclude padding from the clipped sum and from every count.
pub struct DrawPart {
    draw: Draw,
    /// Positions in the draw.
    range: Range<usize>,
    /// Number of rows of the physical batch; the padding comes last.
    rows: usize,
    records: RecordFacts,
}

impl DrawPart {
    /// Returns the part at these positions of the draw, without padding.
    pub(super) fn of(draw: Draw, range: Range<usize>) -> Self {
        let rows = range.len();
        Self { draw, range, rows, records: RecordFacts::UNKNOWN }
    }

    /// Sets the number of rows of the physical batch, padding included.
    pub(super) fn with_rows(self, rows: usize) -> Self {
        debug_assert!(self.range.len() <= rows, "{:?} in {rows} rows", self.range);
        Self { rows, ..self }
    }

    /// Sets the evidence that the units are different records.
    pub(crate) fn with_identity(self, identity: RecordIdentity) -> Self {
        Self { records: RecordFacts { identity, ..self.records }, ..self }
    }

    /// Sets what the data set of the units states about its records.
    pub(crate) fn with_records(self, records: RecordFacts) -> Self {
        Self { records, ..self }
    }

    pub(crate) fn draw(&self) -> &Draw {
        &self.draw
    }

    /// Returns the positions of the units in the draw.
    pub(crate) fn positions(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(crate) fn records(&self) -> &RecordFacts {
        &self.records
    }

    /// Returns the step that the part belongs to.
    pub fn step(&self) -> u64 {
        self.draw.step()
    }

    /// Returns the units of the part, ascending.
    ///
    /// # Privacy
    ///
    /// For loading the data only; see [`Draw::private_indices`].
    pub fn private_indices(&self) -> &[usize] {
        &self.draw.private_indices()[self.range.clone()]
    }

    /// Returns the number of rows, padding included. Public only if batches are padded.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns whether each row is padding, on the host.
    pub fn is_padding(&self) -> impl Iterator<Item = bool> + use<> {
        let units = self.range.len();
        (0..self.rows).map(move |row| row >= units)
    }

    /// Returns one weight for each row: 1 for a unit, 0 for padding.
    ///
    /// # Shapes
    ///
    /// - output: `[rows]`
    pub fn weights(&self, device: &Device) -> Tensor<1> {
        let weights: Vec<f32> = self.is_padding().map(|p| if p { 0.0 } else { 1.0 }).collect();
        Tensor::from_data(TensorData::from(weights.as_slice()), device)
    }

    /// Returns the losses, with 0 in padding rows.
    ///
    /// This is a selection: a product with 0 would keep an infinite or undefined loss of a padding
    /// row.
    ///
    /// # Shapes
    ///
    /// - losses: `[rows]`
    /// - output: `[rows]`
    ///
    /// # Panics
    ///
    /// Panics unless there is one loss for each row.
    pub fn mask(&self, losses: Tensor<1>) -> Tensor<1> {
        let rows = self.rows;
        assert_shape!(losses, [rows]);
        if self.range.len() == self.rows {
            return losses;
        }
        let padding: Vec<bool> = self.is_padding().collect();
        let padding: Tensor<1, Bool> =
            Tensor::from_data(TensorData::from(padding.as_slice()), &losses.device());
        losses.mask_fill(padding, 0.0)
    }
}

/// The whole draw as one part.
impl From<&Draw> for DrawPart {
    fn from(draw: &Draw) -> Self {
        Self::of(draw.clone(), 0..draw.private_indices().len())
    }
}

opaque_debug!(DrawPart, |this| step: this.step());

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_devices::devices;

    fn draw(step: u64, indices: Vec<usize>, dataset_size: usize) -> Result<Draw, DpError> {
        let mechanism = SamplingMechanism::Poisson { sampling_probability: 0.5 };
        Draw::new(step, indices, dataset_size, mechanism, 0)
    }

    fn part(units: usize, rows: usize) -> DrawPart {
        DrawPart::from(&draw(0, (0..units).collect(), 99).unwrap()).with_rows(rows)
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

    #[test]
    fn parts_contain_each_unit_once_at_any_size() {
        for units in [0, 1, 7, 8] {
            let draw = draw(6, (0..units).map(|i| 2 * i).collect(), 99).unwrap();
            for size in [1, 3, 8, usize::MAX] {
                let parts: Vec<_> = draw.parts(size).unwrap().collect();
                assert_eq!(parts.len(), units.div_ceil(size));
                assert!(parts.iter().all(|part| part.step() == 6));
                let found: Vec<_> =
                    parts.iter().flat_map(|part| part.private_indices().to_vec()).collect();
                assert_eq!(found, draw.private_indices());
            }
        }
        assert!(draw(0, vec![1], 99).unwrap().parts(0).is_err());
    }

    #[test]
    fn padding_rows_have_weight_zero_and_come_last() {
        for device in devices() {
            let part = part(2, 4);
            assert_eq!(part.rows(), 4);
            let weights = part.weights(&device).into_data();
            weights.assert_eq(&TensorData::from([1f32, 1.0, 0.0, 0.0]), true);
            assert_eq!(part.is_padding().collect::<Vec<_>>(), [false, false, true, true]);
        }
    }

    #[test]
    fn padding_rows_have_zero_loss_and_gradient_even_if_undefined() {
        for device in devices() {
            let losses: Tensor<1> =
                Tensor::from_floats([2.0, f32::NAN, f32::INFINITY], &device.autodiff())
                    .require_grad();
            let masked = part(1, 3).mask(losses.clone());
            masked.to_data().assert_eq(&TensorData::from([2f32, 0.0, 0.0]), true);
            let gradient = losses.grad(&masked.sum().backward()).unwrap();
            gradient.into_data().assert_eq(&TensorData::from([1f32, 0.0, 0.0]), true);
        }
    }

    #[test]
    #[should_panic(expected = "losses")]
    fn fewer_losses_than_rows_are_refused() {
        let device = devices().remove(0);
        let _ = part(1, 2).mask(Tensor::<1>::from_floats([1.0], &device));
    }

    #[test]
    fn debug_output_of_a_part_does_not_show_the_number_of_units() {
        assert_eq!(format!("{:?}", part(1, 4)), format!("{:?}", part(3, 4)));
    }
}
