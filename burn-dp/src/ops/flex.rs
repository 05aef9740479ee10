//! What the Flex backend does better than views and generic operations: one pass over memory, on
//! all cores.

use burn::backend::{
    Flex, TensorMetadata,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::TensorData;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{ParametricOps, Patches};

/// Values that a task should at least have, so that threads are worth their start.
const TASK_VALUES: usize = 1 << 14;
/// Values that one thread has read before others would have woken up.
const FEW_VALUES: usize = 1 << 18;

impl ParametricOps for Flex {
    fn native_patches(input: FloatTensor<Self>, patches: Patches) -> Option<FloatTensor<Self>> {
        let [batch_size, channels, depth, height, width] = input.shape().dims();
        let values = input.as_slice::<f32>()?;
        let positions: usize = patches.output_size.iter().product();
        let groups = patches.options.groups;
        let kernel_values = patches.kernel_size.iter().product::<usize>();

        // One row for each (example, channel, kernel depth, kernel row, kernel column).
        let mut rows = vec![0.0f32; batch_size * channels * kernel_values * positions];
        let volume = depth * height * width;
        let fill = |(index, rows): (usize, &mut [f32])| {
            let volume = &values[index * volume..(index + 1) * volume];
            for (kernel, row) in rows.chunks_exact_mut(positions.max(1)).enumerate() {
                patches.fill_volume(volume, [depth, height, width], kernel, row);
            }
        };
        let channel_values = kernel_values * positions;
        rows.par_chunks_mut(channel_values.max(1))
            .enumerate()
            .with_min_len(TASK_VALUES.div_ceil(channel_values.max(1)))
            .for_each(fill);
        let shape = [batch_size * groups, channels / groups * kernel_values, positions];
        Some(FloatTensor::<Self>::from_data(TensorData::new(rows, shape)))
    }

    fn native_row_squared_norms(rows: FloatTensor<Self>) -> Option<FloatTensor<Self>> {
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
        Some(FloatTensor::<Self>::from_data(TensorData::new(norms, [count])))
    }

    fn native_indexed_squared_norms(
        ids: IntTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        let [batch_size, positions, features] = rows.shape().dims();
        if positions * features == 0 {
            return None;
        }
        let values = rows.as_slice::<f32>()?;
        let ids: Vec<i64> = match (ids.as_slice::<i64>(), ids.as_slice::<i32>()) {
            (Some(ids), _) => ids.to_vec(),
            (None, Some(ids)) => ids.iter().map(|&id| i64::from(id)).collect(),
            (None, None) => return None,
        };
        let norms: Vec<f32> = values
            .par_chunks_exact(positions * features)
            .zip(ids.par_chunks_exact(positions))
            .with_min_len(TASK_VALUES.div_ceil(positions * features))
            .map(|(rows, ids)| indexed_squared_norm(ids, rows, features))
            .collect();
        Some(FloatTensor::<Self>::from_data(TensorData::new(norms, [batch_size])))
    }
}

/// `Σ_v ‖Σ_{t: ids[t] = v} rows[t]‖²` of one example: the rows of an id are added up one id after
/// another.
fn indexed_squared_norm(ids: &[i64], rows: &[f32], features: usize) -> f32 {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_unstable_by_key(|&position| (ids[position], position));
    let row = |position: usize| &rows[position * features..(position + 1) * features];
    let mut sum = vec![0.0f32; features];
    let mut total = 0.0f64;
    for positions in order.chunk_by(|&a, &b| ids[a] == ids[b]) {
        if let [position] = positions {
            total += f64::from(squared_norm(row(*position)));
            continue;
        }
        sum.fill(0.0);
        for &position in positions {
            sum.iter_mut().zip(row(position)).for_each(|(sum, value)| *sum += value);
        }
        total += f64::from(squared_norm(&sum));
    }
    total as f32
}

/// Sum of squares: blocks in f32 on independent lanes, the blocks added in f64. Overflow of a block
/// is infinity, which is what a caller has to see.
fn squared_norm(row: &[f32]) -> f32 {
    Arch::new().dispatch(SquaredNorm(row))
}

/// Compiled for each vector unit. The order of the sum is the same on all of them.
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

impl Patches {
    /// The pixels that element `kernel` of the kernel sees, output plane by output plane; `row`
    /// holds zeros.
    fn fill_volume(&self, volume: &[f32], size: [usize; 3], kernel: usize, row: &mut [f32]) {
        let [depth, height, width] = size;
        let [_, kernel_height, kernel_width] = self.kernel_size;
        let [_, height_out, width_out] = self.output_size;
        let (front, _) = self.options.padding[0];
        let column = kernel % kernel_width;
        let line = kernel / kernel_width % kernel_height;
        let plane = kernel / (kernel_width * kernel_height) * self.options.dilation[0];
        for (z_out, row) in row.chunks_exact_mut((height_out * width_out).max(1)).enumerate() {
            let z = z_out * self.options.stride[0] + plane;
            if z >= front && z - front < depth {
                let area = height * width;
                let image = &volume[(z - front) * area..(z - front + 1) * area];
                self.fill_plane(image, [height, width], [line, column], row);
            }
        }
    }

    /// The pixels that one element of the kernel sees in one plane, output row by output row.
    fn fill_plane(&self, image: &[f32], size: [usize; 2], kernel: [usize; 2], row: &mut [f32]) {
        let [height, width] = size;
        let [_, _, width_out] = self.output_size;
        let [_, stride @ ..] = self.options.stride;
        let [_, dilation @ ..] = self.options.dilation;
        let [_, (top, _), (left, _)] = self.options.padding;
        let row_offset = kernel[0] * dilation[0];
        let column_offset = kernel[1] * dilation[1];

        // The output columns whose pixel lies inside of the image.
        let first = left.saturating_sub(column_offset).div_ceil(stride[1]).min(width_out);
        let end = (width + left).saturating_sub(column_offset).div_ceil(stride[1]).min(width_out);
        if first >= end {
            return;
        }
        for (y_out, row) in row.chunks_exact_mut(width_out).enumerate() {
            let y = y_out * stride[0] + row_offset;
            if y < top || y - top >= height {
                continue;
            }
            let line = &image[(y - top) * width..(y - top + 1) * width];
            let x = first * stride[1] + column_offset - left;
            if stride[1] == 1 {
                row[first..end].copy_from_slice(&line[x..x + end - first]);
            } else {
                for (value, &pixel) in
                    row[first..end].iter_mut().zip(line[x..].iter().step_by(stride[1]))
                {
                    *value = pixel;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::Dispatch;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Int, Tensor};
    use proptest::prelude::*;

    use super::*;

    fn ramp<const D: usize>(shape: [usize; D]) -> Tensor<D> {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin()).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_native_patches_are_those_of_the_views(
            batch_size in 1usize..3,
            groups in 1usize..3,
            channels in 1usize..3,
            kernel_size in [1usize..3, 1usize..4, 1usize..4],
            stride in [1usize..3, 1usize..4, 1usize..4],
            dilation in [1usize..3, 1usize..3, 1usize..3],
            padding in [(0usize..2, 0usize..2), (0usize..4, 0usize..4), (0usize..4, 0usize..4)],
            size in [4usize..6, 7usize..12, 7usize..12],
            flat: bool,
        ) {
            let (kernel_size, stride, dilation, padding, size) = match flat {
                true => (
                    [1, kernel_size[1], kernel_size[2]],
                    [1, stride[1], stride[2]],
                    [1, dilation[1], dilation[2]],
                    [(0, 0), padding[1], padding[2]],
                    [1, size[1], size[2]],
                ),
                false => (kernel_size, stride, dilation, padding, size),
            };
            let output_size = std::array::from_fn(|axis| {
                let (begin, end) = padding[axis];
                let extent = dilation[axis] * (kernel_size[axis] - 1) + 1;
                (begin + size[axis] + end - extent) / stride[axis] + 1
            });
            let options = ConvOptions::new_with_padding(stride, padding, dilation, groups);
            let input = ramp([batch_size, channels * groups, size[0], size[1], size[2]]);
            let patches = Patches { kernel_size, output_size, options };
            let views = patches.by_views(input.clone());
            let native = Dispatch::native_patches(input.into_dispatch(), patches).unwrap();
            views.into_data().assert_eq(&Tensor::<3>::from_dispatch(native).into_data(), true);
        }

        #[test]
        fn the_native_norms_of_indexed_rows_are_those_of_the_sums(
            batch_size in 1usize..4,
            positions in 1usize..20,
            features in 1usize..40,
            words in 1i64..10,
        ) {
            let rows = ramp([batch_size, positions, features]);
            let count = batch_size * positions;
            let ids: Vec<i64> = (0..count as i64).map(|i| (i * i + 3 * i) % words).collect();
            let values = rows.to_data();
            let values = values.as_slice::<f32>().unwrap();
            let expected: Vec<f64> = (0..batch_size)
                .map(|example| {
                    let mut sums = vec![0.0f64; words as usize * features];
                    for position in example * positions..(example + 1) * positions {
                        for feature in 0..features {
                            sums[ids[position] as usize * features + feature] +=
                                f64::from(values[position * features + feature]);
                        }
                    }
                    sums.iter().map(|sum| sum * sum).sum()
                })
                .collect();
            let ids = TensorData::new(ids, [batch_size, positions]);
            let ids = Tensor::<2, Int>::from_data(ids, &Device::flex());
            let native =
                Dispatch::native_indexed_squared_norms(ids.into_dispatch(), rows.into_dispatch());
            let native = Tensor::<1>::from_dispatch(native.unwrap()).into_data();
            for (native, expected) in native.as_slice::<f32>().unwrap().iter().zip(expected) {
                prop_assert!((f64::from(*native) - expected).abs() <= 1e-5 * expected.max(1e-3));
            }
        }

        #[test]
        fn the_native_norms_are_those_of_the_sum(count in 1usize..5, length in 1usize..5000) {
            let rows = ramp([count, length]);
            let expected: Vec<f64> = rows
                .to_data()
                .as_slice::<f32>()
                .unwrap()
                .chunks(length)
                .map(|row| row.iter().map(|&value| f64::from(value).powi(2)).sum())
                .collect();
            let native = Dispatch::native_row_squared_norms(rows.into_dispatch()).unwrap();
            let native: Vec<f32> = Tensor::<1>::from_dispatch(native).into_data().try_into_vec().unwrap();
            for (native, expected) in native.into_iter().zip(expected) {
                prop_assert!((f64::from(native) - expected).abs() <= 1e-6 * expected);
            }
        }
    }

    #[test]
    fn norms_that_are_not_finite_stay_so() {
        for value in [f32::NAN, f32::INFINITY, 1e20] {
            let mut row = vec![0.5f32; 2000];
            row[1500] = value;
            assert!(!squared_norm(&row).is_finite());
        }
    }
}
