//! Products with coefficients that leave out examples, whatever they hold.

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

use super::kernel_ops::KernelOps;
use super::layout::UNITS;
use crate::ops::has_kernels;

/// The largest length of an axis of the grid.
const MAX_GROUPS: usize = (1 << 16) - 1;

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

/// Returns `Σ coefficients[i] left[i, t]ᵀ right[i, t]` over examples and positions, where examples
/// with coefficient zero count as zero even if they hold NaN or infinity, by a kernel of the
/// device, if it has one. It is for products that are so small that launches and copies cost more
/// than the arithmetic.
///
/// # Shapes
///
/// - left: `[batch_size, positions, rows]`, on a device without autodiff
/// - right: `[batch_size, positions, columns]`
/// - coefficients: `[batch_size]`, in single precision
/// - output: `[rows, columns]`
pub(crate) fn selected_outer_products(
    left: &Tensor<3>,
    right: &Tensor<3>,
    coefficients: &Tensor<1>,
) -> Option<Tensor<2>> {
    /// Terms of a sum, which one unit adds one after another.
    const MAX_TERMS: usize = 1 << 12;
    const MAX_PRODUCTS: usize = 1 << 25;
    let ([examples, positions, height], [_, _, width]) = (left.dims(), right.dims());
    let products = (examples * positions).saturating_mul(height).saturating_mul(width);
    let is_for = has_kernels(&left.device())
        && left.dtype() == DType::F32
        && right.dtype() == DType::F32
        && examples * positions <= MAX_TERMS
        && height.max(width) <= MAX_GROUPS
        && (1..=MAX_PRODUCTS).contains(&products);
    is_for.then(|| {
        let [left, right] = [left, right].map(|side| side.clone().into_dispatch());
        let coefficients = coefficients.clone().into_dispatch();
        Tensor::from_dispatch(Dispatch::native_selected_outer_products(left, right, coefficients))
    })
}

/// Returns whether kernels leave out examples with coefficient zero, even if they hold NaN or
/// infinity, where they multiply `tensor` by coefficients.
pub(crate) fn selects<const D: usize>(tensor: &Tensor<D>) -> bool {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::TensorData;

    use super::*;
    use crate::test_devices::devices;

    fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    #[test]
    fn outer_products_of_kernels_leave_out_examples_with_coefficient_zero() {
        for device in devices().into_iter().filter(has_kernels) {
            for [examples, positions, height, width] in
                [[3, 1, 4, 4], [5, 1, 20, 68], [4, 3, 37, 10], [128, 1, 40, 132], [2, 7, 18, 5]]
            {
                let numbers = |features: usize, seed: f32| -> Vec<f32> {
                    let places = 0..examples * positions * features;
                    places.map(|place| (place as f32 * 0.37 + seed).sin()).collect()
                };
                let tensor = |numbers: &[f32], features| {
                    let shape = [examples, positions, features];
                    Tensor::<3>::from_data(TensorData::new(numbers.to_vec(), shape), &device)
                };
                let (mut left, mut right) = (numbers(height, 0.2), numbers(width, 0.7));
                let mut coefficients: Vec<f32> =
                    (0..examples).map(|example| 0.1 + example as f32 / 7.0).collect();
                coefficients[1] = 0.0;
                left[positions * height..2 * positions * height].fill(f32::NAN);
                right[positions * width..2 * positions * width].fill(f32::INFINITY);
                let weights = Tensor::<1>::from_floats(coefficients.as_slice(), &device);
                let (of_left, of_right) = (tensor(&left, height), tensor(&right, width));
                let sums = selected_outer_products(&of_left, &of_right, &weights).unwrap();
                assert_eq!(sums.dims(), [height, width]);
                for (place, found) in host(sums).into_iter().enumerate() {
                    let (row, column) = (place / width, place % width);
                    let terms = (0..examples * positions).filter(|term| term / positions != 1);
                    let expected: f64 = terms
                        .map(|term| {
                            f64::from(coefficients[term / positions])
                                * f64::from(left[term * height + row])
                                * f64::from(right[term * width + column])
                        })
                        .sum();
                    assert!((f64::from(found) - expected).abs() < 1e-3, "{found} {expected}");
                }
            }
            let zeros = |features| Tensor::<3>::zeros([128, 1, features], &device);
            let ones = Tensor::<1>::ones([128], &device);
            assert!(selected_outer_products(&zeros(512), &zeros(512), &ones).is_some());
            assert!(selected_outer_products(&zeros(512), &zeros(516), &ones).is_none());
        }
    }

    #[test]
    fn examples_with_coefficient_zero_are_left_out_whatever_they_hold() {
        for device in devices().into_iter().filter(has_kernels) {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                // More rows than are added in one loop.
                for (count, values) in [(3, 5), (1_500, 2)] {
                    let sine = |place: usize| (place as f32 * 0.37 + 0.2).sin();
                    let mut numbers: Vec<f32> = (0..count * values).map(sine).collect();
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
