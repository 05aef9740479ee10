//! The rows of a logical batch that are processed at once.

use std::fmt;

use burn::tensor::{Bool, Device, Tensor, TensorData, assert_shape};

/// The output of the user's `Batcher` for at most as many units as fit into memory, and the weights
/// of its rows.
pub struct PhysicalBatch<O> {
    batch: O,
    weights: ExampleWeights,
}

impl<O> PhysicalBatch<O> {
    pub(crate) fn new(batch: O, weights: ExampleWeights) -> Self {
        Self { batch, weights }
    }

    /// Returns the output of the `Batcher`.
    pub fn batch(&self) -> &O {
        &self.batch
    }

    /// Returns the weight of each row.
    pub fn weights(&self) -> &ExampleWeights {
        &self.weights
    }

    /// Returns both, by value.
    pub fn into_parts(self) -> (O, ExampleWeights) {
        (self.batch, self.weights)
    }
}

impl<O> fmt::Debug for PhysicalBatch<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhysicalBatch").finish_non_exhaustive()
    }
}

/// One weight for each row of a physical batch: 1 for a unit, 0 for padding. The padding comes
/// last.
///
/// # Privacy
///
/// The sum of the weights is the number of units and therefore private. A private step uses the
/// weights to exclude padding from the clipped sum and from every count.
#[derive(Clone)]
pub struct ExampleWeights {
    units: usize,
    rows: usize,
    device: Device,
}

impl ExampleWeights {
    pub(crate) fn new(units: usize, rows: usize, device: Device) -> Self {
        debug_assert!(0 < units && units <= rows, "{units} units in {rows} rows");
        Self { units, rows, device }
    }

    /// Returns the number of rows, padding included. Public only if batches are padded.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns whether each row is padding, on the host.
    pub fn is_padding(&self) -> impl Iterator<Item = bool> + use<> {
        let units = self.units;
        (0..self.rows).map(move |row| row >= units)
    }

    /// Returns the weights as a tensor on the device of the batch.
    ///
    /// # Shapes
    ///
    /// - output: `[rows]`
    pub fn tensor(&self) -> Tensor<1> {
        let weights: Vec<f32> = self.is_padding().map(|p| if p { 0.0 } else { 1.0 }).collect();
        Tensor::from_data(TensorData::from(weights.as_slice()), &self.device)
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
        if self.units == self.rows {
            return losses;
        }
        let padding: Vec<bool> = self.is_padding().collect();
        let padding: Tensor<1, Bool> =
            Tensor::from_data(TensorData::from(padding.as_slice()), &losses.device());
        losses.mask_fill(padding, 0.0)
    }
}

impl fmt::Debug for ExampleWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExampleWeights").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_devices::devices;

    #[test]
    fn padding_rows_have_weight_zero_and_come_last() {
        for device in devices() {
            let weights = ExampleWeights::new(2, 4, device);
            assert_eq!(weights.rows(), 4);
            weights.tensor().into_data().assert_eq(&TensorData::from([1f32, 1.0, 0.0, 0.0]), true);
            assert_eq!(weights.is_padding().collect::<Vec<_>>(), [false, false, true, true]);
        }
    }

    #[test]
    fn padding_rows_have_zero_loss_and_gradient_even_if_undefined() {
        for device in devices() {
            let losses: Tensor<1> =
                Tensor::from_floats([2.0, f32::NAN, f32::INFINITY], &device.autodiff())
                    .require_grad();
            let weights = ExampleWeights::new(1, 3, losses.device());
            let masked = weights.mask(losses.clone());
            masked.to_data().assert_eq(&TensorData::from([2f32, 0.0, 0.0]), true);
            let gradient = losses.grad(&masked.sum().backward()).unwrap();
            gradient.into_data().assert_eq(&TensorData::from([1f32, 0.0, 0.0]), true);
        }
    }

    #[test]
    #[should_panic(expected = "losses")]
    fn fewer_losses_than_rows_are_refused() {
        let device = devices().remove(0);
        let losses = Tensor::<1>::from_floats([1.0], &device);
        let _ = ExampleWeights::new(1, 2, device).mask(losses);
    }

    #[test]
    fn debug_output_does_not_show_the_number_of_units() {
        let device = devices().remove(0);
        let (a, b) = (ExampleWeights::new(1, 4, device.clone()), ExampleWeights::new(3, 4, device));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}
