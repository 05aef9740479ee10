//! Normalization of rows to zero mean and unit variance.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::rows::{sum, sums, task};

/// Normalizes rows of `length` values, on all cores, and stores the scale factor of each: `1 /
/// √(variance + epsilon)`. The result of a row does not depend on the other rows.
pub fn normalize(values: &mut [f32], length: usize, epsilon: f64, scales: &mut [f32]) {
    assert_eq!(scales.len() * length, values.len(), "every row has a scale");
    let run = |(values, scales): (&mut [f32], &mut [f32])| {
        Arch::new().dispatch(Normalize { values, length, epsilon, scales });
    };
    match task(values.len(), length) {
        None => run((values, scales)),
        Some(task) => {
            values.par_chunks_mut(task).zip(scales.par_chunks_mut(task / length)).for_each(run);
        }
    }
}

/// Replaces gradients of the output of [`normalize`] with gradients of its input.
pub fn normalize_gradient(output: &[f32], scales: &[f32], grads: &mut [f32], length: usize) {
    assert_eq!(output.len(), grads.len(), "every output has a gradient");
    assert_eq!(scales.len() * length, grads.len(), "every row has a scale");
    let run = |((output, scales), grads): ((&[f32], &[f32]), &mut [f32])| {
        Arch::new().dispatch(NormalizeGradient { output, length, scales, grads });
    };
    match task(grads.len(), length) {
        None => run(((output, scales), grads)),
        Some(task) => output
            .par_chunks(task)
            .zip(scales.par_chunks(task / length))
            .zip(grads.par_chunks_mut(task))
            .for_each(run),
    }
}

/// [`normalize`] on one core, compiled for each vector unit.
struct Normalize<'a> {
    values: &'a mut [f32],
    length: usize,
    epsilon: f64,
    scales: &'a mut [f32],
}

impl WithSimd for Normalize<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let count = self.length as f64;
        for (row, to) in self.values.chunks_exact_mut(self.length).zip(self.scales) {
            let mean = (sum(row, |value| value) / count) as f32;
            let variance = sum(row, |value| (value - mean) * (value - mean)) / count;
            let scale = (1.0 / (variance + self.epsilon).sqrt()) as f32;
            row.iter_mut().for_each(|value| *value = (*value - mean) * scale);
            *to = scale;
        }
    }
}

/// [`normalize_gradient`] on one core, compiled for each vector unit.
struct NormalizeGradient<'a> {
    output: &'a [f32],
    length: usize,
    scales: &'a [f32],
    grads: &'a mut [f32],
}

impl WithSimd for NormalizeGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let count = self.length as f64;
        let rows = self.grads.chunks_exact_mut(self.length);
        for ((grads, output), &scale) in
            rows.zip(self.output.chunks_exact(self.length)).zip(self.scales)
        {
            let [total, along] = sums(output, grads, |output, grad| [grad, output * grad]);
            let (mean, along) = ((total / count) as f32, (along / count) as f32);
            for (grad, &output) in grads.iter_mut().zip(output) {
                *grad = (*grad - mean - output * along) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(count: usize, offset: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.37).sin() * 2.0 + offset).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn normalization_and_gradient_equal_double_precision(
            rows in prop_oneof![1usize..5, 400usize..600],
            length in prop_oneof![1usize..150, 1000usize..3000],
            offset in -5.0f32..5.0,
            epsilon in 1e-5f64..1.0,
        ) {
            let input = values(rows * length, offset);
            let grads: Vec<f32> = input.iter().map(|value| (value * 3.0).cos()).collect();
            let (mut output, mut scales) = (input.clone(), vec![0.0; rows]);
            normalize(&mut output, length, epsilon, &mut scales);
            let mut found = grads.clone();
            normalize_gradient(&output, &scales, &mut found, length);
            for (row, input) in input.chunks(length).enumerate() {
                let range = row * length..(row + 1) * length;
                let mean = |terms: &[f64]| terms.iter().sum::<f64>() / length as f64;
                let input: Vec<f64> = input.iter().map(|&x| f64::from(x)).collect();
                let center = mean(&input);
                let squares: Vec<f64> = input.iter().map(|x| (x - center).powi(2)).collect();
                let scale = 1.0 / (mean(&squares) + epsilon).sqrt();
                prop_assert!((f64::from(scales[row]) - scale).abs() <= 1e-5 * scale);
                let exact: Vec<f64> = input.iter().map(|x| (x - center) * scale).collect();
                let grads: Vec<f64> =
                    grads[range.clone()].iter().map(|&grad| f64::from(grad)).collect();
                let products: Vec<f64> =
                    grads.iter().zip(&exact).map(|(grad, output)| grad * output).collect();
                let (middle, along) = (mean(&grads), mean(&products));
                // The mean is rounded in single precision, and the scale multiplies its error.
                let error = 1e-6 * (1.0 + scale * (1.0 + f64::from(offset.abs())));
                for ((place, exact), grad) in range.zip(exact).zip(grads) {
                    prop_assert!((f64::from(output[place]) - exact).abs() <= error);
                    let exact = (grad - middle - exact * along) * scale;
                    prop_assert!((f64::from(found[place]) - exact).abs() <= 4.0 * error * scale);
                }
            }
        }
    }

    #[test]
    fn the_normalization_of_a_row_does_not_depend_on_the_other_rows() {
        for length in [1, 15, 33, 64, 77, 2000] {
            let rows = (1 << 16) / length;
            let input = values(rows * length, 1.0);
            let grads = values(rows * length, 0.3);
            let run = |range: std::ops::Range<usize>| {
                let (mut values, mut scales) =
                    (input[range.clone()].to_vec(), vec![0.0; range.len() / length]);
                normalize(&mut values, length, 1e-5, &mut scales);
                let mut grads = grads[range].to_vec();
                normalize_gradient(&values, &scales, &mut grads, length);
                (values, grads)
            };
            let (all, all_grads) = run(0..rows * length);
            for row in [0, 1, rows / 2, rows - 1] {
                let range = row * length..(row + 1) * length;
                let (alone, grads) = run(range.clone());
                assert!(alone == all[range.clone()], "{length}");
                assert!(grads == all_grads[range], "{length}");
            }
        }
    }

    #[test]
    fn rows_that_are_not_finite_give_nan() {
        for value in [f32::NAN, f32::INFINITY] {
            let (mut row, mut scales) = ([1.0, value, 2.0, 3.0], [0.0]);
            normalize(&mut row, 4, 1e-5, &mut scales);
            assert!(row.iter().all(|value| value.is_nan()));
        }
    }
}
