//! The operations of [`ParametricOps`] and [`LayerOps`] on Burn's high-level tensors.

use burn::backend::{Backend, Dispatch, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{DType, Int, Shape, Tensor};

use super::{
    Bias, Convolution, Kept, LayerOps, ParametricOps, Patches, Primitive, Slot, Windows, kernels,
};

pub(super) fn bias_of(bias: Option<Tensor<1>>) -> Bias<Dispatch> {
    match bias {
        Some(bias) => Bias::Present(bias.into_dispatch()),
        None => Bias::Absent,
    }
}

/// Returns `input @ weight + bias`, whose parameters are constants: only the input gets a gradient.
///
/// # Shapes
///
/// - input: `[batch_size, …, d_input]`
/// - weight: `[d_input, d_output]`
/// - output: `[batch_size, …, d_output]`
pub(crate) fn matrix_product<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::matrix_product(
        input.into_dispatch(),
        weight.into_dispatch(),
        bias_of(bias),
    ))
}

/// Returns `input ∘ weight + bias`, both along `axis`, whose parameters are constants: only the
/// input gets a gradient.
pub(crate) fn affine<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    axis: usize,
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::affine(
        input.into_dispatch(),
        weight.into_dispatch(),
        bias_of(bias),
        axis,
    ))
}

/// Applies a convolution whose parameters are constants: only the input gets a gradient.
///
/// # Shapes
///
/// As documented for Burn's operation of the same name.
pub(crate) fn convolution<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<D>,
    bias: Option<Tensor<1>>,
    convolution: Convolution,
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::convolution(
        input.into_dispatch(),
        weight.into_dispatch(),
        bias_of(bias),
        convolution,
    ))
}

/// Computes `input @ weight` with a packed, constant weight, which stays packed between the forward
/// and the backward pass.
///
/// # Shapes
///
/// - weight: `[d_input, d_output]`
/// - input: `[batch_size, …, d_input]`
/// - output: `[batch_size, …, d_output]`
pub(crate) fn packed_linear<const D: usize>(input: Tensor<D>, weight: Tensor<2>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::packed_linear(input.into_dispatch(), weight.into_dispatch()))
}

/// Returns the gradient of a weight, summed over the batch and flattened: `[values]`. All tensors
/// are on a device without autodiff.
pub(crate) fn weight_gradient<const D: usize>(
    output_grad: Tensor<D>,
    kept: Kept<Dispatch>,
    weight: Shape,
    primitive: Primitive,
) -> Tensor<1> {
    let grad = Dispatch::weight_gradient(output_grad.into_dispatch(), kept, weight, primitive);
    Tensor::from_dispatch(grad)
}

/// Returns the gradients of a stored weight from the gradients of the standardized one. All tensors
/// are on a device without autodiff.
///
/// # Shapes
///
/// - gradients, output: `[rows, values]`, the values in the order of the weight
/// - weight: `[channels_out, …]`, as it is stored
pub(crate) fn standardized_gradients<const D: usize>(
    gradients: Tensor<2>,
    weight: Tensor<D>,
    epsilon: f64,
) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::standardized_gradients(
        gradients.into_dispatch(),
        weight.into_dispatch(),
        epsilon,
    ))
}

/// Returns the gradients of the weight of a convolution for each example,
/// `[batch_size, groups, rows, channels]`, if the backend can compute them without patches. The
/// matrix of each group is the transposed weight: a row for each channel of the image and place of
/// the kernel, a column for each channel of the pixels.
///
/// # Shapes
///
/// - image: the tensor that the kernel slides over, `[batch_size, channels, …]`, on a device
///   without autodiff
/// - pixels: the tensor that its positions are paired with, `[batch_size, channels, …]`
/// - weight: `[channels of the pixels, channels of the image / groups, …]`
pub(crate) fn convolution_gradients<const D: usize>(
    image: Tensor<D>,
    pixels: Tensor<D>,
    weight: Shape,
    convolution: Convolution,
) -> Option<Tensor<4>> {
    let patches = convolution.patches(&weight, &pixels.shape());
    if let Some(gradients) = kernels::small_convolution_gradients(&image, &pixels, &patches) {
        return Some(gradients);
    }
    let (image, pixels) = (image.into_dispatch(), pixels.into_dispatch());
    Dispatch::native_convolution_gradients(image, pixels, weight, convolution)
        .map(Tensor::from_dispatch)
}

