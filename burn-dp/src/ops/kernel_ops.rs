//! Per-example norms and gradients by kernels, on devices that compile kernels.

use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::{DType, Device, Shape, Tensor};

use super::{Patches, additions, has_kernels, row_sums};

/// Number of values of a row whose squares one group of units adds.
pub(crate) const PART: usize = 1 << 16;

/// Number of units in a group. Each adds every `UNITS`-th square of a part, and the first one adds
/// their sums.
pub(crate) const UNITS: usize = 64;

/// Number of squares that a unit adds one after another.
pub(crate) const RUN: usize = 32;

/// What a kernel does to a sum of squares to round it up.
#[derive(Clone, Copy, Debug)]
pub struct RoundedUp {
    /// The factor of the sum.
    pub factor: f32,
    /// What is added to the product.
    pub added: f32,
}

impl RoundedUp {
    /// The sum as it is.
    const NO: Self = Self { factor: 1.0, added: 0.0 };

    /// Covers the rounding of `values` squares and their sum, and adds `added` for what they lose
    /// to underflow.
    fn of_squares(values: usize, added: f64) -> Self {
        // One for each addition, one for the squares, the rest for the product and the sum.
        let rounding = (roundings(values) + 4) as f64 * f64::from(f32::EPSILON);
        // Rounded up: `next_up` covers the cast.
        Self { factor: ((1.0 + rounding) as f32).next_up(), added: (added as f32).next_up() }
    }
}

/// Kernels for per-example norms and gradients.
///
/// An implementation detail that is public because Burn's dispatch needs it to be.
#[doc(hidden)]
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Autodiff,
    Fusion: cfg(feature = "fusion"),
    Remote: cfg(feature = "remote"),
)]
pub trait KernelOps: Backend {
    /// Returns the sums of the squares of each part of `PART` values, rounded up: `[rows, values]`
    /// to `[rows, parts]`. Only for devices that `has_kernels` names.
    #[fusion(dtype = DType::F32, shape = parts_shape(rows))]
    #[allow(unused_variables)]
    fn native_part_norms(rows: FloatTensor<Self>, rounded: RoundedUp) -> FloatTensor<Self> {
        unreachable!("the backend has no kernels for norms")
    }

    /// Returns the products of the squared norms of two rows, each rounded up: `[rows, values]`
    /// twice to `[rows]`. No row has more than `PART` values. Only for devices that `has_kernels`
    /// names.
    #[fusion(dtype = DType::F32, shape = Shape::new([left[0]]))]
    #[allow(unused_variables)]
    fn native_norm_products(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        left_rounded: RoundedUp,
        right_rounded: RoundedUp,
    ) -> FloatTensor<Self> {
        unreachable!("the backend has no kernels for norms")
    }

    /// Returns the gradients of the weight of a convolution for each example: `[batch_size, groups,
    /// rows, columns]`, a row for each channel of the image and place of the kernel, a column for
    /// each channel of the pixels. Only for devices that `has_kernels` names, and for kernels of at
    /// most `MAX_WIDTH` values in a row.
    ///
    /// - image, pixels: `[batch_size, channels, depth, height, width]`
    #[fusion(dtype = DType::F32, shape = gradients_shape(image, pixels, &patches))]
    #[allow(unused_variables)]
    fn native_small_convolution_gradients(
        image: FloatTensor<Self>,
        pixels: FloatTensor<Self>,
        patches: Patches,
    ) -> FloatTensor<Self> {
        unreachable!("the backend has no kernels for gradients")
    }
}

/// Returns the shape of the gradients of a convolution for each example.
pub(super) fn gradients_shape(image: &Shape, pixels: &Shape, patches: &Patches) -> Shape {
    let groups = patches.options.groups;
    let places: usize = patches.kernel_size.iter().product();
    Shape::new([image[0], groups, image[1] / groups * places, pixels[1] / groups])
}

