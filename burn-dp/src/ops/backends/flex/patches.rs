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
    pub(super) fn fill_volume(
        &self,
        volume: &[f32],
        size: [usize; 3],
        kernel: usize,
        row: &mut [f32],
    ) {
        self.for_each_segment(size, kernel, |Segment { row: start, pixel, length, stride }| {
            let row = &mut row[start..start + length];
            if stride == 1 {
                row.copy_from_slice(&volume[pixel..pixel + length]);
            } else {
                let pixels = volume[pixel..].iter().step_by(stride);
                row.iter_mut().zip(pixels).for_each(|(value, &pixel)| *value = pixel);
            }
        });
    }

    /// Adds the values of a row to the pixels that [`fill_volume`](Self::fill_volume) takes them
    /// from.
    pub(super) fn add_volume(
        &self,
        row: &[f32],
        size: [usize; 3],
        kernel: usize,
        volume: &mut [f32],
    ) {
        self.for_each_segment(size, kernel, |Segment { row: start, pixel, length, stride }| {
            let row = &row[start..start + length];
            if stride == 1 {
                let pixels = &mut volume[pixel..pixel + length];
                pixels.iter_mut().zip(row).for_each(|(pixel, value)| *pixel += value);
            } else {
                let pixels = volume[pixel..].iter_mut().step_by(stride);
                pixels.zip(row).for_each(|(pixel, value)| *pixel += value);
            }
        });
    }

    /// Visits the pixels inside the image under element `kernel` of the kernel, one output row
    /// after another.
    fn for_each_segment(&self, size: [usize; 3], kernel: usize, mut visit: impl FnMut(Segment)) {
        let [depth, height, width] = size;
        let [_, kernel_height, kernel_width] = self.kernel_size;
        let [depth_out, height_out, width_out] = self.output_size;
        let [stride_z, stride_y, stride] = self.options.stride;
        let [(front, _), (top, _), (left, _)] = self.options.padding;
        let [dilation_z, dilation_y, dilation_x] = self.options.dilation;
        let x_offset = kernel % kernel_width * dilation_x;
        let y_offset = kernel / kernel_width % kernel_height * dilation_y;
        let z_offset = kernel / (kernel_width * kernel_height) * dilation_z;

        // The output columns whose pixel is inside the image.
        let first = left.saturating_sub(x_offset).div_ceil(stride).min(width_out);
        let end = (width + left).saturating_sub(x_offset).div_ceil(stride).min(width_out);
        if first >= end {
            return;
        }
        let inside = |position: usize, padding: usize, length: usize| {
            position.checked_sub(padding).filter(|&position| position < length)
        };
        for z_out in 0..depth_out {
            let Some(z) = inside(z_out * stride_z + z_offset, front, depth) else { continue };
            for y_out in 0..height_out {
                let Some(y) = inside(y_out * stride_y + y_offset, top, height) else { continue };
                let x = first * stride + x_offset - left;
                visit(Segment {
                    row: (z_out * height_out + y_out) * width_out + first,
                    pixel: (z * height + y) * width + x,
                    length: end - first,
                    stride,
                });
            }
        }
    }
}

/// Pixels of one row of the image, and the corresponding values of a row of patches.
struct Segment {
    /// Start of the values.
    row: usize,
    /// Start of the pixels.
    pixel: usize,
    /// Number of values.
    length: usize,
    /// Distance of the pixels.
    stride: usize,
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
    use crate::ops::backends::flex::arbitrary;

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
            let input = arbitrary([batch_size, channels * groups, size[0], size[1], size[2]]);
            let patches = Patches { kernel_size, output_size, options };
            let views = patches.by_views(input.clone());
            let native = Dispatch::native_patches(input.into_dispatch(), patches).unwrap();
            views.into_data().assert_eq(&Tensor::<3>::from_dispatch(native).into_data(), true);
        }
    }
}
