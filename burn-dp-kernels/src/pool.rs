//! Max pooling of planes.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::rows::TASK_VALUES;

/// Max pooling: each output is the largest value of a window, or NaN if the window has one.
/// Positions outside the plane are excluded from its windows.
///
/// Among equal values, the first one in a window in row order receives the gradient; among several
/// NaN values, the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool {
    /// Height and width of a plane.
    pub plane: [usize; 2],
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Distance between windows, at least one.
    pub stride: [usize; 2],
    /// Rows and columns before the first and after the last one of a plane.
    pub padding: [usize; 2],
    /// Distance between the values of a window, at least one.
    pub dilation: [usize; 2],
}

impl MaxPool {
    /// Returns height and width of the output, or `None` if a window is empty or larger than the
    /// padded plane.
    pub fn output(&self) -> Option<[usize; 2]> {
        let Self { plane, kernel, stride, padding, dilation } = *self;
        let [height, width] = [0, 1].map(|axis| {
            let window = kernel[axis].checked_sub(1)? * dilation[axis] + 1;
            Some((plane[axis] + 2 * padding[axis]).checked_sub(window)? / stride[axis] + 1)
        });
        Some([height?, width?])
    }

    /// Returns the outputs of whole planes, on all cores.
    pub fn forward(&self, planes: &[f32]) -> Vec<f32> {
        let [input, output] = self.sizes();
        let mut outputs = vec![f32::NEG_INFINITY; planes.len() / input.max(1) * output];
        let count = self.task(input);
        planes
            .par_chunks(count * input.max(1))
            .zip(outputs.par_chunks_mut(count * output.max(1)))
            .for_each(|(planes, outputs)| {
                Arch::new().dispatch(Forward { pool: *self, planes, outputs });
            });
        outputs
    }

    /// Returns the gradients of the inputs from the inputs and the gradients of the outputs.
    pub fn input_gradient(&self, planes: &[f32], grads: &[f32]) -> Vec<f32> {
        let [input, output] = self.sizes();
        assert_eq!(planes.len() / input.max(1) * output, grads.len(), "every window has a grad");
        assert!(i32::try_from(input).is_ok(), "a plane has fewer than 2^31 values");
        let mut sums = vec![0.0; planes.len()];
        let count = self.task(input);
        sums.par_chunks_mut(count * input.max(1))
            .zip(planes.par_chunks(count * input.max(1)))
            .zip(grads.par_chunks(count * output.max(1)))
            .for_each(|((sums, planes), grads)| {
                Arch::new().dispatch(Backward { pool: *self, planes, grads, sums });
            });
        sums
    }

    /// Returns the numbers of values of a plane and of its output.
    fn sizes(&self) -> [usize; 2] {
        [self.plane, self.output().unwrap_or([0, 0])].map(|[height, width]| height * width)
    }

    /// Returns the number of planes of a task.
    fn task(&self, input: usize) -> usize {
        TASK_VALUES.div_ceil(input.max(1))
    }

    /// Returns the rows of a plane that the windows of an output row read.
    fn rows(&self, output_row: usize) -> impl Iterator<Item = usize> {
        let Self { plane, kernel, stride, padding, dilation } = *self;
        (0..kernel[0]).filter_map(move |tap| {
            let row = (output_row * stride[0] + tap * dilation[0]).checked_sub(padding[0])?;
            (row < plane[0]).then_some(row)
        })
    }

    /// Returns, for each column of a window, the outputs of a row for which it is inside the plane,
    /// and the column of the plane that the first of them reads.
    fn columns(&self, outputs: usize) -> Vec<(Range<usize>, usize)> {
        let (width, stride, padding) = (self.plane[1], self.stride[1], self.padding[1]);
        let column = |tap: usize| {
            let offset = tap * self.dilation[1];
            let [begin, end] = [padding, width + padding]
                .map(|edge| edge.saturating_sub(offset).div_ceil(stride).min(outputs));
            (begin < end).then(|| (begin..end, begin * stride + offset - padding))
        };
        (0..self.kernel[1]).filter_map(column).collect()
    }
}

