//! Squared norms of rows, rounded up.

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};

use super::kernel_ops::KernelOps;
use super::layout::{PART, PROCESSOR_UNITS, RUN, RoundedUp, UNITS, single_above};
use crate::ops::{additions, has_kernels, row_sums};

impl RoundedUp {
    /// The sum as it is.
    const NO: Self = Self { factor: 1.0, added: 0.0 };

    /// Covers the rounding of `values` squares and their sum, and adds `added` for what they lose
    /// to underflow.
    fn of_squares(values: usize, added: f64) -> Self {
        // One for each addition, one for the squares, the rest for the product and the sum.
        let rounding = (roundings(values) + 4) as f64 * f64::from(f32::EPSILON);
        Self { factor: single_above(1.0 + rounding), added: single_above(added) }
    }
}

/// Returns an upper bound on the roundings of a square in the kernel, on any device, and in the sum
/// of the parts.
fn roundings(values: usize) -> usize {
    let of_group = |units: usize| {
        let of_unit = values.min(PART).div_ceil(units);
        // The first value of a sum, and units without values, add to zero, which is exact.
        let (of_run, of_runs) = (RUN.min(of_unit), of_unit.div_ceil(RUN));
        of_run + of_runs + values.min(units) - 3
    };
    of_group(UNITS).max(of_group(PROCESSOR_UNITS)) + additions(values.div_ceil(PART))
}

/// Returns the squared norms of rows, rounded up, plus `added`, by a kernel of the device, if it
/// has one.
///
/// # Shapes
///
/// - rows: `[rows, values]`, on a device without autodiff
/// - output: `[rows]`
pub(in crate::ops) fn row_squared_norms(rows: &Tensor<2>, added: f64) -> Option<Tensor<1>> {
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
/// on what it loses to underflow, and the ones of the right rows, by a kernel of the device, if it
/// has one.
///
/// # Shapes
///
/// - left, right: `[rows, values]`, on a device without autodiff
/// - lost: what the norms of `left` and of `right` lose
/// - output: `[rows]` twice
pub(crate) fn norm_products(
    left: &Tensor<2>,
    right: &Tensor<2>,
    lost: [f64; 2],
) -> Option<(Tensor<1>, Tensor<1>)> {
    let values = [left.dims()[1], right.dims()[1]];
    if !is_for(&[left, right], &left.device()) || values.iter().any(|&values| values > PART) {
        return None;
    }
    let rounded = [0, 1].map(|side| RoundedUp::of_squares(values[side], lost[side]));
    let (left, right) = (left.clone().into_dispatch(), right.clone().into_dispatch());
    let (products, of_right) = Dispatch::native_norm_products(left, right, rounded[0], rounded[1]);
    Some((Tensor::from_dispatch(products), Tensor::from_dispatch(of_right)))
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
                let (products, norms) = norm_products(&left_rows, &right_rows, [0.0; 2]).unwrap();
                let rows = of_left.chunks(left).zip(of_right.chunks(right));
                let found = host(products).into_iter().zip(host(norms));
                for ((product, norm), (left, right)) in found.zip(rows) {
                    let ratio = f64::from(product) / (exact(left) * exact(right));
                    assert!((1.0..1.0 + 8e-5).contains(&ratio), "{ratio}");
                    let ratio = f64::from(norm) / exact(right);
                    assert!((1.0..1.0 + 4e-5).contains(&ratio), "{ratio}");
                }
                let (lost, _) = norm_products(&left_rows, &right_rows, [1.0, 2.0]).unwrap();
                let (left, right) = (exact(&of_left[..left]), exact(&of_right[..right]));
                assert!(f64::from(host(lost)[0]) >= (left + 1.0) * (right + 2.0));
            }
            let (_, long) = rows(2, PART + 1, 0.1, &device);
            assert!(norm_products(&long, &long, [0.0; 2]).is_none());
        }
    }
}
