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

/// How coefficients follow from the norms of the parameters.
pub(crate) struct DeviceClipping {
    /// Whether each group has its own threshold. Otherwise there is one for all.
    pub(crate) per_group: bool,
    /// The constant that is added to the norm, if gradients are normalized instead of clipped.
    pub(crate) stability: Option<f32>,
    /// The threshold for all groups.
    pub(crate) threshold: f32,
    /// The factor of a norm that covers the rounding of the device.
    pub(crate) rounding: f32,
    pub(crate) groups: Vec<DeviceGroup>,
    /// `false` for units that only pad the batch.
    pub(crate) real: Option<Vec<bool>>,
}

/// A clipping group. Its squared norm is the sum of the squared norms of its parameters, times
/// `slack`, plus `added`.
pub(crate) struct DeviceGroup {
    pub(crate) slack: f32,
    pub(crate) added: f32,
    /// The factor of its squared norm in the norm for all groups.
    pub(crate) squared_multiplier: f32,
    pub(crate) threshold: f32,
    pub(crate) parameters: Vec<DeviceParameter>,
}

/// The squared norm of a parameter, from rows of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DeviceParameter {
    /// A row times a factor.
    Scaled { row: usize, factor: f32 },
    /// `(√(row + of_square · next row) + of_sums · √(next row))²`.
    WithMagnitude { row: usize, of_square: f32, of_sums: f32 },
}

/// Places of the words of a [`DeviceClipping`].
pub(super) mod words {
    pub(in crate::ops) const PER_GROUP: usize = 0;
    pub(in crate::ops) const NORMALIZE: usize = 1;
    pub(in crate::ops) const STABILITY: usize = 2;
    pub(in crate::ops) const THRESHOLD: usize = 3;
    pub(in crate::ops) const ROUNDING: usize = 4;
    /// The place of a word for each unit, or zero if none is padding.
    pub(in crate::ops) const REAL: usize = 5;
    pub(in crate::ops) const FIRST_GROUP: usize = 6;

    /// Places in a group, after the number of its parameters.
    pub(in crate::ops) const SLACK: usize = 1;
    pub(in crate::ops) const ADDED: usize = 2;
    pub(in crate::ops) const SQUARED_MULTIPLIER: usize = 3;
    pub(in crate::ops) const GROUP_THRESHOLD: usize = 4;
    pub(in crate::ops) const FIRST_PARAMETER: usize = 5;

    /// A parameter has its row, whether the next row has its magnitudes, and two numbers.
    pub(in crate::ops) const PARAMETER_WORDS: usize = 4;
}

/// A [`DeviceClipping`] for a kernel.
#[derive(Clone, Debug)]
pub struct ClippingWords {
    pub(super) words: Vec<u32>,
    /// Number of clipping groups.
    pub(super) groups: usize,
    /// Number of coefficients of each unit.
    pub(super) rows: usize,
}

impl From<&DeviceClipping> for ClippingWords {
    fn from(clipping: &DeviceClipping) -> Self {
        let DeviceClipping { per_group, stability, threshold, rounding, groups, real } = clipping;
        let mut words = vec![0; words::FIRST_GROUP];
        words[words::PER_GROUP] = u32::from(*per_group);
        words[words::NORMALIZE] = u32::from(stability.is_some());
        words[words::STABILITY] = stability.unwrap_or(0.0).to_bits();
        words[words::THRESHOLD] = threshold.to_bits();
        words[words::ROUNDING] = rounding.to_bits();
        for group in groups {
            let DeviceGroup { slack, added, squared_multiplier, threshold, parameters } = group;
            words.push(parameters.len() as u32);
            words.extend([slack, added, squared_multiplier, threshold].map(|word| word.to_bits()));
            words.extend(parameters.iter().flat_map(|parameter| match *parameter {
                DeviceParameter::Scaled { row, factor } => [row as u32, 0, factor.to_bits(), 0],
                DeviceParameter::WithMagnitude { row, of_square, of_sums } => {
                    [row as u32, 1, of_square.to_bits(), of_sums.to_bits()]
                }
            }));
        }
        if let Some(real) = real {
            words[words::REAL] = words.len() as u32;
            words.extend(real.iter().map(|&real| u32::from(real)));
        }
        Self { words, groups: groups.len(), rows: if *per_group { groups.len() } else { 1 } }
    }
}

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

