//! Convolutions as products with patches (im2col) of a few examples at a time: few enough for the
//! cache, and enough for an efficient product. A transposed convolution is the gradient of the
//! input of a convolution.
//!
//! The blocks of examples depend on the shapes alone, so that results do not depend on the number
//! of threads.

use std::ops::Range;

use burn::backend::{Flex, TensorMetadata, ops::FloatTensorOps, tensor::FloatTensor};
use burn::tensor::{Shape, TensorData};
use rayon::prelude::*;

use crate::ops::{Convolution, Patches};

/// Values of the patches of one block: they fit into the cache of a core.
const BLOCK_VALUES: usize = 1 << 16;

/// Columns of the patches of one block, at least: with fewer, a product reads the weights more
/// often than it computes with them.
const BLOCK_COLUMNS: usize = 256;

/// Parts of the batch whose gradients of the weight are added up apart.
const PARTS: usize = 4;

/// Returns the output of a convolution.
pub(super) fn forward(
    input: &FloatTensor<Flex>,
    weight: &FloatTensor<Flex>,
    bias: Option<&FloatTensor<Flex>>,
    convolution: &Convolution,
) -> Option<FloatTensor<Flex>> {
    let output = convolution.output(&input.shape(), &weight.shape());
    let bias = bias.map(FloatTensor::<Flex>::to_contiguous);
    let bias = match &bias {
        Some(bias) => Some(bias.as_slice::<f32>()?),
        None => None,
    };
    let (image, pixels) = exchange(convolution, input.shape(), output.clone());
    let geometry = Geometry::new(convolution, &weight.shape(), &image, &pixels)?;
    let mut values = geometry.product(input, weight, convolution.is_transposed())?;
    if let Some(bias) = bias {
        let plane = output.iter().skip(2).product();
        for (plane, bias) in values.chunks_exact_mut(plane).zip(bias.iter().cycle()) {
            plane.iter_mut().for_each(|value| *value += bias);
        }
    }
    Some(FloatTensor::<Flex>::from_data(TensorData::new(values, output)))
}

/// Returns the gradient of an input of shape `input`.
pub(super) fn input_gradient(
    input: &Shape,
    weight: &FloatTensor<Flex>,
    grad: &FloatTensor<Flex>,
    convolution: &Convolution,
) -> Option<FloatTensor<Flex>> {
    let (image, pixels) = exchange(convolution, input.clone(), grad.shape());
    let geometry = Geometry::new(convolution, &weight.shape(), &image, &pixels)?;
    let values = geometry.product(grad, weight, !convolution.is_transposed())?;
    Some(FloatTensor::<Flex>::from_data(TensorData::new(values, input.clone())))
}

/// Returns the gradient of a weight of shape `weight`, summed over the batch and flattened.
pub(super) fn weight_gradient(
    input: &FloatTensor<Flex>,
    grad: &FloatTensor<Flex>,
    weight: &Shape,
    convolution: &Convolution,
) -> Option<FloatTensor<Flex>> {
    let (image, pixels) = exchange(convolution, input, grad);
    let geometry = Geometry::new(convolution, weight, &image.shape(), &pixels.shape())?;
    let (image, pixels) = (image.to_contiguous(), pixels.to_contiguous());
    geometry.weight_gradient(image.as_slice::<f32>()?, pixels.as_slice::<f32>()?)
}

/// Returns what the kernel slides over, and what its positions are paired with.
fn exchange<T>(convolution: &Convolution, input: T, output: T) -> (T, T) {
    if convolution.is_transposed() { (output, input) } else { (input, output) }
}

/// The sizes of a convolution from an image to pixels.
struct Geometry {
    patches: Patches,
    batch_size: usize,
    groups: usize,
    /// Channels of image and pixels in one group.
    channels: [usize; 2],
    /// Depth, height and width of the image.
    image: [usize; 3],
    /// Values of the kernel, and its positions.
    kernel: usize,
    positions: usize,
}

impl Geometry {
    /// Returns `None` if an axis is empty.
    fn new(
        convolution: &Convolution,
        weight: &Shape,
        image: &Shape,
        pixels: &Shape,
    ) -> Option<Self> {
        let patches = convolution.patches(weight, pixels);
        let groups = patches.options.groups;
        let mut size = [1; 3];
        let axes = image.num_dims() - 2;
        for (size, &length) in size[3 - axes..].iter_mut().zip(image.iter().skip(2)) {
            *size = length;
        }
        let all = [weight, image, pixels].into_iter().flat_map(|shape| shape.iter());
        (!all.into_iter().any(|&length| length == 0)).then(|| Self {
            batch_size: image[0],
            groups,
            channels: [image[1] / groups, pixels[1] / groups],
            image: size,
            kernel: patches.kernel_size.iter().product(),
            positions: patches.output_size.iter().product(),
            patches,
        })
    }

