//! The primitives on Burn's high-level tensors.

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use burn::tensor::ops::ConvOptions;

use super::{Bias, LayerIds, ParametricOps, Patches, Slot};

/// `input @ weight + bias`.
///
/// # Shapes
///
/// - input: `[batch_size, …, d_input]`
/// - weight: `[d_input, d_output]`
/// - bias: `[d_output]`
/// - output: `[batch_size, …, d_output]`
pub(crate) fn linear<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    layer: LayerIds,
) -> Tensor<D> {
    let output = Dispatch::parametric_linear(
        input.into_dispatch(),
        weight.into_dispatch(),
        lower(bias),
        layer,
    );
    Tensor::from_dispatch(output)
}

/// Two-dimensional convolution.
///
/// # Shapes
///
/// - input: `[batch_size, channels_in, height, width]`
/// - weight: `[channels_out, channels_in / groups, kernel_height, kernel_width]`
/// - bias: `[channels_out]`
/// - output: `[batch_size, channels_out, height_out, width_out]`
pub(crate) fn conv2d(
    input: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    options: ConvOptions<2>,
    layer: LayerIds,
) -> Tensor<4> {
    let output = Dispatch::parametric_conv2d(
        input.into_dispatch(),
        weight.into_dispatch(),
        lower(bias),
        options,
        layer,
    );
    Tensor::from_dispatch(output)
}

fn lower(bias: Option<Tensor<1>>) -> Bias<Dispatch> {
    match bias {
        Some(bias) => Bias::Present(bias.into_dispatch()),
        None => Bias::Absent,
    }
}

/// Takes a recorded tensor out of its slot, as a tensor of the backend of `witness`.
pub(crate) fn take<const D: usize>(witness: &Tensor<1>, slot: Slot) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::take_recorded(witness.clone().into_dispatch(), slot))
}

/// The patches that the kernel of a convolution sees (im2col).
///
/// # Shapes
///
/// - input: `[batch_size, channels, height, width]`, on a device without autodiff
/// - output: `[batch_size · groups, channels / groups · kernel_height · kernel_width, positions]`
pub(crate) fn patches(input: Tensor<4>, patches: &Patches) -> Tensor<3> {
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
