//! The hand-written backward steps.

mod affine;
mod convolution;
mod matrix_product;
mod packed_linear;
mod tap;

use burn::backend::tensor::{FloatTensor, QuantizedTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Bias, Convolution, Kept, LayerIds, ParametricOps, Primitive};

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
        matrix_product::matrix_product::<B, C>(input, weight, bias)
    }

    fn affine(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        axis: usize,
    ) -> FloatTensor<Self> {
        affine::affine::<B, C>(input, weight, bias, axis)
    }

    fn convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Bias<Self>,
        convolution: Convolution,
    ) -> FloatTensor<Self> {
        convolution::convolution::<B, C>(input, weight, bias, convolution)
    }

    fn packed_linear(input: FloatTensor<Self>, weight: QuantizedTensor<Self>) -> FloatTensor<Self> {
        packed_linear::packed_linear::<B, C>(input, weight)
    }
}
