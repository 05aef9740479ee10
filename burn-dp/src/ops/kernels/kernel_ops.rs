//! The kernels, for the dispatch of Burn.

use burn::backend::{Backend, backend_extension, tensor::FloatTensor};
// Without the feature, no metadata is needed.
#[cfg(feature = "fusion")]
use burn::tensor::{DType, Shape};

use super::layout::{ClippingWords, RoundedUp};
#[cfg(feature = "fusion")]
use super::layout::{gradients_shape, parts_shape};
use crate::ops::Patches;

/// Kernels for per-example norms, gradients and coefficients.
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

    /// Returns the products of the squared norms of two rows, each rounded up, and the squared
    /// norms of the right one: `[rows, values]` twice to `[rows]` twice. No row has more than
    /// `PART` values. Only for devices that `has_kernels` names.
    #[fusion(meta = |left, _right, _left_rounded, _right_rounded| {
        let rows = burn::backend::fusion::custom::TensorSpec::new(
            Shape::new([left.shape[0]]),
            DType::F32,
        );
        (rows.clone(), rows)
    })]
    #[allow(unused_variables)]
    fn native_norm_products(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        left_rounded: RoundedUp,
        right_rounded: RoundedUp,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        unreachable!("the backend has no kernels for norms")
    }

    /// Returns the gradients of the weight of a convolution for each example: `[batch_size, groups,
    /// rows, columns]`, a row for each channel of the image and place of the kernel, a column for
    /// each channel of the pixels. Only for devices that `has_kernels` names, and for kernels of at
    /// most `MAX_WIDTH` values in a row.
    ///
    /// - image, pixels: `[batch_size, channels, depth, height, width]`
    #[fusion(dtype = DType::F32, shape = gradients_shape(image, pixels, patches))]
    #[allow(unused_variables)]
    fn native_small_convolution_gradients(
        image: FloatTensor<Self>,
        pixels: FloatTensor<Self>,
        patches: Patches,
    ) -> FloatTensor<Self> {
        unreachable!("the backend has no kernels for gradients")
    }

    /// Returns `Σ coefficients[i] · rows[i]`, `[rows, values]` to `[values]`, where rows with
    /// coefficient zero count as zero whatever they hold. Only for devices that `has_kernels`
    /// names.
    #[fusion(dtype = DType::F32, shape = Shape::new([rows[1]]))]
    #[allow(unused_variables)]
    fn native_selected_rows(
        coefficients: FloatTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unreachable!("the backend has no kernels for sums")
    }

    /// Returns `Σ coefficients[i] left[i, t]ᵀ right[i, t]`, `[examples, positions, height]` and
    /// `[examples, positions, width]` to `[height, width]`, where examples with coefficient zero
    /// count as zero whatever they hold. Only for devices that `has_kernels` names.
    #[fusion(dtype = DType::F32, shape = Shape::new([left[2], right[2]]))]
    #[allow(unused_variables)]
    fn native_selected_outer_products(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        unreachable!("the backend has no kernels for sums")
    }

    /// Returns `coefficients[i] · rows[i]` or `rows[i]`, `[rows, values]`, where rows with
    /// coefficient zero become zero whatever they hold. Only for devices that `has_kernels` names.
    #[fusion(dtype = DType::F32, shape = rows)]
    #[allow(unused_variables)]
    fn native_selected(
        rows: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
        is_scaled: bool,
    ) -> FloatTensor<Self> {
        unreachable!("the backend has no kernels for products")
    }

    /// Returns the squared norms of the clipping groups, `[groups, units]`, and the coefficients,
    /// `[rows, units]`. Only for devices that `has_kernels` names.
    ///
    /// - table: squared norms and magnitudes of the parameters, `[any, units]`
    #[fusion(meta = |table, clipping| {
        let rows_of = |rows: usize| burn::backend::fusion::custom::TensorSpec::new(
            Shape::new([rows, table.shape[1]]),
            DType::F32,
        );
        (rows_of(clipping.groups), rows_of(clipping.rows))
    })]
    #[allow(unused_variables)]
    fn native_coefficients(
        table: FloatTensor<Self>,
        clipping: ClippingWords,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        unreachable!("the backend has no kernels for coefficients")
    }
}
