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

/// Returns a sum of squares: blocks in f32 on independent lanes, the blocks added in f64. Overflow
/// of a block results in infinity, which the caller has to detect.
pub(super) fn squared_norm(row: &[f32]) -> f32 {
    Arch::new().dispatch(SquaredNorm(row))
}

/// Compiled for each vector unit; the order of the sum is the same on all of them.
struct SquaredNorm<'a>(&'a [f32]);

impl WithSimd for SquaredNorm<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        sum_of_squares(self.0)
    }
}

#[inline(always)]
fn sum_of_squares(row: &[f32]) -> f32 {
    const LANES: usize = 32;
    const BLOCK: usize = 32 * LANES;
    let mut total = 0.0f64;
    for block in row.chunks(BLOCK) {
        let mut lanes = [0.0f32; LANES];
        let chunks = block.chunks_exact(LANES);
        let rest: f32 = chunks.remainder().iter().map(|value| value * value).sum();
        for chunk in chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *lane += value * value;
            }
        }
        total += f64::from(lanes.iter().sum::<f32>() + rest);
    }
    total as f32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::Dispatch;
    use burn::tensor::Tensor;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::ParametricOps;
    use crate::ops::backends::flex::ramp;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_norms_equal_sums_in_double_precision(
            count in 1usize..5,
            length in 1usize..5000,
        ) {
            let rows = ramp([count, length]);
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
                prop_assert!((f64::from(native) - expected).abs() <= 1e-6 * expected);
            }
        }
    }

    #[test]
    fn native_weighted_rows_equal_a_product_of_burn() {
        for (count, length) in [(1, 1), (7, 300), (130, 3000)] {
            let (coefficients, rows) = (ramp([1, count]), ramp([count, length]) + 0.3);
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