/// Returns the gradients of the weight of a small convolution for each example, by a kernel of the
/// device that adds all pixels without patches, if it has one and the matrix of a group is so small
/// that a product of matrices would be mostly padding.
///
/// # Shapes
///
/// - image, pixels: `[batch_size, channels, …]`, on a device without autodiff
/// - output: `[batch_size, groups, rows, columns]`
pub(super) fn small_convolution_gradients<const D: usize>(
    image: &Tensor<D>,
    pixels: &Tensor<D>,
    patches: &Patches,
) -> Option<Tensor<4>> {
    /// Number of values of the gradient in a group.
    const MAX_VALUES: usize = 1 << 10;
    /// Number of values in a row of the kernel, which are in registers.
    const MAX_WIDTH: usize = 8;
    let shape = gradients_shape(&image.shape(), &pixels.shape(), patches);
    let values = [image.shape(), pixels.shape()].map(|shape| shape.num_elements());
    let fits = image.dtype() == DType::F32
        && pixels.dtype() == DType::F32
        && shape[2] * shape[3] <= MAX_VALUES
        && patches.kernel_size[2] <= MAX_WIDTH
        // Places are counted in 32 bits.
        && values.into_iter().chain([shape.num_elements()]).all(|values| values < 1 << 31)
        && shape.num_elements() > 0;
    if !has_kernels(&image.device()) || !fits {
        return None;
    }
    let five_axes = |tensor: &Tensor<D>| {
        let mut shape = [1; 5];
        shape[..2].copy_from_slice(&tensor.dims()[..2]);
        shape[5 - (D - 2)..].copy_from_slice(&tensor.dims()[2..]);
        tensor.clone().reshape::<5, _>(shape).into_dispatch()
    };
    let (image, pixels) = (five_axes(image), five_axes(pixels));
    let gradients = Dispatch::native_small_convolution_gradients(image, pixels, patches.clone());
    Some(Tensor::from_dispatch(gradients))
}

/// Returns the shape of the sums of the parts of rows.
pub(super) fn parts_shape(rows: &Shape) -> Shape {
    Shape::new([rows[0], rows[1].div_ceil(PART).max(1)])
}

/// Returns an upper bound on the roundings of a square in the kernel and in the sum of the parts.
fn roundings(values: usize) -> usize {
    let of_unit = values.min(PART).div_ceil(UNITS);
    RUN.min(of_unit) + of_unit.div_ceil(RUN) + UNITS + additions(values.div_ceil(PART))
}

/// Returns the squared norms of rows, rounded up, plus `added`, by a kernel of the device, if it has
/// one.
///
/// # Shapes
///
/// - rows: `[rows, values]`, on a device without autodiff
/// - output: `[rows]`
pub(super) fn row_squared_norms(rows: &Tensor<2>, added: f64) -> Option<Tensor<1>> {
    let [count, values] = rows.dims();
    if !is_for(&[rows], &rows.device()) {
        return None;
    }
    let rounded = RoundedUp::of_squares(values, added);
    let norms = |rounded| {
        let parts = Dispatch::native_part_norms(rows.clone().into_dispatch(), rounded);
        Tensor::<2>::from_dispatch(parts)
    };
    Some(match values <= PART {
        true => norms(rounded).reshape([count]),
        false => row_sums(norms(RoundedUp::NO)) * rounded.factor + rounded.added,
    })
}

/// Returns the products of the squared norms of two rows, each rounded up and enlarged by a bound
/// on what it loses to underflow, by a kernel of the device, if it has one.
///
/// # Shapes
///
/// - left, right: `[rows, values]`, on a device without autodiff
/// - lost: what the norms of `left` and of `right` lose
/// - output: `[rows]`
pub(crate) fn norm_products(
    left: &Tensor<2>,
    right: &Tensor<2>,
    lost: [f64; 2],
) -> Option<Tensor<1>> {
    let values = [left.dims()[1], right.dims()[1]];
    if !is_for(&[left, right], &left.device()) || values.iter().any(|&values| values > PART) {
        return None;
    }
    let rounded = [0, 1].map(|side| RoundedUp::of_squares(values[side], lost[side]));
    let (left, right) = (left.clone().into_dispatch(), right.clone().into_dispatch());
    Some(Tensor::from_dispatch(Dispatch::native_norm_products(left, right, rounded[0], rounded[1])))
}

/// Returns whether the kernels take these tensors.
fn is_for(rows: &[&Tensor<2>], device: &Device) -> bool {
    /// Units are counted in 32 bits.
    const MAX_GROUPS: usize = 1 << 24;
    let fits = |rows: &&Tensor<2>| {
        let [count, values] = rows.dims();
        rows.dtype() == DType::F32
            && count > 0
            && values > 0
            && count * values.div_ceil(PART) <= MAX_GROUPS
    };
    has_kernels(device) && rows.iter().all(fits)
}
