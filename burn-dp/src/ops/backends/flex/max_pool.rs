//! Max pooling.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{DType, Shape, TensorData};
use burn_dp_kernels::MaxPool;

use super::rows::in_one_piece;
use crate::ops::Windows;

/// Returns the largest value of each window, or the input if the kernel does not handle it.
pub(super) fn maxima(
    input: FloatTensor<Flex>,
    windows: Windows,
) -> Result<FloatTensor<Flex>, FloatTensor<Flex>> {
    let Some((pool, output)) = pool(&input, windows) else { return Err(input) };
    let input = in_one_piece(input);
    Ok(tensor(pool.forward(input.storage::<f32>()), output))
}

/// Returns the gradient of the input of [`maxima`], or `None` if the kernel does not handle it.
pub(super) fn input_gradient(
    input: &FloatTensor<Flex>,
    grad: &FloatTensor<Flex>,
    windows: Windows,
) -> Option<FloatTensor<Flex>> {
    let (pool, _) = pool(input, windows)?;
    let shape = input.shape();
    let [input, grad] = [input, grad].map(|tensor| in_one_piece(tensor.clone()));
    Some(tensor(pool.input_gradient(input.storage::<f32>(), grad.storage::<f32>()), shape))
}

/// Returns the pooling of the planes of a tensor and the shape of its output.
fn pool(input: &FloatTensor<Flex>, windows: Windows) -> Option<(MaxPool, Shape)> {
    let shape = input.shape();
    let Windows { kernel, stride, padding, dilation } = windows;
    let [batch_size, channels, height, width] = shape.dims();
    let pool = MaxPool { plane: [height, width], kernel, stride, padding, dilation };
    let [rows, columns] = pool.output()?;
    let handled = input.dtype() == DType::F32
        && shape.num_elements() > 0
        && i32::try_from(height * width).is_ok();
    handled.then(|| (pool, Shape::new([batch_size, channels, rows, columns])))
}

fn tensor(values: Vec<f32>, shape: Shape) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(values, shape))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::FloatDType;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::backends::flex::arbitrary;
    use crate::ops::max_pool as oracle;

    fn pair(range: std::ops::Range<usize>) -> [std::ops::Range<usize>; 2] {
        [range.clone(), range]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_maxima_and_gradients_equal_the_operations_of_burn(
            [height, width] in pair(6..20),
            kernel in pair(1..4),
            stride in pair(1..4),
            padding in pair(0..2),
            dilation in pair(1..3),
            is_view: bool,
        ) {
            let windows = Windows { kernel, stride, padding, dilation };
            let values = arbitrary([3, 2, width, height]).into_data();
            let input = FloatTensor::<Flex>::from_data(values);
            let input = match is_view {
                true => input.transpose(2, 3),
                false => Flex::float_reshape(input, Shape::new([3, 2, height, width])),
            };
            let output = maxima(input.clone(), windows).unwrap();
            let expected = oracle::maxima::<Flex>(input.clone(), windows);
            output.clone().into_data().assert_eq(&expected.into_data(), true);

            let grad = Flex::float_mul(output.clone(), output);
            let gradient = input_gradient(&input, &grad, windows).unwrap();
            let expected = oracle::input_gradient::<Flex>(input, grad, windows);
            gradient.into_data().assert_approx_eq::<f32>(
                &expected.into_data(), burn::tensor::Tolerance::default(),
            );
        }
    }

    #[test]
    fn other_types_and_empty_tensors_are_left_to_burn() {
        let windows = Windows { kernel: [2, 2], stride: [2, 2], padding: [0, 0], dilation: [1, 1] };
        let input = FloatTensor::<Flex>::from_data(arbitrary([1, 1, 4, 4]).into_data());
        let wide = Flex::float_cast(input, FloatDType::F64);
        assert!(maxima(wide.clone(), windows).is_err());
        assert!(input_gradient(&wide, &wide, windows).is_none());
        let empty = FloatTensor::<Flex>::zeros(Shape::new([0, 1, 4, 4]), DType::F32);
        assert!(maxima(empty, windows).is_err());
    }
}
