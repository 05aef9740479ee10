//! Forward passes of a logical batch that the library calls itself.

use std::borrow::Cow;

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};

use crate::DpError;
use crate::grads::{Compared, PrivateBackward, compare_values};
use crate::model::{in_precision, precision_name};
use crate::nn::{UnitScope, Units};
use crate::optim::LossFunction;
use crate::random::LayerRandomness;
use crate::sampling::{DrawPart, LogicalBatch, PhysicalBatches};

/// The rows of a logical batch, or of one device's part of it, and their losses.
pub(crate) struct Rows<'a, M, O, T> {
    pub(crate) batch: &'a LogicalBatch<O>,
    pub(crate) physical_batch_size: usize,
    /// The number of the part, and the number of parts.
    pub(crate) part: (usize, usize),
    /// The device of the inputs, if it is not the device of the loader.
    pub(crate) device: Option<Device>,
    /// Returns the losses of a physical batch, and an output.
    pub(crate) losses: &'a dyn Fn(&M, O) -> (Tensor<1>, T),
    pub(crate) function: LossFunction,
}

/// Computes the losses of any units of a logical batch, through its loader.
pub(super) struct Forward<'a, M, O, T> {
    pub(super) rows: Rows<'a, M, O, T>,
    pub(super) backward: PrivateBackward,
    pub(super) randomness: LayerRandomness,
}

/// Returns the model that computes the losses: `model`, or a copy of it in the precision of the
/// passes.
///
/// # Errors
///
/// Returns [`DpError::InvalidArgument`] if a device of the model cannot compute in it.
pub(crate) fn computing<M: Module>(
    model: &M,
    precision: Option<FloatDType>,
) -> Result<Cow<'_, M>, DpError> {
    let Some(precision) = precision else { return Ok(Cow::Borrowed(model)) };
    match model.devices().iter().find(|device| !device.supports_dtype(precision)) {
        None => Ok(Cow::Owned(in_precision(model, precision))),
        Some(device) => Err(DpError::invalid(
            "precision",
            format!(
                "{} is not possible on {device:?}; choose another one, or none",
                precision_name(precision)
            ),
        )),
    }
}

impl<M: Module, O: Send + 'static, T> Forward<'_, M, O, T> {
    /// Returns the physical batches; see [`LogicalBatch::computed`].
    pub(super) fn physical_batches(
        &self,
        expected_batch_size: f64,
    ) -> Result<PhysicalBatches<O>, DpError> {
        let Rows { batch, physical_batch_size, part, ref device, .. } = self.rows;
        batch.computed(physical_batch_size, part, device.clone(), expected_batch_size)
    }

    /// Computes the losses of a physical batch.
    pub(super) fn run(&self, model: &M, input: O, part: &DrawPart) -> (Tensor<1>, T) {
        self.losses_of(model, input, part.private_indices(), part.rows())
    }

    /// Compares the values of `units` between different batches, except for the last ninth; see
    /// [`compare_values`].
    pub(super) async fn compare(
        &self,
        model: &M,
        units: &[usize],
    ) -> Result<Option<Compared>, DpError> {
        // The larger batch of the test has one eighth more units, and it has to fit into memory
        // too.
        let units = &units[..units.len() - units.len().div_ceil(9).min(units.len() / 3)];
        let mut losses_of = |model: &M, positions: &[usize]| {
            let units: Vec<usize> = positions.iter().map(|&position| units[position]).collect();
            let input = self.rows.batch.load(&units, self.rows.device.as_ref())?;
            Ok(self.losses_of(model, input, &units, units.len()).0)
        };
        compare_values(model, &self.backward, units.len(), &mut losses_of).await
    }

    fn losses_of(&self, model: &M, input: O, units: &[usize], rows: usize) -> (Tensor<1>, T) {
        let _scope = row_scope(model, &self.randomness, units, rows, self.backward.group_size());
        (self.rows.losses)(model, input)
    }
}

/// Opens the scope in which the random layers of `model` have the units of a physical batch.
///
/// # Arguments
///
/// - `rows`: number of rows, the last of which are padding
/// - `copies`: number of augmented copies of each row
pub(super) fn row_scope<M: Module>(
    model: &M,
    randomness: &LayerRandomness,
    units: &[usize],
    rows: usize,
    copies: usize,
) -> UnitScope {
    // No data set is large enough for its units to reach the numbers of the padding.
    let padding = (0..rows.saturating_sub(units.len())).map(|row| usize::MAX - row);
    let units = units.iter().copied().chain(padding).collect();
    UnitScope::enter(model, randomness, Units::Rows { units, copies })
}
