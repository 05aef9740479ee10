//! Convolutions of planes without patches.
//!
//! A convolution is a product of the weights with the patches under the kernel. With a stride of
//! one, the patches of consecutive pixels are consecutive values of the image, so the product reads
//! vectors of the padded image instead of patches, and no patch buffer is written. With a larger
//! stride s the image is first sorted into s × s images of every s-th row and column.
//!
//! Rows of the output that are shorter than rows of the padded image leave gaps. They are computed
//! and dropped.

use pulp::{Arch, Simd, WithSimd};

use crate::matrix::Matrix;
use crate::packed::Packed;
use crate::tile::{Rows, Sums, Vectors, add_vectors, lanes, panel_vectors};

/// The sizes of a convolution of the planes of one example, for one group of channels.
#[derive(Clone, Copy, Debug)]
pub struct Planes {
    /// Channels of the image and of the output.
    pub channels: [usize; 2],
    /// Height and width of the image.
    pub image: [usize; 2],
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Distance between two positions of the kernel.
    pub stride: [usize; 2],
    /// Rows of zeros above the image, and columns of zeros to its left.
    pub padding: [usize; 2],
    /// Distance between two values under the kernel.
    pub dilation: [usize; 2],
}

impl Planes {
    /// Returns the number of values of one channel of the output.
    fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// Returns the number of rows of the patches.
    pub fn rows(&self) -> usize {
        self.channels[0] * self.kernel.iter().product::<usize>()
    }

    /// Returns whether [`forward`](Self::forward) is less work than a product with patches that are
    /// written first.
    pub fn is_direct(&self) -> bool {
        self.is_less_work_than(self)
    }

    /// Returns whether [`forward`](Self::forward) of the [`input_gradient`](Self::input_gradient)
    /// is less work than a product that writes the gradients of the patches, which are then added
    /// up. The gradient is a convolution of pixels and the zeros around them; the product has no
    /// zeros.
    pub fn is_input_gradient_direct(&self) -> bool {
        self.input_gradient().is_some_and(|gradient| gradient.is_less_work_than(self))
    }

    /// Returns whether [`forward`](Self::forward) is less work than a product of all channels with
    /// the patches of `other`.
    fn is_less_work_than(&self, other: &Self) -> bool {
        // Writing and reading one patch value takes as long as this many multiplications.
        const PATCH: usize = 32;
        let computed = self.padded().positions.next_multiple_of(lanes());
        let [_, outputs] = other.channels;
        other.pixels() * (outputs + PATCH) >= computed * outputs
    }

    /// Returns the convolution of the gradient of the output that is the gradient of the image,
    /// with [`flipped`](Self::flipped) weights; `None` for a larger stride than one, or where only
    /// padding is under the kernel.
    pub fn input_gradient(&self) -> Option<Self> {
        if self.stride != [1, 1] {
            return None;
        }
        let mut padding = [0; 2];
        for (axis, padding) in padding.iter_mut().enumerate() {
            let reach = (self.kernel[axis] - 1) * self.dilation[axis];
            *padding = reach.checked_sub(self.padding[axis])?;
        }
        let [channels, outputs] = self.channels;
        let (image, output) = (self.output, self.image);
        Some(Self { channels: [outputs, channels], image, output, padding, ..*self })
    }

    /// Returns the weights of [`input_gradient`](Self::input_gradient), from weights of shape
    /// `[channels out, channels, kernel height, kernel width]`.
    pub fn flipped(&self, weights: &[f32]) -> Vec<f32> {
        let ([channels, outputs], taps) = (self.channels, self.kernel.iter().product());
        let mut flipped = vec![0.0; weights.len()];
        for (index, kernel) in weights.chunks_exact(taps).enumerate() {
            let (output, channel) = (index / channels, index % channels);
            let to = &mut flipped[(channel * outputs + output) * taps..][..taps];
            to.iter_mut().zip(kernel.iter().rev()).for_each(|(to, &weight)| *to = weight);
        }
        flipped
    }

    fn padded(&self) -> Padded {
        let last = |axis: usize| (self.kernel[axis] - 1) * self.dilation[axis] / self.stride[axis];
        let size = [last(0) + self.output[0], last(1) + self.output[1]];
        let [height, width] = size;
        Padded {
            size,
            plane: height * width,
            positions: (self.output[0] - 1) * width + self.output[1],
        }
    }

