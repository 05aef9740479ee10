//! The gradients of the weight of a small convolution, for each example, without patches.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// Number of channels of the pixels in one unit.
pub(super) const CHANNELS: usize = 4;

/// Places of the sizes, three for each that has one for each axis.
const GROUPS: usize = 0;
const IMAGE_CHANNELS: usize = 1;
const PIXEL_CHANNELS: usize = 2;
const IMAGE: usize = 3;
const PIXELS: usize = 6;
const KERNEL: usize = 9;
const STRIDE: usize = 12;
const PADDING: usize = 15;
const DILATION: usize = 18;
const UNITS: usize = 21;

/// Computes `[batch_size, groups, rows, columns]`: a row for each channel of the image and place of
/// the kernel, a column for each channel of the pixels. One unit computes the places of one row of
/// the kernel for one channel of the image and `CHANNELS` of the pixels.
///
/// - image, pixels: `[batch_size, channels, depth, height, width]`
/// - sizes: the groups, the channels of both tensors in a group, and for three axes each: the
///   image, the pixels, the kernel, stride, padding and dilation; then the number of units
/// - kernel_width: length of a row of the kernel
/// - slides: whether the window of the next pixel is this one moved by one value
#[cube(launch)]
pub fn convolution_gradients(
    image: &[f32],
    pixels: &[f32],
    sizes: &[u32],
    gradients: &mut [f32],
    #[comptime] kernel_width: usize,
    #[comptime] slides: bool,
) {
    let unit = u32::cast_from(ABSOLUTE_POS);
    if unit < sizes[UNITS] {
        let kernel_depth = sizes[KERNEL];
        let kernel_height = sizes[KERNEL + 1];
        let kernel_y = unit % kernel_height;
        let rest = unit / kernel_height;
        let kernel_z = rest % kernel_depth;
        let rest = rest / kernel_depth;
        let channel = rest % sizes[IMAGE_CHANNELS];
        let rest = rest / sizes[IMAGE_CHANNELS];
        let blocks = sizes[PIXEL_CHANNELS].div_ceil(u32::cast_from(CHANNELS));
        let first = (rest % blocks) * u32::cast_from(CHANNELS);
        let rest = rest / blocks;
        let group = rest % sizes[GROUPS];
        let example = rest / sizes[GROUPS];

        let (depth, height, width) = (sizes[IMAGE], sizes[IMAGE + 1], sizes[IMAGE + 2]);
        let image_plane = (example * sizes[GROUPS] + group) * sizes[IMAGE_CHANNELS] + channel;
        let pixel_plane = (example * sizes[GROUPS] + group) * sizes[PIXEL_CHANNELS] + first;
        let plane = sizes[PIXELS] * sizes[PIXELS + 1] * sizes[PIXELS + 2];
        let last = sizes[PIXEL_CHANNELS] - 1 - first;

        let mut sums = Array::<f32>::new(CHANNELS * kernel_width);
        #[unroll]
        for place in 0..CHANNELS * kernel_width {
            sums[place] = 0.0;
        }
        let mut window = Array::<f32>::new(kernel_width);
        #[unroll]
        for place in 0..kernel_width {
            window[place] = 0.0;
        }
        let stride = sizes[STRIDE + 2];
        let dilation = sizes[DILATION + 2];
        let padding = sizes[PADDING + 2];
        for z in 0..sizes[PIXELS] {
            // Before the image, a place wraps around and is beyond its end.
            let image_z = z * sizes[STRIDE] + kernel_z * sizes[DILATION] - sizes[PADDING];
            for y in 0..sizes[PIXELS + 1] {
                let image_y =
                    y * sizes[STRIDE + 1] + kernel_y * sizes[DILATION + 1] - sizes[PADDING + 1];
                if image_z < depth && image_y < height {
                    let row = ((image_plane * depth + image_z) * height + image_y) * width;
                    let pixel =
                        pixel_plane * plane + (z * sizes[PIXELS + 1] + y) * sizes[PIXELS + 2];
                    if comptime![slides] {
                        #[unroll]
                        for place in 1..kernel_width {
                            let x = u32::cast_from(place) - 1 - padding;
                            window[place] = value(image, row, x, width);
                        }
                    }
                    for x in 0..sizes[PIXELS + 2] {
                        if comptime![slides] {
                            #[unroll]
                            for place in 1..kernel_width {
                                window[place - 1] = window[place];
                            }
                            let next = x + u32::cast_from(kernel_width) - 1 - padding;
                            window[kernel_width - 1] = value(image, row, next, width);
                        } else {
                            #[unroll]
                            for place in 0..kernel_width {
                                let next = x * stride + u32::cast_from(place) * dilation - padding;
                                window[place] = value(image, row, next, width);
                            }
                        }
                        #[unroll]
                        for other in 0..CHANNELS {
                            // Channels after the last one are computed again, and not stored.
                            let other_channel = min(u32::cast_from(other), last);
                            let grad = pixels[usize::cast_from(pixel + other_channel * plane + x)];
                            #[unroll]
                            for place in 0..kernel_width {
                                sums[other * kernel_width + place] += grad * window[place];
                            }
                        }
                    }
                }
            }
        }
        let row = ((channel * kernel_depth + kernel_z) * kernel_height + kernel_y)
            * u32::cast_from(kernel_width);
        let rows =
            sizes[IMAGE_CHANNELS] * kernel_depth * kernel_height * u32::cast_from(kernel_width);
        let columns = sizes[PIXEL_CHANNELS];
        let start = (example * sizes[GROUPS] + group) * rows + row;
        #[unroll]
        for other in 0..CHANNELS {
            if u32::cast_from(other) <= last {
                #[unroll]
                for place in 0..kernel_width {
                    let at = (start + u32::cast_from(place)) * columns + first;
                    gradients[usize::cast_from(at + u32::cast_from(other))] =
                        sums[other * kernel_width + place];
                }
            }
        }
    }
}

/// Returns a value of a row of the image, or zero outside of it.
#[cube]
fn value(image: &[f32], row: u32, x: u32, width: u32) -> f32 {
    let mut value = 0.0f32;
    if x < width {
        value = image[usize::cast_from(row + x)];
    }
    value
}
