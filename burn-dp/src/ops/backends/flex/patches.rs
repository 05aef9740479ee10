use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::TensorData;
use rayon::prelude::*;

use super::tasks::TASK_VALUES;
use crate::ops::Patches;

/// Returns the patches under the kernel of a convolution.
///
/// - input: `[batch_size, channels, depth, height, width]`
/// - output: `[batch_size · groups, channels / groups · kernel values, positions]`
pub(super) fn patches(input: FloatTensor<Flex>, patches: &Patches) -> Option<FloatTensor<Flex>> {
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
    Some(FloatTensor::<Flex>::from_data(TensorData::new(rows, shape)))
}

impl Patches {
    /// Writes the pixels under element `kernel` of the kernel, one output plane after another;
    /// `row` holds zeros.
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

    /// Writes the pixels of one plane under one element of the kernel, one output row after
    /// another.
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
    use burn::tensor::Tensor;
    use burn::tensor::ops::ConvOptions;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::ParametricOps;
    use crate::ops::backends::flex::ramp;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_patches_equal_patches_by_views(
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
    }
}