    /// Values of all channels of one example.
    fn image_values(&self) -> usize {
        self.groups * self.channels[0] * self.volume()
    }

    fn pixel_values(&self) -> usize {
        self.groups * self.channels[1] * self.positions
    }

    fn volume(&self) -> usize {
        self.image.iter().product()
    }

    /// Rows of the patches of one group.
    fn rows(&self) -> usize {
        self.channels[0] * self.kernel
    }

    /// Examples of one block.
    fn block(&self) -> usize {
        let fitting = BLOCK_VALUES / (self.rows() * self.positions);
        fitting.max(BLOCK_COLUMNS.div_ceil(self.positions)).min(self.batch_size)
    }

    /// Returns the weight of each group, `[pixel channels, rows]`.
    fn weights(&self, weight: &FloatTensor<Flex>) -> Option<Vec<FloatTensor<Flex>>> {
        let weight = weight.to_contiguous();
        let [_, channels] = self.channels;
        weight.as_slice::<f32>()?;
        let matrix = weight.reshape(Shape::new([self.groups * channels, self.rows()]));
        Some((0..self.groups).map(|group| matrix.narrow(0, group * channels, channels)).collect())
    }

    /// Computes the pixels of an image or, if `transposed`, the image whose gradient the pixels
    /// are.
    fn product(
        &self,
        from: &FloatTensor<Flex>,
        weight: &FloatTensor<Flex>,
        transposed: bool,
    ) -> Option<Vec<f32>> {
        let weights = self.weights(weight)?;
        let from = from.to_contiguous();
        let from = from.as_slice::<f32>()?;
        let (source, target) = match transposed {
            false => (self.image_values(), self.pixel_values()),
            true => (self.pixel_values(), self.image_values()),
        };
        let mut values = vec![0.0; self.batch_size * target];
        let block = self.block();
        from.par_chunks(block * source).zip(values.par_chunks_mut(block * target)).for_each(
            |(from, to)| {
                for (group, weight) in weights.iter().enumerate() {
                    if transposed {
                        let pixels = self.gather_pixels(from, group);
                        let weight = weight.transpose(0, 1);
                        let columns = Flex::float_matmul(weight, pixels);
                        self.add_patches(&columns, to, group);
                    } else {
                        let columns = self.gather_patches(from, group);
                        let pixels = Flex::float_matmul(weight.clone(), columns);
                        self.scatter_pixels(&pixels, to, group);
                    }
                }
            },
        );
        Some(values)
    }

    /// Returns the sum over the batch of the products of pixels and patches, flattened.
    fn weight_gradient(&self, image: &[f32], pixels: &[f32]) -> Option<FloatTensor<Flex>> {
        let block = self.block();
        let part = self.batch_size.div_ceil(block).div_ceil(PARTS) * block;
        let of_part = |(image, pixels): (&[f32], &[f32])| {
            let blocks = image
                .chunks(block * self.image_values())
                .zip(pixels.chunks(block * self.pixel_values()));
            let mut sum: Option<Vec<FloatTensor<Flex>>> = None;
            for (image, pixels) in blocks {
                let grads = (0..self.groups).map(|group| {
                    let columns = self.gather_patches(image, group);
                    Flex::float_matmul(self.gather_pixels(pixels, group), columns.transpose(0, 1))
                });
                sum = Some(match sum {
                    Some(sum) => sum.into_iter().zip(grads).map(add).collect(),
                    None => grads.collect(),
                });
            }
            sum
        };
        let parts: Vec<_> = image
            .par_chunks(part * self.image_values())
            .zip(pixels.par_chunks(part * self.pixel_values()))
            .filter_map(of_part)
            .collect();
        let sum =
            parts.into_iter().reduce(|sum, grads| sum.into_iter().zip(grads).map(add).collect())?;
        let values = self.groups * self.channels[1] * self.rows();
        Some(Flex::float_reshape(Flex::float_cat(sum, 0), Shape::new([values])))
    }

