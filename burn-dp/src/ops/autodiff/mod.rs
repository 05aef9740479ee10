//! The hand-written backward steps.

mod tap;
mod unary;

use burn::backend::{
    TensorMetadata,
    tensor::{FloatTensor, QuantizedTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Bias, Convolution, Kept, LayerIds, ParametricOps, Primitive};
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
