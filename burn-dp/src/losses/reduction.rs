//! The reduction of the values of an example to one value.

use burn::config::Config;
use burn::tensor::Tensor;

/// The reduction of the values of one example, over all axes except the batch, to one value.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum ExampleReduction {
    /// The mean over the positions of the example.
    Mean,
    /// The sum over the positions of the example. Longer examples have more weight.
    Sum,
}

impl ExampleReduction {
    /// Reduces all axes except the first.
    ///
    /// # Shapes
    ///
    /// - values: `[batch_size, …]`
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// Panics if an example has no position.
    pub(super) fn reduce<const D: usize>(self, values: Tensor<D>) -> Tensor<1> {
        let dims = values.dims();
        let (batch_size, positions) = (dims[0], dims[1..].iter().product::<usize>());
        assert!(positions > 0, "an example must have at least one value, got the shape {dims:?}");
        if batch_size == 0 {
            return no_losses(&values);
        }
        if positions == 1 {
            return values.reshape([batch_size]);
        }
        let values = values.reshape([batch_size, positions]);
        let losses = match self {
            Self::Mean => values.mean_dim(1),
            Self::Sum => values.sum_dim(1),
        };
        losses.reshape([batch_size])
    }

    /// Reduces the values that `errors` returns for predictions and targets of the same shape.
    ///
    /// # Shapes
    ///
    /// - predictions, targets: `[batch_size, …]`
    /// - output: `[batch_size]`
    ///
    /// # Panics
    ///
    /// Panics if the shapes differ.
    pub(super) fn of_errors<const D: usize>(
        self,
        predictions: Tensor<D>,
        targets: Tensor<D>,
        errors: impl FnOnce(Tensor<D>, Tensor<D>) -> Tensor<D>,
    ) -> Tensor<1> {
        assert_same_shape(predictions.dims(), targets.dims());
        match predictions.dims()[0] {
            0 => self.reduce(predictions),
            _ => self.reduce(errors(predictions, targets)),
        }
    }
}

/// Returns the losses of a batch without examples. Several backends have no kernels for empty
/// tensors.
pub(super) fn no_losses<const D: usize>(values: &Tensor<D>) -> Tensor<1> {
    Tensor::zeros([0], (&values.device(), values.dtype()))
}

/// Panics if the shapes differ. Burn would broadcast them, even over the batch.
pub(super) fn assert_same_shape<const D: usize>(predictions: [usize; D], targets: [usize; D]) {
    assert!(
        predictions == targets,
        "targets must have the shape of the predictions, {predictions:?}, got {targets:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_devices::cpu_devices;
    use burn::tensor::TensorData;

    #[test]
    fn all_axes_except_the_first_are_reduced() {
        for device in cpu_devices() {
            let values = Tensor::<3>::from_floats(
                [[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 8.0]]],
                &device,
            );
            let mean = ExampleReduction::Mean.reduce(values.clone()).into_data();
            mean.assert_eq(&TensorData::from([2.5f32, 2.0]), true);
            let sum = ExampleReduction::Sum.reduce(values).into_data();
            sum.assert_eq(&TensorData::from([10f32, 8.0]), true);
        }
    }

    #[test]
    fn one_axis_is_unchanged_and_an_empty_batch_stays_empty() {
        for device in cpu_devices() {
            let values = Tensor::<1>::from_floats([1.0, 2.0], &device);
            let losses = ExampleReduction::Mean.reduce(values).into_data();
            losses.assert_eq(&TensorData::from([1f32, 2.0]), true);
            let empty = Tensor::<2>::zeros([0, 3], &device);
            assert_eq!(ExampleReduction::Sum.reduce(empty).dims(), [0]);
        }
    }

    #[test]
    #[should_panic(expected = "at least one value")]
    fn example_without_values_is_refused() {
        let values = Tensor::<2>::zeros([2, 0], &cpu_devices()[0]);
        let _ = ExampleReduction::Mean.reduce(values);
    }
}
