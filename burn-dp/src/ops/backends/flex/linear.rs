//! Products of linear layers and of their gradients, straight from the memory of their factors.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{Shape, TensorData};

use burn_dp_kernels::{Matrix, add_product, weighted_product};

use super::matrices::{matrix, rows};

/// Returns `input @ weight + bias`.
pub(super) fn forward(
    input: &FloatTensor<Flex>,
    weight: &FloatTensor<Flex>,
    bias: Option<&FloatTensor<Flex>>,
) -> Option<FloatTensor<Flex>> {
    let bias = match bias {
        Some(bias) => Some(bias.as_slice::<f32>()?),
        None => None,
    };
    product(input, matrix(weight)?, bias)
}

/// Returns `grad @ weightᵀ`.
pub(super) fn input_gradient(
    weight: &FloatTensor<Flex>,
    grad: &FloatTensor<Flex>,
) -> Option<FloatTensor<Flex>> {
    product(grad, matrix(weight)?.transpose(), None)
}

/// Returns `Σ left[i]ᵀ right[i]` over all rows, flattened.
pub(super) fn weight_gradient(
    left: &FloatTensor<Flex>,
    right: &FloatTensor<Flex>,
) -> Option<FloatTensor<Flex>> {
    let (left, right) = (rows(left)?, rows(right)?);
    let sums = weighted_product(left, right, None);
    let shape = Shape::new([sums.len()]);
    Some(FloatTensor::<Flex>::from_data(TensorData::new(sums, shape)))
}

/// Returns `Σ coefficients[i] left[i, t]ᵀ right[i, t]`, `[rows, columns]`.
pub(super) fn outer_products(
    left: &FloatTensor<Flex>,
    right: &FloatTensor<Flex>,
    coefficients: &FloatTensor<Flex>,
) -> Option<FloatTensor<Flex>> {
    let (left, right) = (rows(left)?, rows(right)?);
    let sums = weighted_product(left, right, Some(coefficients.as_slice::<f32>()?));
    let ([_, height], [_, width]) = (left.dims(), right.dims());
    let data = TensorData::new(sums, [height, width]);
    Some(FloatTensor::<Flex>::from_data(data))
}

/// Returns the product of the rows of a tensor with a matrix.
fn product(
    left: &FloatTensor<Flex>,
    right: Matrix,
    bias: Option<&[f32]>,
) -> Option<FloatTensor<Flex>> {
    let mut shape = left.shape();
    let left = rows(left)?;
    let ([height, _], [_, columns]) = (left.dims(), right.dims());
    let mut sums = match bias {
        Some(bias) => bias.repeat(height),
        None => vec![0.0; height * columns],
    };
    add_product(left, right, &mut sums);
    let last = shape.num_dims() - 1;
    shape[last] = columns;
    Some(FloatTensor::<Flex>::from_data(TensorData::new(sums, shape)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::ops::ModuleOps;
    use burn::tensor::Tolerance;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::backends::flex::arbitrary;
    use crate::ops::{Kept, Primitive};

    fn tensor<const D: usize>(shape: [usize; D], phase: f32) -> FloatTensor<Flex> {
        FloatTensor::<Flex>::from_data((arbitrary(shape) + phase).into_data())
    }

    fn assert_equal(native: FloatTensor<Flex>, burn: FloatTensor<Flex>) {
        let tolerance = Tolerance::<f32>::absolute(1e-4).set_relative(1e-4);
        assert_eq!(native.shape(), burn.shape());
        native.into_data().assert_approx_eq::<f32>(&burn.into_data(), tolerance);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 60, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_linear_layers_equal_linear_layers_of_burn(
            batch_size in 1usize..6,
            positions in 1usize..40,
            sizes in [1usize..90, 1usize..90],
            with_bias: bool,
            transposed: bool,
        ) {
            let [d_input, d_output] = sizes;
            let input = tensor([batch_size, positions, d_input], 0.1);
            let grad = tensor([batch_size, positions, d_output], 0.3);
            let weight = match transposed {
                true => tensor([d_output, d_input], 0.2).transpose(0, 1),
                false => tensor([d_input, d_output], 0.2),
            };
            let bias = with_bias.then(|| tensor([d_output], 0.4));
            let native = forward(&input, &weight, bias.as_ref()).unwrap();
            assert_equal(native, Flex::linear(input.clone(), weight.clone(), bias));
            let native = input_gradient(&weight, &grad).unwrap();
            assert_equal(native, Flex::linear_x_backward(weight, grad.clone()));

            let shape = Shape::new(sizes);
            let native = weight_gradient(&input, &grad).unwrap();
            let kept = Kept::One(input.clone());
            let primitive = Primitive::Linear;
            let burn = primitive.flat_weight_gradient::<Flex>(kept, shape, grad.clone());
            assert_equal(native, burn.clone());
            // With coefficients of one, the products of the examples add up to the gradient.
            let ones = FloatTensor::<Flex>::from_data(TensorData::ones::<f32, _>([batch_size]));
            let native = outer_products(&input, &grad, &ones).unwrap();
            assert_equal(native.reshape(Shape::new([d_input * d_output])), burn);
        }
    }
}