    /// Returns the image with its padding, sorted by the remainders of rows and columns modulo the
    /// stride.
    fn pad(&self, image: &[f32]) -> Vec<f32> {
        let (padded, [_, width]) = (self.padded(), self.image);
        let phases: usize = self.stride.iter().product();
        let mut values =
            vec![0.0; self.channels[0] * phases * padded.plane + panel_vectors(lanes()) * lanes()];
        let planes = values.chunks_exact_mut(phases * padded.plane);
        for (image, to) in image.chunks_exact(self.image.iter().product()).zip(planes) {
            for (y, row) in image.chunks_exact(width).enumerate() {
                let (quotient, phase) = self.place(y + self.padding[0], 0);
                if quotient >= padded.size[0] {
                    continue;
                }
                let start = phase * self.stride[1] * padded.plane + quotient * padded.size[1];
                if self.stride[1] == 1 {
                    let left = self.padding[1].min(padded.size[1]);
                    let length = width.min(padded.size[1] - left);
                    to[start + left..][..length].copy_from_slice(&row[..length]);
                    continue;
                }
                for (x, &value) in row.iter().enumerate() {
                    let (quotient, phase) = self.place(x + self.padding[1], 1);
                    if quotient < padded.size[1] {
                        to[start + phase * padded.plane + quotient] = value;
                    }
                }
            }
        }
        values
    }

    /// Returns the quotient and the remainder of a place modulo the stride.
    fn place(&self, place: usize, axis: usize) -> (usize, usize) {
        (place / self.stride[axis], place % self.stride[axis])
    }

    /// Returns the start of the values under each element of the kernel in the padded image.
    fn starts(&self) -> Vec<usize> {
        let padded = self.padded();
        let [height, width] = self.kernel;
        let mut starts = Vec::with_capacity(self.rows());
        for channel in 0..self.channels[0] {
            for y in 0..height {
                for x in 0..width {
                    let (row, phase_y) = self.place(y * self.dilation[0], 0);
                    let (column, phase_x) = self.place(x * self.dilation[1], 1);
                    let plane = (channel * self.stride[0] + phase_y) * self.stride[1] + phase_x;
                    starts.push(plane * padded.plane + row * padded.size[1] + column);
                }
            }
        }
        starts
    }

    /// Computes the output of one example.
    ///
    /// - image: `[channels, height, width]`
    /// - weights: `[channels out, channels, kernel height, kernel width]`
    /// - bias: one value for each channel of the output
    /// - output: `[channels out, height out, width out]`
    pub fn forward(
        &self,
        image: &[f32],
        weights: &[f32],
        bias: Option<&[f32]>,
        output: &mut [f32],
    ) {
        let (padded, [_, width]) = (self.padded(), self.output);
        let (values, starts) = (self.pad(image), self.starts());
        let mut sums = vec![0.0; self.channels[1] * padded.positions];
        if let Some(bias) = bias {
            let rows = sums.chunks_exact_mut(padded.positions);
            rows.zip(bias).for_each(|(row, &bias)| row.fill(bias));
        }
        Arch::new().dispatch(Shifted {
            weights,
            values: &values,
            starts: &starts,
            positions: padded.positions,
            sums: &mut sums,
        });
        let planes = output.chunks_exact_mut(self.pixels());
        for (sums, plane) in sums.chunks_exact(padded.positions).zip(planes) {
            for (row, to) in sums.chunks(padded.size[1]).zip(plane.chunks_exact_mut(width)) {
                to.copy_from_slice(&row[..width]);
            }
        }
    }

    /// Adds the gradient of the weights for one example, transposed.
    ///
    /// - image: `[channels, height, width]`
    /// - grad: gradient of the output, `[channels out, height out, width out]`
    /// - sums: `[channels · kernel height · kernel width, channels out]`
    pub fn add_weight_gradient(&self, image: &[f32], grad: &[f32], sums: &mut [f32]) {
        let padded = self.padded();
        let (values, starts) = (self.pad(image), self.starts());
        let grad = Matrix::new(grad, [self.channels[1], self.pixels()]).transpose();
        let [runs, length] = self.output;
        let rows = Rows { values: &values, starts: &starts, runs, length, pitch: padded.size[1] };
        Packed::new(grad).add_runs(rows, sums);
    }
}

/// The sizes of a padded image.
struct Padded {
    /// Height and width of each part.
    size: [usize; 2],
    plane: usize,
    /// Values between the first and the last pixel of a channel of the output, gaps included.
    positions: usize,
}

/// A product of weights with shifted images, compiled for each vector unit.
struct Shifted<'a> {
    /// `[channels out, terms]`.
    weights: &'a [f32],
    values: &'a [f32],
    starts: &'a [usize],
    positions: usize,
    sums: &'a mut [f32],
}