/// Returns `Σ coefficients[i] · rows[i]`, where rows with coefficient zero count as zero even if
/// they hold NaN or infinity, by a kernel of the device, if it has one.
///
/// # Shapes
///
/// - coefficients: `[rows]`, in single precision, on a device without autodiff
/// - rows: `[rows, values]`
/// - output: `[values]`
pub(crate) fn selected_rows(coefficients: &Tensor<1>, rows: &Tensor<2>) -> Option<Tensor<1>> {
    selects(rows).then(|| {
        let (coefficients, rows) = (coefficients.clone(), rows.clone());
        let sums =
            Dispatch::native_selected_rows(coefficients.into_dispatch(), rows.into_dispatch());
        Tensor::from_dispatch(sums)
    })
}

/// Returns whether kernels leave out examples with coefficient zero, even if they hold NaN or
/// infinity, where they multiply `tensor` by coefficients.
pub(crate) fn selects<const D: usize>(tensor: &Tensor<D>) -> bool {
    /// The length of an axis of the grid.
    const MAX_GROUPS: usize = (1 << 16) - 1;
    let (values, examples) = (tensor.shape().num_elements(), tensor.shape()[0]);
    // Places are counted in 32 bits.
    let is_small = values > 0
        && values < 1 << 31
        && examples <= MAX_GROUPS
        && values / examples <= MAX_GROUPS * UNITS;
    has_kernels(&tensor.device()) && tensor.dtype() == DType::F32 && is_small
}

/// Returns each example times its coefficient. Examples with coefficient zero become zero even if
/// they hold NaN or infinity, if the device [selects](selects) them.
///
/// # Shapes
///
/// - tensor: `[batch_size, …]`, on a device without autodiff
/// - coefficients: `[batch_size]`, in single precision
pub(crate) fn scaled_examples<const D: usize>(
    tensor: Tensor<D>,
    coefficients: Tensor<1>,
) -> Tensor<D> {
    if selects(&tensor) {
        return selected(tensor, coefficients, true);
    }
    let mut of_examples = [1; D];
    of_examples[0] = tensor.dims()[0];
    tensor * coefficients.reshape(of_examples)
}

/// Returns the examples whose coefficients are not zero, and zeros for the others, on a device that
/// [selects](selects) them.
///
/// # Shapes
///
/// - tensor: `[batch_size, …]`, on a device without autodiff
/// - coefficients: `[batch_size]`, in single precision
pub(crate) fn kept_examples<const D: usize>(
    tensor: Tensor<D>,
    coefficients: Tensor<1>,
) -> Tensor<D> {
    selected(tensor, coefficients, false)
}

fn selected<const D: usize>(
    tensor: Tensor<D>,
    coefficients: Tensor<1>,
    is_scaled: bool,
) -> Tensor<D> {
    let shape = tensor.shape();
    let rows: Tensor<2> = tensor.reshape([shape[0], shape.num_elements() / shape[0]]);
    let (rows, coefficients) = (rows.into_dispatch(), coefficients.into_dispatch());
    let selected = Dispatch::native_selected(rows, coefficients, is_scaled);
    Tensor::<2>::from_dispatch(selected).reshape(shape)
}

