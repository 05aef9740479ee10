//! The primitives on Burn's high-level tensors.

use burn::backend::Dispatch;
use burn::module::Param;
use burn::tensor::{Int, Shape, Tensor};

use super::{Bias, Kept, LayerIds, ParametricOps, Patches, Primitive, Slot};

/// Calls a layer's operation so that its parameters get their gradients from a tap.
///
/// `forward` is Burn's operation; it sees the parameters as constants where they are trained. `kept` is
/// asked for what the gradient of the weight needs, if it is trained; see [`Primitive`].
///
/// The batch must be axis 0 of the output and of what is kept.
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
        // What would be kept is dropped first, so that the operation may work in place.
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

fn bias_of(bias: Option<Tensor<1>>) -> Bias<Dispatch> {
    match bias {
        Some(bias) => Bias::Present(bias.into_dispatch()),
        None => Bias::Absent,
    }
}

/// The convolution that `primitive` says, with parameters that are constants: gradients reach the input
/// alone.
///
/// # Shapes
///
/// As Burn's operation of that name.
pub(crate) fn convolution<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<D>,
    bias: Option<Tensor<1>>,
    primitive: Primitive,
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::convolution(
        input.into_dispatch(),
        weight.into_dispatch(),
        bias_of(bias),
        primitive,
    ))
}

/// The same values outside of the graph.
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

/// Keeps what a deformable convolution samples.
pub(crate) fn keep_deformed(
    input: Tensor<4>,
    offset: Tensor<4>,
    mask: Option<Tensor<4>>,
) -> Kept<Dispatch> {
    let (input, offset) = (input.into_dispatch(), offset.into_dispatch());
    match mask {
        Some(mask) => Kept::Modulated(input, offset, mask.into_dispatch()),
        None => Kept::Deformed(input, offset),
    }
}

/// The gradient of a weight, summed over the batch, flattened: `[values]`. All tensors are on a device
/// without autodiff.
pub(crate) fn weight_gradient<const D: usize>(
    output_grad: Tensor<D>,
    kept: Kept<Dispatch>,
    weight: Shape,
    primitive: Primitive,
) -> Tensor<1> {
    let grad = Dispatch::weight_gradient(output_grad.into_dispatch(), kept, weight, primitive);
    Tensor::from_dispatch(grad)
}

/// Takes a recorded tensor out of its slot, as a tensor of the backend of `witness`.
pub(crate) fn take<const D: usize>(witness: &Tensor<1>, slot: Slot) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::take_recorded(witness.clone().into_dispatch(), slot))
}

/// Takes a recorded tensor out of its slot, its rows flattened: `[batch_size, values]`.
pub(crate) fn take_rows(witness: &Tensor<1>, slot: Slot) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::take_recorded_rows(witness.clone().into_dispatch(), slot))
}

/// Takes recorded indices out of their slot.
pub(crate) fn take_ids(witness: &Tensor<1>, slot: Slot) -> Tensor<2, Int> {
    Tensor::from_dispatch(Dispatch::take_recorded_ids(witness.clone().into_dispatch(), slot))
}

/// The patches that the kernel of a convolution sees (im2col).
///
/// # Shapes
///
/// - input: `[batch_size, channels, …]` with one to three more axes, on a device without autodiff
/// - output: `[batch_size · groups, channels / groups · kernel values, positions]`
pub(crate) fn patches<const D: usize>(input: Tensor<D>, patches: &Patches) -> Tensor<3> {
    let dims = input.dims();
    let shape: [usize; 5] = std::array::from_fn(|axis| match axis {
        0 | 1 => dims[axis],
        _ if axis + D < 7 => 1,
        _ => dims[axis + D - 5],
    });
    patches_of_volumes(input.reshape(shape), patches)
}

fn patches_of_volumes(input: Tensor<5>, patches: &Patches) -> Tensor<3> {
    match Dispatch::native_patches(input.clone().into_dispatch(), patches.clone()) {
        Some(native) => Tensor::from_dispatch(native),
        None => patches.by_views(input),
    }
}

/// Squared norms of rows.
///
/// # Shapes
///
/// - rows: `[rows, values]`, on a device without autodiff
/// - output: `[rows]`
pub(crate) fn row_squared_norms(rows: Tensor<2>) -> Tensor<1> {
    match Dispatch::native_row_squared_norms(rows.clone().into_dispatch()) {
        Some(native) => Tensor::from_dispatch(native),
        None => {
            let [count, _] = rows.dims();
            rows.square().sum_dim(1).reshape([count])
        }
    }
}

/// Per example, `Σ_v ‖Σ_{t: ids[t] = v} rows[t]‖²`, if the backend has a way that is linear in the
/// positions.
///
/// # Shapes
///
/// - ids: `[batch_size, positions]`
/// - rows: `[batch_size, positions, features]`
/// - output: `[batch_size]`
pub(crate) fn indexed_squared_norms(ids: Tensor<2, Int>, rows: Tensor<3>) -> Option<Tensor<1>> {
    Dispatch::native_indexed_squared_norms(ids.into_dispatch(), rows.into_dispatch())
        .map(Tensor::from_dispatch)
}
