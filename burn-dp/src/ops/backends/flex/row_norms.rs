use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::TensorData;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::tasks::TASK_VALUES;

/// Number of values that one thread reads in the time it takes to wake the others.
const FEW_VALUES: usize = 1 << 18;

/// Returns the squared norms of rows, `[rows, values]` to `[rows]`.
pub(super) fn row_squared_norms(rows: FloatTensor<Flex>) -> Option<FloatTensor<Flex>> {
    let [count, length] = rows.shape().dims();
    if length == 0 {
        return None;
    }
    let values = rows.as_slice::<f32>()?;
    let norms: Vec<f32> = if values.len() <= FEW_VALUES {
        values.chunks_exact(length).map(squared_norm).collect()
    } else {
        values
            .par_chunks_exact(length)
            .with_min_len(TASK_VALUES.div_ceil(length))
            .map(squared_norm)
            .collect()
    };
    Some(FloatTensor::<Flex>::from_data(TensorData::new(norms, [count])))
}

/// Returns `Σ coefficients[i] · rows[i]`, `[rows, values]` to `[values]`.
pub(super) fn weighted_rows(
    coefficients: &FloatTensor<Flex>,
    rows: &FloatTensor<Flex>,
) -> Option<FloatTensor<Flex>> {
    let [_, length] = rows.shape().dims();
    let (coefficients, rows) = (coefficients.as_slice::<f32>()?, rows.as_slice::<f32>()?);
    let sums = burn_dp_kernels::weighted_rows(coefficients, rows, length);
    Some(FloatTensor::<Flex>::from_data(TensorData::new(sums, [length])))
}

/// Returns a sum of squares that is not underestimated, except by the loss to underflow. Overflow
/// results in infinity, which the caller has to detect.
pub(super) fn squared_norm(row: &[f32]) -> f32 {
    upwards(sum_of_squares(row))
}

/// Returns the next f32 that is not below a value.
pub(super) fn upwards(value: f64) -> f32 {
    let rounded = value as f32;
    if f64::from(rounded) < value { rounded.next_up() } else { rounded }
}

/// Returns a sum of squares: short sums in f32 on independent lanes, which are added in f64, and
/// the largest rounding of the short sums.
pub(super) fn sum_of_squares(row: &[f32]) -> f64 {
    Arch::new().dispatch(SquaredNorm(row))
}

/// Compiled for each vector unit; the order of the sum is the same on all of them.
struct SquaredNorm<'a>(&'a [f32]);

impl WithSimd for SquaredNorm<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        blocks_of_squares(self.0)
    }
}

#[inline(always)]
fn blocks_of_squares(row: &[f32]) -> f64 {
    const LANES: usize = 32;
    /// Values that a lane adds in f32.
    const DEPTH: usize = 16;
    // Each of the operations on a value, the square and at most `DEPTH` additions, rounds it by
    // half a unit; one more is for the sums in f64.
    const ROUNDING: f64 = (DEPTH + 2) as f64 * 0.5 * f32::EPSILON as f64;
    let mut totals = [0.0f64; LANES];
    for block in row.chunks(DEPTH * LANES) {
        let mut lanes = [0.0f32; LANES];
        let chunks = block.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *lane += value * value;
            }
        }
        for (lane, value) in lanes.iter_mut().zip(rest) {
            *lane += value * value;
        }
        totals.iter_mut().zip(lanes).for_each(|(total, lane)| *total += f64::from(lane));
    }
    totals.iter().sum::<f64>() * (1.0 + ROUNDING)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::Dispatch;
    use burn::tensor::Tensor;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::ParametricOps;
    use crate::ops::backends::flex::arbitrary;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_norms_equal_sums_in_double_precision(
            count in 1usize..5,
            length in 1usize..5000,
        ) {
            let rows = arbitrary([count, length]);
            let expected: Vec<f64> = rows
                .to_data()
                .as_slice::<f32>()
                .unwrap()
                .chunks(length)
                .map(|row| row.iter().map(|&value| f64::from(value).powi(2)).sum())
                .collect();
            let native = Dispatch::native_row_squared_norms(rows.into_dispatch()).unwrap();
            let native = Tensor::<1>::from_dispatch(native).into_data();
            for (&native, expected) in native.as_slice::<f32>().unwrap().iter().zip(expected) {
                prop_assert!(f64::from(native) >= expected);
                prop_assert!(f64::from(native) <= (1.0 + 2.3e-6) * expected);
            }
        }
    }

    // Each small square is half a unit of the large one, so that every addition rounds it away.
    #[test]
    fn squares_that_are_rounded_away_are_in_the_bound() {
        for length in [2, 33, 600, 1024, 5000] {
            let mut row = vec![2.0f32.powi(-12); length];
            row[0] = 1.0;
            let exact = 1.0 + (length - 1) as f64 * 2.0f64.powi(-24);
            let norm = f64::from(squared_norm(&row));
            assert!(norm >= exact && norm <= exact * (1.0 + 1.3e-6), "{length}: {norm} {exact}");
        }
        assert_eq!(squared_norm(&[f32::MAX; 3]), f32::INFINITY);
        assert!(squared_norm(&[f32::NAN, 1.0]).is_nan());
        assert_eq!(squared_norm(&[]), 0.0);
    }

    #[test]
    fn native_weighted_rows_equal_a_product_of_burn() {
        for (count, length) in [(1, 1), (7, 300), (130, 3000)] {
            let (coefficients, rows) = (arbitrary([1, count]), arbitrary([count, length]) + 0.3);
            let expected = coefficients.clone().matmul(rows.clone()).into_data();
            let coefficients: Tensor<1> = coefficients.reshape([count]);
            let native =
                Dispatch::native_weighted_rows(coefficients.into_dispatch(), rows.into_dispatch());
            let native = Tensor::<1>::from_dispatch(native.unwrap()).reshape([1, length]);
            let tolerance = burn::tensor::Tolerance::<f32>::absolute(1e-4).set_relative(1e-4);
            native.into_data().assert_approx_eq::<f32>(&expected, tolerance);
        }
    }

    #[test]
    fn norms_that_are_not_finite_stay_not_finite() {
        for value in [f32::NAN, f32::INFINITY, 1e20] {
            let mut row = vec![0.5f32; 2000];
            row[1500] = value;
            assert!(!squared_norm(&row).is_finite());
        }
    }
}
