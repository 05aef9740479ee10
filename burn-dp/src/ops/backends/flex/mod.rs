//! Native kernels of Flex: one pass over memory, on all cores.
//!
//! Length: one method for each kernel of three traits, which only call the kernel's file.
//!
//! Each file contains one kernel, a plain function that can be used and tested on its own. It
//! returns `None` for tensors that it does not handle; the caller falls back to Burn's operations,
//! which are also the oracle of its tests.

mod axis;
mod convolution;
mod gram;
mod indexed_norms;
mod linear;
mod matrices;
mod max_pool;
mod patches;
mod recurrent;
mod row_norms;
mod rows;
mod tasks;

use std::ops::Range;

use burn::backend::{
    Flex, TensorMetadata,
    ops::{FloatTensorOps, ModuleOps},
    tensor::{FloatTensor, IntTensor},
};

use burn::tensor::Shape;
use burn_dp_kernels::Packed;
use rayon::prelude::*;

use crate::ops::primitives::{
    axes::{four_axes, sum_over_examples},
    scale,
};
use crate::ops::{
    Bias, Convolution, FusedOps, GateFunction, GruCell, Kept, LayerOps, LstmCell, ParametricOps,
    Patches, Primitive, Windows, max_pool as by_operations,
};

impl ParametricOps for Flex {
    fn matrix_product(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
    ) -> FloatTensor<Self> {
        let bias = bias.into_option();
        linear::forward(&input, &weight, bias.as_ref())
            .unwrap_or_else(|| Self::linear(input, weight, bias))
    }

    fn matrix_product_input_gradient(
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        linear::input_gradient(&weight, &grad)
            .unwrap_or_else(|| Self::linear_x_backward(weight, grad))
    }

    fn affine(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        axis: usize,
    ) -> FloatTensor<Self> {
        let bias = bias.into_option();
        let [.., inner] = four_axes(&input.shape(), Some(axis));
        axis::affine(input, &weight, bias.as_ref(), inner)
            .unwrap_or_else(|input| scale::affine::<Self>(input, weight, bias, axis))
    }

    fn convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        convolution: Convolution,
    ) -> FloatTensor<Self> {
        let bias = bias.into_option();
        convolution::forward(&input, &weight, bias.as_ref(), &convolution)
            .unwrap_or_else(|| convolution.forward::<Self>(input, weight, bias))
    }

    fn convolution_input_gradient(
        input: Shape,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        convolution: Convolution,
    ) -> FloatTensor<Self> {
        convolution::input_gradient(&input, &weight, &grad, &convolution)
            .unwrap_or_else(|| convolution.input_gradient::<Self>(input, weight, grad))
    }

    fn weight_gradient(
        output_grad: FloatTensor<Self>,
        kept: Kept<Self>,
        weight: Shape,
        primitive: Primitive,
    ) -> FloatTensor<Self> {
        let native = match (&primitive, &kept) {
            (
                Primitive::StandardizedConvolution { convolution, epsilon },
                Kept::Two(input, stored),
            ) => convolution::weight_gradient(input, &output_grad, &weight, convolution).map(
                |grad| {
                    let values = weight.num_elements();
                    let grad = Self::float_reshape(grad, Shape::new([1, values]));
                    let grad = Self::standardized_gradients(grad, stored.clone(), *epsilon);
                    Self::float_reshape(grad, Shape::new([values]))
                },
            ),
            (Primitive::Linear, Kept::One(input)) => linear::weight_gradient(input, &output_grad),
            (Primitive::TransposedLinear, Kept::One(input)) => {
                linear::weight_gradient(&output_grad, input)
            }
            (Primitive::Convolution { convolution, .. }, Kept::One(input)) => {
                convolution::weight_gradient(input, &output_grad, &weight, convolution)
            }
            (Primitive::Scale { axis, negative: false }, Kept::One(input)) => {
                let axes = four_axes(&input.shape(), *axis);
                axis::example_sums(input.clone(), Some(output_grad.clone()), axes)
                    .map(|sums| sum_over_examples::<Self>(sums, Some(1)))
            }
            _ => None,
        };
        native.unwrap_or_else(|| primitive.flat_weight_gradient::<Self>(kept, weight, output_grad))
    }

    fn bias_gradient(output_grad: FloatTensor<Self>, primitive: Primitive) -> FloatTensor<Self> {
        let shape = output_grad.shape();
        let axes = four_axes(&shape, primitive.bias_axis(shape.num_dims()));
        match axis::example_sums(output_grad.clone(), None, axes) {
            Some(sums) => sum_over_examples::<Self>(sums, Some(1)),
            None => primitive.bias_gradient::<Self>(output_grad),
        }
    }

    fn native_weighted_rows(
        coefficients: FloatTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        row_norms::weighted_rows(&coefficients, &rows)
    }

    fn native_axis_sums(values: FloatTensor<Self>) -> Option<FloatTensor<Self>> {
        let axes = values.shape().dims();
        axis::example_sums(values, None, axes)
    }

    fn native_axis_product_sums(
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        let axes = first.shape().dims();
        axis::example_sums(first, Some(second), axes)
    }

    fn native_patches(input: FloatTensor<Self>, patches: Patches) -> Option<FloatTensor<Self>> {
        patches::patches(input, &patches)
    }

    fn native_convolution_gradients(
        image: FloatTensor<Self>,
        pixels: FloatTensor<Self>,
        weight: Shape,
        convolution: Convolution,
    ) -> Option<FloatTensor<Self>> {
        convolution::example_gradients(&image, &pixels, &weight, &convolution)
    }

    fn native_outer_products(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        linear::outer_products(&left, &right, &coefficients)
    }

    fn native_gram(values: FloatTensor<Self>) -> Option<(FloatTensor<Self>, FloatTensor<Self>)> {
        gram::gram(values)
    }

    fn native_row_products(
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        gram::row_products(&first, &second)
    }

    fn native_row_squared_norms(rows: FloatTensor<Self>) -> Option<FloatTensor<Self>> {
        row_norms::row_squared_norms(rows)
    }

    fn native_indexed_squared_norms(
        ids: IntTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        indexed_norms::indexed_squared_norms(ids, rows)
    }
}

