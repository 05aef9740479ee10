//! The forward pass of a layer with parameters.

use burn::backend::Dispatch;
use burn::module::{Param, ParamId};
use burn::tensor::{Int, Tensor};

use super::functions::bias_of;
use super::{Kept, LayerIds, ParametricOps, Primitive};

/// Applies a layer's operation so that a tap computes the gradients of its parameters.
///
/// `forward` is Burn's operation; its parameters are constants if any of them is trained. `kept`
/// returns the tensors that the gradient of the weight is computed from (see [`Primitive`]); it is
/// called only if the weight is trained.
///
/// The batch must be axis 0 of the output and of the kept tensors.
pub(crate) fn apply<const W: usize, const D: usize>(
    weight: &Param<Tensor<W>>,
    bias: Option<&Param<Tensor<1>>>,
    primitive: Primitive,
    kept: impl FnOnce() -> Kept<Dispatch>,
    forward: impl FnOnce(Tensor<W>, Option<Tensor<1>>) -> Tensor<D>,
) -> Tensor<D> {
    let layer = LayerIds { weight: weight.id, bias: bias.map(|bias| bias.id) };
    let (weight, bias) = (weight.val(), bias.map(Param::val));
    let weight_trained = weight.is_tracked();
    if !weight_trained && !bias.as_ref().is_some_and(Tensor::is_tracked) {
        // Dropped before the call, so that the operation may work in place.
        drop(kept);
        return forward(weight, bias);
    }
    let output = forward(constant(&weight), bias.as_ref().map(constant));
    let kept = if weight_trained { kept() } else { Kept::Nothing };
    Tensor::from_dispatch(Dispatch::tap(
        output.into_dispatch(),
        weight.into_dispatch(),
        bias_of(bias),
        kept,
        layer,
        primitive,
    ))
}

/// Returns `output`, which holds random values that belong to no unit. A private backward pass
/// through it is rejected; an ordinary one is not changed.
///
/// `layer` identifies the layer that drew them.
pub(crate) fn mark_unkeyed<const D: usize>(output: Tensor<D>, layer: ParamId) -> Tensor<D> {
    let device = output.device();
    if !device.is_autodiff() {
        return output;
    }
    // Only the backward step of a tap with a tracked weight runs as a tap.
    let randomness = Tensor::<1>::zeros([1], (&device, output.dtype()));
    Tensor::from_dispatch(Dispatch::tap(
        output.into_dispatch(),
        randomness.require_grad().into_dispatch(),
        bias_of(None),
        Kept::Nothing,
        LayerIds { weight: layer, bias: None },
        Primitive::Unkeyed,
    ))
}

/// Returns the same values outside the graph.
fn constant<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    tensor.clone().set_require_grad(false)
}

/// Keeps an input.
pub(crate) fn keep<const D: usize>(input: Tensor<D>) -> Kept<Dispatch> {
    Kept::One(input.into_dispatch())
}

/// Keeps indices.
pub(crate) fn keep_ids(ids: Tensor<2, Int>) -> Kept<Dispatch> {
    Kept::Ids(ids.into_dispatch())
}

/// Keeps the inputs of a deformable convolution.
pub(crate) fn keep_deformed(
    input: Tensor<4>,
    offset: Tensor<4>,
    mask: Option<Tensor<4>>,
) -> Kept<Dispatch> {
    let (input, offset) = (input.into_dispatch(), offset.into_dispatch());
    match mask {
        Some(mask) => Kept::Modulated(input, offset, mask.into_dispatch()),
        None => Kept::Two(input, offset),
    }
}

/// Keeps an input and the weight as it is stored.
pub(crate) fn keep_standardized<const D: usize>(
    input: Tensor<D>,
    weight: &Param<Tensor<D>>,
) -> Kept<Dispatch> {
    Kept::Two(input.into_dispatch(), constant(&weight.val()).into_dispatch())
}