/// Returns the squared norms of the clipping groups, `[groups, units]`, and the coefficients,
/// `[1, units]` or one row for each group, on a device that `has_kernels` names. The norms of units
/// that are left out are infinite, and their coefficients are zero.
///
/// - table: squared norms and magnitudes of the parameters, `[any, units]`
pub(crate) fn coefficients(table: Tensor<2>, clipping: &DeviceClipping) -> [Tensor<2>; 2] {
    let (table, clipping) = (table.into_dispatch(), ClippingWords::from(clipping));
    let (norms, coefficients) = Dispatch::native_coefficients(table, clipping);
    [Tensor::from_dispatch(norms), Tensor::from_dispatch(coefficients)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::TensorData;

    use super::*;
    use crate::ops::row_squared_norms;
    use crate::test_devices::devices;

    fn with_kernels() -> impl Iterator<Item = Device> {
        devices().into_iter().filter(has_kernels)
    }

    fn rows(count: usize, values: usize, seed: f32, device: &Device) -> (Vec<f32>, Tensor<2>) {
        let numbers: Vec<f32> =
            (0..count * values).map(|place| (place as f32 * 0.37 + seed).sin()).collect();
        let tensor = TensorData::new(numbers.clone(), [count, values]);
        (numbers, Tensor::from_data(tensor, device))
    }

    fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    fn exact(row: &[f32]) -> f64 {
        row.iter().map(|&value| f64::from(value).powi(2)).sum()
    }

    #[test]
    fn norms_of_kernels_are_rounded_up_for_every_length_of_a_row() {
        for device in with_kernels() {
            for values in [1, 63, 64, 65, 2_049, PART - 1, PART, PART + 1, 3 * PART + 5] {
                let (numbers, tensor) = rows(3, values, 0.5, &device);
                let norms = row_squared_norms(tensor);
                for (norm, row) in host(norms).into_iter().zip(numbers.chunks(values)) {
                    let ratio = f64::from(norm) / exact(row);
                    assert!((1.0..1.0 + 4e-5).contains(&ratio), "{values}: {ratio}");
                }
            }
        }
    }

    #[test]
    fn products_of_norms_are_rounded_up() {
        for device in with_kernels() {
            for (left, right) in [(1, 1), (784, 128), (10, 3), (5_000, 65)] {
                let (of_left, left_rows) = rows(5, left, 0.1, &device);
                let (of_right, right_rows) = rows(5, right, 0.9, &device);
                let products = norm_products(&left_rows, &right_rows, [0.0; 2]).unwrap();
                let rows = of_left.chunks(left).zip(of_right.chunks(right));
                for (product, (left, right)) in host(products).into_iter().zip(rows) {
                    let ratio = f64::from(product) / (exact(left) * exact(right));
                    assert!((1.0..1.0 + 8e-5).contains(&ratio), "{ratio}");
                }
                let lost = norm_products(&left_rows, &right_rows, [1.0, 2.0]).unwrap();
                let (left, right) = (exact(&of_left[..left]), exact(&of_right[..right]));
                assert!(f64::from(host(lost)[0]) >= (left + 1.0) * (right + 2.0));
            }
            let (_, long) = rows(2, PART + 1, 0.1, &device);
            assert!(norm_products(&long, &long, [0.0; 2]).is_none());
        }
    }

    #[test]
    fn examples_with_coefficient_zero_are_left_out_whatever_they_hold() {
        for device in with_kernels() {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                // More rows than are added in one loop.
                for (count, values) in [(3, 5), (1_500, 2)] {
                    let (mut numbers, _) = rows(count, values, 0.2, &device);
                    numbers[values..2 * values].fill(bad);
                    let data = TensorData::new(numbers.clone(), [count, values]);
                    let tensor = Tensor::<2>::from_data(data, &device);
                    let mut coefficients = vec![0.5f32; count];
                    coefficients[1] = 0.0;
                    let weights = Tensor::<1>::from_floats(coefficients.as_slice(), &device);
                    let scaled = host(scaled_examples(tensor.clone(), weights.clone()));
                    let kept = host(kept_examples(tensor.clone(), weights.clone()));
                    for (place, found) in scaled.into_iter().zip(kept).enumerate() {
                        let expected = if place / values == 1 { 0.0 } else { numbers[place] };
                        assert_eq!(found, (0.5 * expected, expected), "{place}");
                    }
                    let sums = host(selected_rows(&weights, &tensor).unwrap());
                    for (value, found) in sums.into_iter().enumerate() {
                        let kept = (0..count).filter(|&row| row != 1);
                        let terms = kept.map(|row| f64::from(numbers[row * values + value]));
                        let expected = 0.5 * terms.sum::<f64>();
                        assert!((f64::from(found) - expected).abs() < 1e-3, "{found} {expected}");
                    }
                }
            }
        }
    }
}