impl FusedOps for Flex {
    type Packed = Packed;

    fn pack(weight: &FloatTensor<Self>) -> Option<Packed> {
        recurrent::pack(weight)
    }

    fn product(
        left: &FloatTensor<Self>,
        weight: &Packed,
        bias: Option<&FloatTensor<Self>>,
    ) -> Option<FloatTensor<Self>> {
        recurrent::product(left, weight, bias)
    }

    fn gate(input: &FloatTensor<Self>, function: GateFunction) -> Option<FloatTensor<Self>> {
        recurrent::gate(input, function)
    }

    fn gate_backward(
        output: &FloatTensor<Self>,
        grad: &FloatTensor<Self>,
        function: GateFunction,
    ) -> Option<FloatTensor<Self>> {
        recurrent::gate_backward(output, grad, function)
    }

    fn lstm(
        projected: &FloatTensor<Self>,
        product: &FloatTensor<Self>,
        cell: &FloatTensor<Self>,
        lstm: LstmCell,
    ) -> Option<[FloatTensor<Self>; 4]> {
        recurrent::lstm(projected, product, cell, lstm)
    }

    fn lstm_backward(
        kept: [&FloatTensor<Self>; 3],
        grads: [&FloatTensor<Self>; 2],
        lstm: LstmCell,
    ) -> Option<[FloatTensor<Self>; 2]> {
        recurrent::lstm_backward(kept, grads, lstm)
    }

    fn gru(
        projected: &FloatTensor<Self>,
        product: &FloatTensor<Self>,
        hidden: &FloatTensor<Self>,
        gru: GruCell,
    ) -> Option<[FloatTensor<Self>; 2]> {
        recurrent::gru(projected, product, hidden, gru)
    }

    fn gru_backward(
        kept: [&FloatTensor<Self>; 3],
        grad: &FloatTensor<Self>,
        gru: GruCell,
    ) -> Option<[FloatTensor<Self>; 3]> {
        recurrent::gru_backward(kept, grad, gru)
    }

    fn examples_apart() -> Option<usize> {
        Some(recurrent::EXAMPLES_APART)
    }

    fn map_parts<T: Send, U: Send>(
        parts: Vec<T>,
        function: impl Fn(T) -> U + Send + Sync,
    ) -> Vec<U> {
        parts.into_par_iter().map(function).collect()
    }

    fn by_example(
        values: &[&FloatTensor<Self>],
        positions: usize,
        columns: Range<usize>,
    ) -> Option<FloatTensor<Self>> {
        recurrent::by_example(values, positions, columns)
    }
}

impl LayerOps for Flex {
    fn row_softmax(input: FloatTensor<Self>) -> FloatTensor<Self> {
        rows::softmax(input)
    }

    fn row_softmax_input_gradient(
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::softmax_input_gradient(output, grad)
    }

    fn row_normalize(
        input: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rows::normalize(input, epsilon)
    }

    fn row_normalize_input_gradient(
        output: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::normalize_input_gradient(output, scale, grad)
    }

    fn window_maxima(input: FloatTensor<Self>, windows: Windows) -> FloatTensor<Self> {
        max_pool::maxima(input, windows)
            .unwrap_or_else(|input| by_operations::maxima::<Self>(input, windows))
    }

    fn window_maxima_input_gradient(
        input: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        windows: Windows,
    ) -> FloatTensor<Self> {
        max_pool::input_gradient(&input, &grad, windows)
            .unwrap_or_else(|| by_operations::input_gradient::<Self>(input, grad, windows))
    }
}

/// A tensor of arbitrary values between -1 and 1.
#[cfg(test)]
fn arbitrary<const D: usize>(shape: [usize; D]) -> burn::tensor::Tensor<D> {
    crate::grads::oracle::numbers(shape, 0, &burn::tensor::Device::flex())
}