/// Returns whether a value replaces the largest one before it.
#[inline(always)]
fn replaces(value: f32, largest: f32) -> bool {
    value > largest || value.is_nan()
}

/// Calls a function with the number of each output and the value of a row that it reads.
#[inline(always)]
fn with_values(row: &[f32], stride: usize, outputs: usize, mut function: impl FnMut(usize, f32)) {
    match stride {
        1 => {
            let row = &row[..outputs];
            (0..outputs).for_each(|output| function(output, row[output]));
        }
        // In pairs, so that the loop is vectorized.
        2 => {
            let pairs = row.as_chunks::<2>().0;
            let whole = outputs.min(pairs.len());
            let pairs = &pairs[..whole];
            (0..whole).for_each(|output| function(output, pairs[output][0]));
            (whole..outputs).for_each(|output| function(output, row[2 * output]));
        }
        _ => (0..outputs).for_each(|output| function(output, row[stride * output])),
    }
}

/// [`MaxPool::forward`] on one core, compiled for each vector unit.
struct Forward<'a> {
    pool: MaxPool,
    planes: &'a [f32],
    outputs: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { pool, planes, outputs } = self;
        let Some([height, width]) = pool.output() else { return };
        let [rows, columns] = pool.plane;
        let taps = pool.columns(width);
        let planes = planes.chunks_exact(rows * columns);
        for (plane, outputs) in planes.zip(outputs.chunks_exact_mut(height * width)) {
            for (output_row, outputs) in outputs.chunks_exact_mut(width).enumerate() {
                for row in pool.rows(output_row) {
                    for (range, first) in &taps {
                        let row = &plane[row * columns + first..(row + 1) * columns];
                        let outputs = &mut outputs[range.clone()];
                        with_values(row, pool.stride[1], outputs.len(), |output, value| {
                            let largest = &mut outputs[output];
                            *largest = if replaces(value, *largest) { value } else { *largest };
                        });
                    }
                }
            }
        }
    }
}

/// [`MaxPool::input_gradient`] on one core, compiled for each vector unit.
struct Backward<'a> {
    pool: MaxPool,
    planes: &'a [f32],
    grads: &'a [f32],
    sums: &'a mut [f32],
}