    /// Returns the patches of one group of some examples, `[rows, examples · positions]`.
    fn gather_patches(&self, images: &[f32], group: usize) -> FloatTensor<Flex> {
        let examples = images.len() / self.image_values();
        let mut columns = vec![0.0; self.rows() * examples * self.positions];
        for (example, image) in images.chunks_exact(self.image_values()).enumerate() {
            for row in 0..self.rows() {
                let start = (row * examples + example) * self.positions;
                let to = &mut columns[start..start + self.positions];
                let volume = &image[self.channel(group, row)];
                self.patches.fill_volume(volume, self.image, row % self.kernel, to);
            }
        }
        matrix(columns, self.rows())
    }

    /// Adds patches to the pixels of the images that they were taken from.
    fn add_patches(&self, columns: &FloatTensor<Flex>, images: &mut [f32], group: usize) {
        let columns = columns.as_slice::<f32>().expect("a product is contiguous");
        let examples = images.len() / self.image_values();
        for (example, image) in images.chunks_exact_mut(self.image_values()).enumerate() {
            for row in 0..self.rows() {
                let start = (row * examples + example) * self.positions;
                let from = &columns[start..start + self.positions];
                let volume = &mut image[self.channel(group, row)];
                self.patches.add_volume(from, self.image, row % self.kernel, volume);
            }
        }
    }

    /// Returns the place of the channel in an image that row `row` of the patches is taken from.
    fn channel(&self, group: usize, row: usize) -> Range<usize> {
        let channel = group * self.channels[0] + row / self.kernel;
        channel * self.volume()..(channel + 1) * self.volume()
    }

    /// Returns the pixels of one group of some examples, `[channels, examples · positions]`.
    fn gather_pixels(&self, pixels: &[f32], group: usize) -> FloatTensor<Flex> {
        let [_, channels] = self.channels;
        let mut gathered = Vec::with_capacity(pixels.len() / self.groups);
        for channel in group * channels..(group + 1) * channels {
            for example in pixels.chunks_exact(self.pixel_values()) {
                gathered.extend_from_slice(&example[channel * self.positions..][..self.positions]);
            }
        }
        matrix(gathered, channels)
    }

    /// Writes the pixels of one group to their examples.
    fn scatter_pixels(&self, gathered: &FloatTensor<Flex>, pixels: &mut [f32], group: usize) {
        let gathered = gathered.as_slice::<f32>().expect("a product is contiguous");
        let [_, channels] = self.channels;
        let examples = pixels.len() / self.pixel_values();
        for (example, pixels) in pixels.chunks_exact_mut(self.pixel_values()).enumerate() {
            for index in 0..channels {
                let from = &gathered[(index * examples + example) * self.positions..];
                let to = &mut pixels[(group * channels + index) * self.positions..];
                to[..self.positions].copy_from_slice(&from[..self.positions]);
            }
        }
    }
}

fn add((sum, grad): (FloatTensor<Flex>, FloatTensor<Flex>)) -> FloatTensor<Flex> {
    Flex::float_add(sum, grad)
}

