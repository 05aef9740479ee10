//! Scale and shift along one axis, and the gradients of both.

use pulp::{Arch, Simd, WithSimd};

use crate::rows::{for_rows, sum, sums};

/// Multiplies values by their weight and adds their bias, on all cores.
///
/// - values: `[…, parameters, inner]`
/// - weight, bias: one value for each parameter
pub fn affine(values: &mut [f32], weight: &[f32], bias: Option<&[f32]>, inner: usize) {
    let row = weight.len() * inner;
    for_rows(values, row, |values| {
        for row in values.chunks_exact_mut(row) {
            Arch::new().dispatch(Affine { row, weight, bias, inner });
        }
    });
}

/// Returns the sums of the products of two arrays over all axes except the parameter axis, on one
/// core; without the second array, the sums of the first.
///
/// - first, second: `[outer, parameters, inner]`
/// - sums: one for each parameter
pub fn axis_sums(first: &[f32], second: Option<&[f32]>, sums: &mut [f32], inner: usize) {
    if let Some(second) = second {
        assert_eq!(first.len(), second.len(), "the factors have the same length");
    }
    sums.fill(0.0);
    Arch::new().dispatch(AxisSums { first, second, sums, inner });
}

/// [`affine`] of one row, compiled for each vector unit.
struct Affine<'a> {
    row: &'a mut [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    inner: usize,
}

impl WithSimd for Affine<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { row, weight, bias, inner } = self;
        match (inner, bias) {
            (1, None) => row.iter_mut().zip(weight).for_each(|(value, weight)| *value *= weight),
            (1, Some(bias)) => {
                for ((value, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
                    *value = *value * weight + bias;
                }
            }
            _ => {
                for (index, values) in row.chunks_exact_mut(inner).enumerate() {
                    let (weight, bias) = (weight[index], bias.map_or(0.0, |bias| bias[index]));
                    values.iter_mut().for_each(|value| *value = *value * weight + bias);
                }
            }
        }
    }
}

/// [`axis_sums`], compiled for each vector unit.
struct AxisSums<'a> {
    first: &'a [f32],
    second: Option<&'a [f32]>,
    sums: &'a mut [f32],
    inner: usize,
}

impl WithSimd for AxisSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { first, second, sums: totals, inner } = self;
        let row = totals.len() * inner;
        if inner > 1 {
            for (index, first) in first.chunks_exact(inner).enumerate() {
                let sum = match second {
                    None => sum(first, |value| value),
                    Some(second) => {
                        let second = &second[index * inner..][..inner];
                        sums(first, second, |first, second| [first * second])[0]
                    }
                };
                totals[index % totals.len()] += sum as f32;
            }
            return;
        }
        // Number of rows that are added up before their sum is added to the others.
        const BLOCK: usize = 32;
        let mut block_sums = vec![0.0f32; row];
        for (index, block) in first.chunks(BLOCK * row).enumerate() {
            block_sums.fill(0.0);
            match second {
                None => {
                    for first in block.chunks_exact(row) {
                        for (sum, first) in block_sums.iter_mut().zip(first) {
                            *sum += first;
                        }
                    }
                }
                Some(second) => {
                    let second = &second[index * BLOCK * row..][..block.len()];
                    for (first, second) in block.chunks_exact(row).zip(second.chunks_exact(row)) {
                        for ((sum, first), second) in block_sums.iter_mut().zip(first).zip(second) {
                            *sum += first * second;
                        }
                    }
                }
            }
            for (total, sum) in totals.iter_mut().zip(&block_sums) {
                *total += sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(count: usize, phase: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn affine_maps_and_sums_equal_double_precision(
            outer in prop_oneof![1usize..90, 300usize..600],
            parameters in 1usize..50,
            inner in prop_oneof![Just(1usize), 2usize..70],
            with_bias: bool,
        ) {
            let count = outer * parameters * inner;
            let (input, other) = (values(count, 0.1), values(count, 0.7));
            let (weight, bias) = (values(parameters, 0.2), values(parameters, 0.3));
            let mut output = input.clone();
            affine(&mut output, &weight, with_bias.then_some(&bias), inner);
            let mut expected = vec![[0.0f64; 2]; parameters];
            for (place, &value) in input.iter().enumerate() {
                let parameter = place / inner % parameters;
                let bias = if with_bias { f64::from(bias[parameter]) } else { 0.0 };
                let exact = f64::from(value) * f64::from(weight[parameter]) + bias;
                prop_assert!((f64::from(output[place]) - exact).abs() <= 4e-7);
                expected[parameter][0] += f64::from(value);
                expected[parameter][1] += f64::from(value) * f64::from(other[place]);
            }
            for (index, second) in [None, Some(other.as_slice())].into_iter().enumerate() {
                let mut found = vec![1.5; parameters];
                axis_sums(&input, second, &mut found, inner);
                for (found, expected) in found.iter().zip(&expected) {
                    let bound = 60.0 * f64::from(f32::EPSILON) * (outer * inner) as f64;
                    prop_assert!((f64::from(*found) - expected[index]).abs() <= bound);
                }
            }
        }
    }
}