/// The place of a window without values.
const NONE: i32 = i32::MIN;

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { pool, planes, grads, sums } = self;
        let Some([height, width]) = pool.output() else { return };
        let ([rows, columns], stride) = (pool.plane, pool.stride[1]);
        let taps = pool.columns(width);
        // Of each window of a row, the largest value so far and its row and column of the window.
        let (mut largest, mut places) = (vec![0.0f32; width], vec![NONE; width]);
        let planes = planes.chunks_exact(rows * columns);
        let sums = sums.chunks_exact_mut(rows * columns);
        for ((plane, sums), grads) in planes.zip(sums).zip(grads.chunks_exact(height * width)) {
            for (output_row, grads) in grads.chunks_exact(width).enumerate() {
                largest.fill(f32::NEG_INFINITY);
                places.fill(NONE);
                for row in pool.rows(output_row) {
                    for (range, first) in &taps {
                        // Where the first window of the row would read; this may be in the padding.
                        let start = (row * columns + first) as i32 - (range.start * stride) as i32;
                        let row = &plane[row * columns + first..(row + 1) * columns];
                        let outputs = range.len();
                        let largest = &mut largest[range.clone()][..outputs];
                        let places = &mut places[range.clone()][..outputs];
                        // Without a branch, because the largest value cannot be predicted.
                        with_values(row, stride, outputs, |output, value| {
                            let (largest, place) = (&mut largest[output], &mut places[output]);
                            let replaces = replaces(value, *largest) | (*place == NONE);
                            *largest = if replaces { value } else { *largest };
                            *place = if replaces { start } else { *place };
                        });
                    }
                }
                for ((&place, window), &grad) in places.iter().zip(0..).zip(grads) {
                    if place != NONE {
                        sums[(place + window * stride as i32) as usize] += grad;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns output and position of each window, by one loop over everything.
    fn windows(pool: MaxPool, plane: &[f32]) -> Vec<(f32, Option<usize>)> {
        let [height, width] = pool.output().unwrap_or_default();
        let mut windows = Vec::new();
        for window in 0..height * width {
            let at = [window / width, window % width];
            let (mut largest, mut place) = (f32::NEG_INFINITY, None);
            for tap in 0..pool.kernel[0] * pool.kernel[1] {
                let tap = [tap / pool.kernel[1], tap % pool.kernel[1]];
                let [row, column] = [0, 1].map(|axis| {
                    (at[axis] * pool.stride[axis] + tap[axis] * pool.dilation[axis])
                        .checked_sub(pool.padding[axis])
                        .filter(|&index| index < pool.plane[axis])
                });
                let (Some(row), Some(column)) = (row, column) else { continue };
                let value = plane[row * pool.plane[1] + column];
                if place.is_none() || value > largest || value.is_nan() {
                    (largest, place) = (value, Some(row * pool.plane[1] + column));
                }
            }
            windows.push((largest, place));
        }
        windows
    }

    fn pools() -> impl Strategy<Value = MaxPool> {
        let pair = |range: Range<usize>| [range.clone(), range];
        (pair(1..30), pair(1..5), pair(1..4), pair(0..3), pair(1..4)).prop_map(
            |(plane, kernel, stride, padding, dilation)| MaxPool {
                plane,
                kernel,
                stride,
                padding,
                dilation,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn outputs_and_gradients_equal_a_loop_over_windows(
            pool in pools(),
            planes in prop_oneof![1usize..4, 60usize..80],
            distinct in prop_oneof![Just(3i32), Just(1000)],
        ) {
            let Some([height, width]) = pool.output() else { return Ok(()) };
            let [input, output] = [pool.plane[0] * pool.plane[1], height * width];
            let value = |i: usize| {
                let value = (i as i32).wrapping_mul(7919).rem_euclid(2 * distinct) - distinct;
                if i % 41 == 7 && distinct == 3 { f32::NAN } else { value as f32 }
            };
            let values: Vec<f32> = (0..planes * input).map(value).collect();
            let grads: Vec<f32> = (0..planes * output).map(|i| (i % 17) as f32 - 8.0).collect();
            let found = pool.forward(&values);
            let gradient = pool.input_gradient(&values, &grads);
            prop_assert_eq!(found.len(), grads.len());
            for plane in 0..planes {
                let windows = windows(pool, &values[plane * input..][..input]);
                let mut sums = vec![0.0; input];
                for (window, (largest, place)) in windows.into_iter().enumerate() {
                    let found = found[plane * output + window];
                    prop_assert!(found == largest || found.is_nan() && largest.is_nan());
                    if let Some(place) = place {
                        sums[place] += grads[plane * output + window];
                    }
                }
                prop_assert_eq!(&gradient[plane * input..][..input], &sums[..]);
            }
        }
    }

    #[test]
    fn windows_that_do_not_fit_have_no_output() {
        let pool = MaxPool {
            plane: [3, 5],
            kernel: [3, 3],
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
        };
        assert_eq!(pool.output(), Some([1, 3]));
        assert_eq!(MaxPool { kernel: [4, 3], ..pool }.output(), None);
        assert_eq!(MaxPool { kernel: [0, 3], ..pool }.output(), None);
        assert_eq!(MaxPool { dilation: [2, 1], ..pool }.output(), None);
        assert!(MaxPool { kernel: [4, 3], ..pool }.forward(&[0.0; 30]).is_empty());
    }
}
