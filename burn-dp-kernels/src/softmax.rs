//! Softmax of rows.

use pulp::{Arch, Simd, WithSimd};

use crate::exponential::{LOWEST, exponential};
use crate::rows::{LANES, fold, for_pairs, for_rows, sum, sums};

/// Replaces rows of `length` values with their softmax, on all cores. The result of a row does not
/// depend on the other rows.
///
/// Weights below e⁻⁸⁷ of the largest one are zero.
pub fn softmax(values: &mut [f32], length: usize) {
    for_rows(values, length, |values| Arch::new().dispatch(Softmax { values, length }));
}

/// Replaces gradients of the output of [`softmax`] with gradients of its input.
pub fn softmax_gradient(output: &[f32], grads: &mut [f32], length: usize) {
    for_pairs(output, grads, length, |output, grads| {
        Arch::new().dispatch(SoftmaxGradient { output, grads, length });
    });
}

/// [`softmax`] on one core, compiled for each vector unit.
struct Softmax<'a> {
    values: &'a mut [f32],
    length: usize,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.values.chunks_exact_mut(self.length) {
            let largest = maximum(row);
            for value in &mut *row {
                let difference = *value - largest;
                let (power, minus_one) = exponential(difference);
                let exponential = power + power * minus_one;
                *value = if difference < LOWEST { 0.0 } else { exponential };
            }
            let scale = (1.0 / sum(row, |value| value)) as f32;
            row.iter_mut().for_each(|value| *value *= scale);
        }
    }
}

/// Returns the largest value that is a number.
#[inline(always)]
fn maximum(row: &[f32]) -> f32 {
    let larger = |first: f32, second: f32| if second > first { second } else { first };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, value);
    }
    fold(lanes, larger)
}

/// [`softmax_gradient`] on one core, compiled for each vector unit.
struct SoftmaxGradient<'a> {
    output: &'a [f32],
    grads: &'a mut [f32],
    length: usize,
}

impl WithSimd for SoftmaxGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let rows = self.grads.chunks_exact_mut(self.length);
        for (grads, output) in rows.zip(self.output.chunks_exact(self.length)) {
            let [mean] = sums(output, grads, |output, grad| [output * grad]);
            let mean = mean as f32;
            for (grad, &output) in grads.iter_mut().zip(output) {
                *grad = output * (*grad - mean);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(count: usize, size: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.37).sin() * size).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn softmax_and_gradient_equal_double_precision(
            rows in prop_oneof![1usize..5, 400usize..600],
            length in 1usize..150,
            size in 0.0f32..60.0,
        ) {
            let input = values(rows * length, size);
            let grads = values(rows * length, 3.0);
            let mut output = input.clone();
            softmax(&mut output, length);
            let mut found = grads.clone();
            softmax_gradient(&output, &mut found, length);
            for (row, input) in input.chunks(length).enumerate() {
                let range = row * length..(row + 1) * length;
                let powers: Vec<f64> = input.iter().map(|&x| f64::from(x).exp()).collect();
                let total: f64 = powers.iter().sum();
                let weights: Vec<f64> = powers.iter().map(|power| power / total).collect();
                let grads = &grads[range.clone()];
                let mean: f64 =
                    weights.iter().zip(grads).map(|(weight, &grad)| weight * f64::from(grad)).sum();
                for ((place, weight), &grad) in range.zip(&weights).zip(grads) {
                    // Rounding the argument causes a relative error of its size.
                    let error = f64::from(f32::EPSILON) * f64::from(8.0 + 2.0 * size);
                    let found_weight = f64::from(output[place]);
                    prop_assert!((found_weight - weight).abs() <= error * weight + 1e-37);
                    let exact = weight * (f64::from(grad) - mean);
                    let difference = (f64::from(found[place]) - exact).abs();
                    prop_assert!(difference <= error * 12.0 * weight + 1e-36);
                }
            }
        }
    }

    #[test]
    fn masked_values_have_no_weight_and_nan_stays() {
        let mut rows = [
            [1.0, f32::NEG_INFINITY, 1.0],
            [-1e4, 3.0, -1e4],
            [-1e4; 3],
            [f32::NEG_INFINITY; 3],
            [0.0, f32::NAN, 1.0],
            [0.0, f32::INFINITY, 1.0],
        ];
        softmax(rows.as_flattened_mut(), 3);
        assert_eq!(rows[0], [0.5, 0.0, 0.5]);
        assert_eq!(rows[1], [0.0, 1.0, 0.0]);
        assert_eq!(rows[2], [1.0 / 3.0; 3]);
        assert!(rows[3..].as_flattened().iter().all(|value| value.is_nan()));
    }

    #[test]
    fn the_softmax_of_a_row_does_not_depend_on_the_other_rows() {
        for length in [1, 15, 16, 33, 64, 77] {
            let count = 1 << 16;
            let rows = count / length;
            let mut all = values(rows * length, 4.0);
            let single = all.clone();
            softmax(&mut all, length);
            let mut grads = values(rows * length, 1.0);
            let single_grads = grads.clone();
            softmax_gradient(&all, &mut grads, length);
            for row in [0, 1, rows / 2, rows - 1] {
                let range = row * length..(row + 1) * length;
                let mut alone = single[range.clone()].to_vec();
                softmax(&mut alone, length);
                assert!(alone == all[range.clone()], "{length}");
                let mut grad = single_grads[range.clone()].to_vec();
                softmax_gradient(&alone, &mut grad, length);
                assert!(grad == grads[range], "{length}");
            }
        }
    }
}
