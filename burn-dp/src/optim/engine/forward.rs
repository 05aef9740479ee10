//! Forward passes of a logical batch that the library calls itself.

use std::borrow::Cow;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use super::PrivacyEngine;
use crate::DpError;
use crate::grads::{PrivateBackward, compare_values};
use crate::model::{in_precision, precision_name};
use crate::nn::{UnitScope, Units};
use crate::optim::LossFunction;
use crate::random::LayerRandomness;
use crate::sampling::{DrawPart, LogicalBatch};

/// Computes the losses of any units of a logical batch, through its loader.
pub(crate) struct Forward<'a, M, O, T> {
    batch: &'a LogicalBatch<O>,
    device: Option<Device>,
    losses: &'a dyn Fn(&M, O) -> (Tensor<1>, T),
    function: LossFunction,
    backward: PrivateBackward,
    randomness: LayerRandomness,
}

impl PrivacyEngine {
    /// Returns the forward passes of the current logical step, whose losses are by `function`.
    pub(crate) fn forward<'a, M, O, T>(
        &self,
        batch: &'a LogicalBatch<O>,
        device: Option<Device>,
        losses: &'a dyn Fn(&M, O) -> (Tensor<1>, T),
        function: LossFunction,
    ) -> Forward<'a, M, O, T> {
        let (backward, randomness) = (self.backward.clone(), self.layer_randomness());
        Forward { batch, device, losses, function, backward, randomness }
    }

    /// Returns the model that computes the losses: `model`, or a copy of it in the precision of the
    /// passes.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a device of the model cannot compute in it.
    pub(crate) fn computing<'a, M: Module>(&self, model: &'a M) -> Result<Cow<'a, M>, DpError> {
        let Some(precision) = self.precision else { return Ok(Cow::Borrowed(model)) };
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

    /// Returns the randomness of the layers in the current logical step.
    pub(crate) fn layer_randomness(&self) -> LayerRandomness {
        LayerRandomness::new(self.plan.key(), self.next_step)
    }

    /// Opens the scope in which the random layers of `model` have the units of a physical batch.
    pub(crate) fn unit_scope<M: Module>(&self, model: &M, part: &DrawPart) -> UnitScope {
        let units = rows_of(part.private_indices(), part.rows(), self.backward.group_size());
        UnitScope::enter(model, &self.layer_randomness(), units)
    }

    /// Returns whether the values of the next physical batch are to be compared, to the first
    /// thread that asks. Say the outcome with [`compared`](Self::compared).
    pub(crate) fn begin_comparison(&mut self, function: LossFunction) -> bool {
        self.independence.begin_values(self.next_step, function)
    }

    /// Takes the outcome of a comparison. After an error the next attempt is compared as well.
    pub(crate) fn compared(&mut self, function: LossFunction, outcome: &Result<bool, DpError>) {
        self.independence.compared(self.next_step, function, matches!(outcome, Ok(true)));
    }
}

impl<M: Module, O: Send + 'static, T> Forward<'_, M, O, T> {
    /// Returns the function of the losses.
    pub(crate) fn function(&self) -> LossFunction {
        self.function
    }

    /// Computes the losses of a physical batch.
    pub(crate) fn run(&self, model: &M, input: O, part: &DrawPart) -> (Tensor<1>, T) {
        self.losses_of(model, input, part.private_indices(), part.rows())
    }

    /// Compares the values of `units` between different batches; see [`compare_values`].
    pub(crate) async fn compare(&self, model: &M, units: &[usize]) -> Result<bool, DpError> {
        // The larger batch of the test has one eighth more units, and it has to fit into memory
        // too.
        let units = &units[..units.len() - units.len().div_ceil(9).min(units.len() / 3)];
        let mut losses_of = |model: &M, positions: &[usize]| {
            let units: Vec<usize> = positions.iter().map(|&position| units[position]).collect();
            let input = self.batch.load(&units, self.device.as_ref())?;
            Ok(self.losses_of(model, input, &units, units.len()).0)
        };
        compare_values(model, &self.backward, units.len(), &mut losses_of).await
    }

    fn losses_of(&self, model: &M, input: O, units: &[usize], rows: usize) -> (Tensor<1>, T) {
        let units = rows_of(units, rows, self.backward.group_size());
        let _scope = UnitScope::enter(model, &self.randomness, units);
        (self.losses)(model, input)
    }
}

/// Returns the units of the rows of a physical batch; padding rows come last.
fn rows_of(units: &[usize], rows: usize, copies: usize) -> Units {
    // No data set is large enough for its units to reach the numbers of the padding.
    let padding = (0..rows.saturating_sub(units.len())).map(|row| usize::MAX - row);
    Units::Rows { units: units.iter().copied().chain(padding).collect(), copies }
}