fn matrix(values: Vec<f32>, rows: usize) -> FloatTensor<Flex> {
    let columns = values.len() / rows;
    FloatTensor::<Flex>::from_data(TensorData::new(values, [rows, columns]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::ops::{ConvOptions, ConvTransposeOptions};
    use proptest::prelude::*;

    use super::*;
    use crate::ops::backends::flex::ramp;
    use crate::ops::{Kept, Primitive};

    /// Options of a convolution of N dimensions, and the sizes of image and kernel.
    #[derive(Clone, Copy, Debug)]
    struct Case {
        batch_size: usize,
        groups: usize,
        channels: [usize; 2],
        kernel: [usize; 3],
        stride: [usize; 3],
        dilation: [usize; 3],
        padding: [(usize, usize); 3],
        size: [usize; 3],
    }

    prop_compose! {
        fn any_case()(
            batch_size in 1usize..6,
            groups in 1usize..3,
            channels in [1usize..4, 1usize..4],
            kernel in [1usize..3, 1usize..4, 1usize..4],
            stride in [1usize..3, 1usize..4, 1usize..4],
            dilation in [1usize..3, 1usize..3, 1usize..3],
            padding in [0usize..2, 0usize..3, 0usize..3],
            size in [4usize..6, 6usize..10, 6usize..10],
        ) -> Case {
            // The operations of the backends take the same padding on both sides.
            let padding = padding.map(|padding| (padding, padding));
            Case { batch_size, groups, channels, kernel, stride, dilation, padding, size }
        }
    }

    impl Case {
        fn options<const N: usize>(&self) -> ConvOptions<N> {
            ConvOptions::new_with_padding(
                std::array::from_fn(|axis| self.stride[axis]),
                std::array::from_fn(|axis| self.padding[axis]),
                std::array::from_fn(|axis| self.dilation[axis]),
                self.groups,
            )
        }

        fn transposed<const N: usize>(&self) -> ConvTransposeOptions<N> {
            ConvTransposeOptions::new(
                std::array::from_fn(|axis| self.stride[axis]),
                // No more than the kernel leaves.
                std::array::from_fn(|axis| self.padding[axis].0.min(self.kernel[axis] - 1)),
                std::array::from_fn(|axis| self.stride[axis] - 1),
                std::array::from_fn(|axis| self.dilation[axis]),
                self.groups,
            )
        }

        /// Compares output and gradients with Burn's operations.
        fn check<const D: usize>(&self, convolution: Convolution) {
            let tensor = |shape: [usize; D], phase: f32| {
                FloatTensor::<Flex>::from_data((ramp(shape) + phase).into_data())
            };
            let [from, to] = self.channels;
            let weight_channels = match convolution.is_transposed() {
                true => [self.groups * from, to],
                false => [self.groups * to, from],
            };
            let shape = |channels: [usize; 2], axes: [usize; 3]| -> [usize; D] {
                std::array::from_fn(|axis| match axis {
                    0 | 1 => channels[axis],
                    _ => axes[axis - 2],
                })
            };
            let input = tensor(shape([self.batch_size, self.groups * from], self.size), 0.0);
            let weight = tensor(shape(weight_channels, self.kernel), 0.1);
            let bias = (ramp([self.groups * to]) + 0.2).into_data();
            let bias = FloatTensor::<Flex>::from_data(bias);
            let equal = |native: FloatTensor<Flex>, burn: FloatTensor<Flex>| {
                let tolerance = burn::tensor::Tolerance::<f32>::absolute(1e-4).set_relative(1e-4);
                native.into_data().assert_approx_eq::<f32>(&burn.into_data(), tolerance);
            };

            let output = convolution.clone().forward::<Flex>(
                input.clone(),
                weight.clone(),
                Some(bias.clone()),
            );
            let native = forward(&input, &weight, Some(&bias), &convolution).unwrap();
            equal(native, output.clone());

            let grad = FloatTensor::<Flex>::from_data(
                ramp::<1>([output.shape().num_elements()]).into_data(),
            );
            let grad = Flex::float_reshape(grad, output.shape());
            let native = input_gradient(&input.shape(), &weight, &grad, &convolution).unwrap();
            let burn = convolution.clone().input_gradient::<Flex>(
                input.shape(),
                weight.clone(),
                grad.clone(),
            );
            equal(native, burn);

            let native = weight_gradient(&input, &grad, &weight.shape(), &convolution).unwrap();
            let burn = Primitive::Convolution { convolution, kernel: None }
                .flat_weight_gradient::<Flex>(Kept::One(input), weight.shape(), grad);
            equal(native, burn);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 60, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_convolutions_equal_convolutions_of_burn(case in any_case()) {
            case.check::<3>(Convolution::Conv1d(case.options()));
            case.check::<4>(Convolution::Conv2d(case.options()));
            case.check::<5>(Convolution::Conv3d(case.options()));
        }

        #[test]
        fn native_transposed_convolutions_equal_convolutions_of_burn(case in any_case()) {
            case.check::<3>(Convolution::Transpose1d(case.transposed()));
            case.check::<4>(Convolution::Transpose2d(case.transposed()));
            case.check::<5>(Convolution::Transpose3d(case.transposed()));
        }
    }

    #[test]
    fn batches_of_several_blocks_and_parts_equal_convolutions_of_burn() {
        let case = Case {
            batch_size: 9,
            groups: 1,
            channels: [16, 8],
            kernel: [1, 3, 3],
            stride: [1; 3],
            dilation: [1; 3],
            padding: [(0, 0), (1, 1), (1, 1)],
            size: [1, 16, 16],
        };
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let square = Case { kernel: [3, 3, 1], size: [16, 16, 1], ..case };
        square.check::<4>(Convolution::Conv2d(options));
    }

    #[test]
    fn an_empty_batch_is_left_to_burn() {
        let case = Convolution::Conv1d(ConvOptions::new([1], [0], [1], 1));
        let [input, weight] = [[0, 1, 4], [1, 1, 2]]
            .map(|shape| FloatTensor::<Flex>::from_data(TensorData::zeros::<f32, _>(shape)));
        assert!(forward(&input, &weight, None, &case).is_none());
    }
}
