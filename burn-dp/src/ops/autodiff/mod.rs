//! The hand-written backward steps.

mod tap;
mod unary;

use burn::backend::{
    TensorMetadata,
    tensor::{FloatTensor, QuantizedTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::recurrent::{Value, recurrent_with_gradient};
use super::{
    Bias, Convolution, FusedOps, GateFunction, GateParameters, Kept, LayerIds, LayerOps,
    ParametricOps, Primitive, Recurrence, Windows,
};
use unary::unary;

/// The parameters are constants: the only parent is the input. Burn's own convolution keeps its
/// input for the gradient of the weight. Here the tap keeps the input, and only if the weight is
/// trained.
impl<B: ParametricOps, C: CheckpointStrategy> ParametricOps for Autodiff<B, C> {
    fn tap(
        output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        kept: Kept<Self>,
        layer: LayerIds,
        primitive: Primitive,
    ) -> FloatTensor<Self> {
        tap::tap::<B, C>(output, weight, bias, kept, layer, primitive)
    }

    fn matrix_product(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
    ) -> FloatTensor<Self> {
        let (input, node) = input.into_parts();
        let weight = weight.into_primitive();
        let output = B::matrix_product(input, weight.clone(), bias.into_inner());
        unary::<B, C, _>(node, output, weight, B::matrix_product_input_gradient)
    }

    fn affine(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        axis: usize,
    ) -> FloatTensor<Self> {
        let (input, node) = input.into_parts();
        let weight = weight.into_primitive();
        let output = B::affine(input, weight.clone(), bias.into_inner(), axis);
        unary::<B, C, _>(node, output, (weight, axis), |(weight, axis), grad| {
            B::affine(grad, weight, Bias::Absent, axis)
        })
    }

    fn convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        convolution: Convolution,
    ) -> FloatTensor<Self> {
        let (input, node) = input.into_parts();
        let weight = weight.into_primitive();
        let kept = (input.shape(), weight.clone(), convolution.clone());
        let output = B::convolution(input, weight, bias.into_inner(), convolution);
        unary::<B, C, _>(node, output, kept, |(input, weight, convolution), grad| {
            B::convolution_input_gradient(input, weight, grad, convolution)
        })
    }

    /// Burn's product with an unpacked weight keeps that weight, as large as a dense one, until the
    /// backward pass. This one keeps the packed weight and unpacks it again.
    fn packed_linear(input: FloatTensor<Self>, weight: QuantizedTensor<Self>) -> FloatTensor<Self> {
        let (input, node) = input.into_parts();
        let output = B::packed_linear(input, weight.clone());
        unary::<B, C, _>(node, output, weight, B::packed_linear_input_gradient)
    }
}

/// The recurrent primitive has its own backward step.
impl<B: LayerOps, C: CheckpointStrategy> FusedOps for Autodiff<B, C> {
    type Packed = ();
}

impl<B: LayerOps, C: CheckpointStrategy> LayerOps for Autodiff<B, C> {
    fn parametric_recurrent(
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        cell: FloatTensor<Self>,
        of_input: GateParameters<Self>,
        of_hidden: GateParameters<Self>,
        recurrence: Recurrence,
    ) -> FloatTensor<Self> {
        let operands = [input, hidden, cell];
        recurrent_with_gradient::<B, C>(operands, [of_input, of_hidden], recurrence)
    }

    fn activation(input: FloatTensor<Self>, function: GateFunction) -> FloatTensor<Self> {
        let (input, node) = input.into_parts();
        let output = B::activation(input, function);
        unary::<B, C, _>(node, output.clone(), (output, function), |(output, function), grad| {
            function.backward::<B>(Value(output), Value(grad)).0
        })
    }

    fn row_softmax(input: FloatTensor<Self>) -> FloatTensor<Self> {
        let (input, node) = input.into_parts();
        let output = B::row_softmax(input);
        unary::<B, C, _>(node, output.clone(), output, B::row_softmax_input_gradient)
    }

    fn row_normalize(
        input: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (input, node) = input.into_parts();
        let (output, scale) = B::row_normalize(input, epsilon);
        let constant = FloatTensor::<Self>::new(scale.clone());
        let kept = (output.clone(), scale);
        let output = unary::<B, C, _>(node, output, kept, |(output, scale), grad| {
            B::row_normalize_input_gradient(output, scale, grad)
        });
        (output, constant)
    }

    fn window_maxima(input: FloatTensor<Self>, windows: Windows) -> FloatTensor<Self> {
        let (input, node) = input.into_parts();
        let output = B::window_maxima(input.clone(), windows);
        unary::<B, C, _>(node, output, (input, windows), |(input, windows), grad| {
            B::window_maxima_input_gradient(input, grad, windows)
        })
    }
}
