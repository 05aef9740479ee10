//! Softmax and normalization over the last axis.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{DType, TensorData};

use crate::ops::rows as by_operations;

/// Returns the softmax over the last axis.
pub(super) fn softmax(input: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let Some(length) = row_length(&input) else {
        return by_operations::softmax::<Flex>(input);
    };
    let mut values = in_one_piece(input);
    burn_dp_kernels::softmax(values.storage_mut::<f32>(), length);
    values
}

/// Returns the gradient of the input of [`softmax`].
pub(super) fn softmax_input_gradient(
    output: FloatTensor<Flex>,
    grad: FloatTensor<Flex>,
) -> FloatTensor<Flex> {
    let (Some(length), Some(outputs)) = (row_length(&grad), output.as_slice::<f32>()) else {
        return by_operations::softmax_input_gradient::<Flex>(output, grad);
    };
    let mut grad = in_one_piece(grad);
    burn_dp_kernels::softmax_gradient(outputs, grad.storage_mut::<f32>(), length);
    grad
}

/// Returns normalized values over the last axis, and their scale factors.
pub(super) fn normalize(
    input: FloatTensor<Flex>,
    epsilon: f64,
) -> (FloatTensor<Flex>, FloatTensor<Flex>) {
    let Some(length) = row_length(&input) else {
        return by_operations::normalize::<Flex>(input, epsilon);
    };
    let mut shape = input.shape();
    let mut values = in_one_piece(input);
    let mut scales = vec![0.0; shape.num_elements() / length];
    burn_dp_kernels::normalize(values.storage_mut::<f32>(), length, epsilon, &mut scales);
    let last = shape.num_dims() - 1;
    shape[last] = 1;
    (values, FloatTensor::<Flex>::from_data(TensorData::new(scales, shape)))
}

/// Returns the gradient of the input of [`normalize`].
pub(super) fn normalize_input_gradient(
    output: FloatTensor<Flex>,
    scale: FloatTensor<Flex>,
    grad: FloatTensor<Flex>,
) -> FloatTensor<Flex> {
    let (Some(length), Some(outputs), Some(scales)) =
        (row_length(&grad), output.as_slice::<f32>(), scale.as_slice::<f32>())
    else {
        return by_operations::normalize_input_gradient::<Flex>(output, scale, grad);
    };
    let mut grad = in_one_piece(grad);
    burn_dp_kernels::normalize_gradient(outputs, scales, grad.storage_mut::<f32>(), length);
    grad
}

/// Returns the length of the rows of a tensor that the kernels handle.
fn row_length(tensor: &FloatTensor<Flex>) -> Option<usize> {
    let length = *tensor.shape().last()?;
    (tensor.dtype() == DType::F32 && tensor.shape().num_elements() > 0).then_some(length)
}

/// Returns a tensor whose memory holds only its values, in order. If no other tensor shares the
/// memory of the input, that memory is reused and not copied before it is written to.
pub(super) fn in_one_piece(tensor: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let count = tensor.shape().num_elements();
    match tensor.as_slice::<f32>() {
        Some(_) if tensor.storage::<f32>().len() == count => tensor,
        Some(values) => {
            FloatTensor::<Flex>::from_data(TensorData::new(values.to_vec(), tensor.shape()))
        }
        None => tensor.to_contiguous(),
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::{Shape, Slice, Tolerance};
    use proptest::prelude::*;

    use super::*;
    use crate::ops::backends::flex::arbitrary;

    /// Values and, from another part of the same memory, gradients: contiguous or as views.
    fn operands(rows: usize, length: usize, view: usize) -> [FloatTensor<Flex>; 2] {
        [0.1, 0.7].map(|phase| {
            let tensor =
                |shape| FloatTensor::<Flex>::from_data((arbitrary(shape) + phase).into_data());
            match view {
                0 => tensor([rows, length]),
                1 => tensor([length, rows]).transpose(0, 1),
                2 => Flex::float_slice(
                    tensor([rows + 2, length]),
                    &[Slice::from(1..rows as isize + 1)],
                ),
                _ => {
                    Flex::float_slice(tensor([rows + 2, length]), &[Slice::from(0..rows as isize)])
                }
            }
        })
    }

    fn assert_equal(native: FloatTensor<Flex>, burn: FloatTensor<Flex>) {
        assert_eq!(native.shape(), burn.shape());
        let tolerance = Tolerance::<f32>::absolute(2e-4).set_relative(2e-4);
        native.into_data().assert_approx_eq::<f32>(&burn.into_data(), tolerance);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_rows_and_gradients_equal_the_operations_of_burn(
            rows in 1usize..40,
            length in 2usize..80,
            view in 0usize..4,
            shared: bool,
        ) {
            let [input, grad] = operands(rows, length, view);
            let kept = shared.then(|| (input.clone(), grad.clone()));

            let expected = by_operations::softmax::<Flex>(copy(&input));
            let output = softmax(input.clone());
            assert_equal(output.clone(), expected.clone());
            let expected = by_operations::softmax_input_gradient::<Flex>(expected, copy(&grad));
            assert_equal(softmax_input_gradient(output, grad.clone()), expected);

            let (expected, of_burn) = by_operations::normalize::<Flex>(copy(&input), 1e-3);
            let before = kept.as_ref().map(|(input, grad)| (copy(input), copy(grad)));
            let (output, scale) = normalize(input, 1e-3);
            assert_equal(output.clone(), expected.clone());
            assert_equal(scale.clone(), of_burn.clone());
            let expected =
                by_operations::normalize_input_gradient::<Flex>(expected, of_burn, copy(&grad));
            assert_equal(normalize_input_gradient(output, scale, grad), expected);
            // Shared memory is not changed.
            if let (Some((input, grad)), Some((input_before, grad_before))) = (kept, before) {
                input.into_data().assert_eq(&input_before.into_data(), true);
                grad.into_data().assert_eq(&grad_before.into_data(), true);
            }
        }
    }

    /// Returns the same values in other memory.
    fn copy(tensor: &FloatTensor<Flex>) -> FloatTensor<Flex> {
        FloatTensor::<Flex>::from_data(tensor.clone().into_data())
    }

    #[test]
    fn other_types_and_empty_rows_are_left_to_burn() {
        let wide = Flex::float_cast(operands(3, 5, 0)[0].clone(), burn::tensor::FloatDType::F64);
        assert_eq!(softmax(wide.clone()).dtype(), DType::F64);
        assert_eq!(normalize(wide, 1e-3).0.dtype(), DType::F64);
        let empty = FloatTensor::<Flex>::zeros(Shape::new([0, 5]), DType::F32);
        assert_eq!(softmax(empty).shape(), Shape::new([0, 5]));
    }
}