impl WithSimd for Shifted<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { weights, values, starts, positions, sums } = self;
        let length = starts.len();
        let rows: Vec<usize> = (0..weights.len()).step_by(length).collect();
        let left = Rows { values: weights, starts: &rows, runs: 1, length, pitch: 0 };
        let panel = panel_vectors(S::F32_LANES) * S::F32_LANES;
        for start in (0..positions).step_by(panel) {
            let columns = panel.min(positions - start);
            let mut sums = Sums { values: sums, start, columns, stride: positions };
            let right = Vectors { values: &values[start..], starts };
            add_vectors(simd, left, right, &mut sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Arbitrary values.
    fn values(count: usize, phase: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
    }

    impl Planes {
        /// Visits every product of a convolution: the places in image, weights and output.
        fn for_each(&self, mut visit: impl FnMut(usize, usize, usize)) {
            let ([channels, outputs], [height, width]) = (self.channels, self.image);
            let inside = |position: usize, kernel: usize, axis: usize, size: usize| {
                (position * self.stride[axis] + kernel * self.dilation[axis])
                    .checked_sub(self.padding[axis])
                    .filter(|&place| place < size)
            };
            let [rows, columns] = self.kernel;
            for output in 0..outputs {
                for pixel in 0..self.pixels() {
                    let (row, column) = (pixel / self.output[1], pixel % self.output[1]);
                    for weight in 0..channels * rows * columns {
                        let (y, x) = (weight / columns % rows, weight % columns);
                        let (Some(y), Some(x)) =
                            (inside(row, y, 0, height), inside(column, x, 1, width))
                        else {
                            continue;
                        };
                        let channel = weight / (rows * columns);
                        visit(
                            (channel * height + y) * width + x,
                            output * channels * rows * columns + weight,
                            output * self.pixels() + pixel,
                        );
                    }
                }
            }
        }
    }

    prop_compose! {
        fn any_planes()(
            channels in [1usize..5, 1usize..15],
            image in [1usize..20, 1usize..40],
            kernel in [1usize..5, 1usize..5],
            stride in [1usize..4, 1usize..4],
            dilation in [1usize..3, 1usize..3],
            padding in [0usize..4, 0usize..4],
        ) -> Option<Planes> {
            let mut output = [0; 2];
            for axis in 0..2 {
                let reach = (kernel[axis] - 1) * dilation[axis] + 1;
                let free = (image[axis] + 2 * padding[axis]).checked_sub(reach)?;
                output[axis] = free / stride[axis] + 1;
            }
            Some(Planes { channels, image, output, kernel, stride, padding, dilation })
        }
    }

    // The roundings of equal terms have one sign. In one register they would add up to 1e-4.
    #[test]
    fn sums_of_many_equal_products_are_blocked() {
        for side in [16, 64, 224] {
            let size = [side, side];
            let planes = Planes {
                channels: [1, 1],
                image: size,
                output: size,
                kernel: [1, 1],
                stride: [1, 1],
                padding: [0, 0],
                dilation: [1, 1],
            };
            for (value, grad) in [(0.1f32, 0.3f32), (1.1, 0.7), (0.37, 1.9)] {
                let (image, grads) = (vec![value; side * side], vec![grad; side * side]);
                let mut sums = [0.0];
                planes.add_weight_gradient(&image, &grads, &mut sums);
                let exact = f64::from(value) * f64::from(grad) * (side * side) as f64;
                let error = (f64::from(sums[0]) / exact - 1.0).abs();
                assert!(error < 128.0 * 0.5 * f64::from(f32::EPSILON), "{side} {value}: {error:e}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn convolutions_equal_sums_of_products(planes in any_planes()) {
            let Some(planes) = planes else { return Ok(()) };
            let image = values(planes.channels[0] * planes.image.iter().product::<usize>(), 0.1);
            let weights = values(planes.channels[1] * planes.rows(), 0.2);
            let bias = values(planes.channels[1], 0.3);
            let grad = values(planes.channels[1] * planes.pixels(), 0.4);

            let mut expected: Vec<f64> = (0..grad.len())
                .map(|index| f64::from(bias[index / planes.pixels()]))
                .collect();
            let mut expected_grad = vec![1.5; weights.len()];
            let mut expected_image = vec![0.0; image.len()];
            planes.for_each(|pixel, weight, output| {
                expected[output] += f64::from(image[pixel]) * f64::from(weights[weight]);
                expected_image[pixel] += f64::from(weights[weight]) * f64::from(grad[output]);
                expected_grad[weight] += f64::from(image[pixel]) * f64::from(grad[output]);
            });

            let mut output = vec![0.0; grad.len()];
            planes.forward(&image, &weights, Some(&bias), &mut output);
            for (output, expected) in output.into_iter().zip(expected) {
                prop_assert!((f64::from(output) - expected).abs() < 1e-4, "{planes:?}");
            }
            if let Some(gradient) = planes.input_gradient() {
                let mut found = vec![0.0; image.len()];
                gradient.forward(&grad, &planes.flipped(&weights), None, &mut found);
                for (found, expected) in found.into_iter().zip(expected_image) {
                    prop_assert!((f64::from(found) - expected).abs() < 1e-4, "{planes:?}");
                }
            }
            let mut sums = vec![1.5; weights.len()];
            planes.add_weight_gradient(&image, &grad, &mut sums);
            for (index, expected) in expected_grad.into_iter().enumerate() {
                let (output, weight) = (index / planes.rows(), index % planes.rows());
                let found = sums[weight * planes.channels[1] + output];
                prop_assert!((f64::from(found) - expected).abs() < 1e-3, "{planes:?}");
            }
        }
    }
}