/// Returns the Gram matrices of the positions of each example, and their diagonals, if the backend
/// has a kernel for them. An entry is a sum of the products of the features, each of which is
/// rounded at most [`gram_roundings`](super::gram_roundings) times.
///
/// # Shapes
///
/// - values: `[batch_size, positions, features]`, on a device without autodiff
/// - output: `[batch_size, positions, positions]` and `[batch_size, positions]`
pub(crate) fn gram_matrices(values: Tensor<3>) -> Option<(Tensor<3>, Tensor<2>)> {
    let (matrices, diagonals) = Dispatch::native_gram(values.into_dispatch())?;
    Some((Tensor::from_dispatch(matrices), Tensor::from_dispatch(diagonals)))
}

/// Returns `Σ coefficients[i] left[i, t]ᵀ right[i, t]` over examples and positions, if the backend
/// has a kernel for it.
///
/// # Shapes
///
/// - left: `[batch_size, positions, rows]`, on a device without autodiff
/// - right: `[batch_size, positions, columns]`
/// - coefficients: `[batch_size]`
/// - output: `[rows, columns]`
pub(crate) fn weighted_outer_products(
    left: Tensor<3>,
    right: Tensor<3>,
    coefficients: Tensor<1>,
) -> Option<Tensor<2>> {
    let (left, right) = (left.into_dispatch(), right.into_dispatch());
    Dispatch::native_outer_products(left, right, coefficients.into_dispatch())
        .map(Tensor::from_dispatch)
}

/// Takes a recorded tensor out of its slot, as a tensor of the backend of `witness`.
pub(crate) fn take<const D: usize>(witness: &Tensor<1>, slot: Slot) -> Tensor<D> {
    Tensor::from_dispatch(take_dispatch(witness.clone(), slot))
}

/// Takes a recorded tensor out of its slot, with its shape and its rows flattened:
/// `[batch_size, values]`.
pub(crate) fn take_rows(witness: &Tensor<1>, slot: Slot) -> (Shape, Tensor<2>) {
    let tensor = take_dispatch(witness.clone(), slot);
    let shape = tensor.shape();
    let rows = Shape::new([shape[0], shape.iter().skip(1).product()]);
    (shape, Tensor::from_dispatch(reshape(tensor, rows)))
}

/// Stores rows as [`take_rows`] returned them, so that they can be taken again.
pub(crate) fn put(rows: Tensor<2>, shape: Shape) -> Slot {
    Slot::new(reshape(rows.into_dispatch(), shape))
}

/// Takes recorded indices out of their slot.
pub(crate) fn take_ids(witness: &Tensor<1>, slot: Slot) -> Tensor<2, Int> {
    Tensor::from_dispatch(Dispatch::take_recorded_ids(witness.clone().into_dispatch(), slot))
}

fn take_dispatch(witness: Tensor<1>, slot: Slot) -> FloatTensor<Dispatch> {
    match slot.try_take::<FloatTensor<Dispatch>>() {
        Ok(tensor) => tensor,
        Err(slot) => Dispatch::take_recorded(witness.into_dispatch(), slot),
    }
}

fn reshape(tensor: FloatTensor<Dispatch>, shape: Shape) -> FloatTensor<Dispatch> {
    fn generic<B: Backend>(tensor: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
        B::float_reshape(tensor, shape)
    }
    generic::<Dispatch>(tensor, shape)
}

/// Returns the patches under the kernel of a convolution (im2col).
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

/// Returns `Σ_v ‖Σ_{t: ids[t] = v} rows[t]‖²` for each example, if the backend has a method that is
/// linear in the number of positions.
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

/// Returns the softmax over the last axis.
pub(crate) fn row_softmax<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::row_softmax(input.into_dispatch()))
}

/// Returns values with zero mean and unit variance over the last axis.
pub(crate) fn row_normalize<const D: usize>(input: Tensor<D>, epsilon: f64) -> Tensor<D> {
    let (output, _) = Dispatch::row_normalize(input.into_dispatch(), epsilon);
    Tensor::from_dispatch(output)
}

/// Returns the largest value of each window, with the native kernel of the backend.
///
/// # Shapes
///
/// - input: `[batch_size, channels, height, width]`
pub(crate) fn window_maxima(input: Tensor<4>, windows: Windows) -> Tensor<4> {
    Tensor::from_dispatch(Dispatch::window_maxima(input.into_dispatch(), windows))
}

/// Casts to single precision: the precision of norms and sums, whatever the precision of the model.
pub(crate) fn single<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.dtype() == DType::F32 { tensor } else { tensor.cast(DType::F32) }
}
