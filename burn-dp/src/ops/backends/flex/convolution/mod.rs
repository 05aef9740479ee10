//! Convolutions of one and two axes read shifted images, without patches, where this is less work
//! ([`Planes`](burn_dp_kernels::Planes)). The others are products with patches; see [`blocks`]. A
//! transposed convolution is the gradient of the input of a convolution.

mod blocks;
mod direct;

use std::borrow::Cow;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{Shape, TensorData};
use rayon::prelude::*;

use crate::ops::{Convolution, Patches};

/// Number of parts of the batch whose weight gradients are summed separately.
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
    let values = geometry.product(input, weight, bias, convolution.is_transposed())?;
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
    let values = geometry.product(grad, weight, None, !convolution.is_transposed())?;
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

/// Returns the gradients of a weight of shape `weight` for each example,
/// `[batch_size, groups, rows, channels]`: the matrix of each group is the transposed weight.
pub(super) fn example_gradients(
    image: &FloatTensor<Flex>,
    pixels: &FloatTensor<Flex>,
    weight: &Shape,
    convolution: &Convolution,
) -> Option<FloatTensor<Flex>> {
    let geometry = Geometry::new(convolution, weight, &image.shape(), &pixels.shape())?;
    let planes = geometry.gradient_planes()?;
    let (image, pixels) = (image.to_contiguous(), pixels.to_contiguous());
    let (image, pixels) = (image.as_slice::<f32>()?, pixels.as_slice::<f32>()?);
    let size = weight.num_elements();
    let mut values = vec![0.0; geometry.batch_size * size];
    let examples = image
        .par_chunks(geometry.image_values())
        .zip(pixels.par_chunks(geometry.pixel_values()))
        .zip(values.par_chunks_mut(size));
    examples
        .for_each(|((image, pixels), sums)| geometry.add_gradients(&planes, image, pixels, sums));
    let Geometry { batch_size, groups, channels: [_, channels], .. } = geometry;
    let data = TensorData::new(values, [batch_size, groups, geometry.rows(), channels]);
    Some(FloatTensor::<Flex>::from_data(data))
}

/// Returns the tensor that the kernel slides over, and the tensor that its positions are paired
/// with.
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

    /// Returns the number of values in all channels of one example.
    fn image_values(&self) -> usize {
        self.groups * self.channels[0] * self.volume()
    }

    fn pixel_values(&self) -> usize {
        self.groups * self.channels[1] * self.positions
    }

    fn volume(&self) -> usize {
        self.image.iter().product()
    }

    /// Returns the number of rows in the patches of one group.
    fn rows(&self) -> usize {
        self.channels[0] * self.kernel
    }

    /// Computes the pixels of an image or, if `transposed`, the image whose gradient the pixels
    /// are.
    fn product(
        &self,
        from: &FloatTensor<Flex>,
        weight: &FloatTensor<Flex>,
        bias: Option<&[f32]>,
        transposed: bool,
    ) -> Option<Vec<f32>> {
        let from = from.to_contiguous();
        let from = from.as_slice::<f32>()?;
        if let Some(planes) = self.planes() {
            let direct = match transposed {
                false => planes.is_direct().then_some(planes),
                true => planes.input_gradient().filter(|_| planes.is_input_gradient_direct()),
            };
            if let Some(direct) = direct {
                let weight = weight.to_contiguous();
                let weight = weight.as_slice::<f32>()?;
                let size = weight.len() / self.groups;
                let weights: Vec<Cow<[f32]>> = match transposed {
                    false => weight.chunks_exact(size).map(Cow::Borrowed).collect(),
                    true => weight
                        .chunks_exact(size)
                        .map(|weight| Cow::Owned(planes.flipped(weight)))
                        .collect(),
                };
                return Some(self.direct_product(&direct, from, &weights, bias));
            }
        }
        let mut values = self.product_of_patches(from, weight, transposed)?;
        if let Some(bias) = bias {
            let plane = if transposed { self.volume() } else { self.positions };
            for (plane, bias) in values.chunks_exact_mut(plane).zip(bias.iter().cycle()) {
                plane.iter_mut().for_each(|value| *value += bias);
            }
        }
        Some(values)
    }

    /// Returns the sum over the batch of the products of pixels and patches, flattened.
    fn weight_gradient(&self, image: &[f32], pixels: &[f32]) -> Option<FloatTensor<Flex>> {
        match self.gradient_planes() {
            Some(planes) => Some(self.direct_weight_gradient(&planes, image, pixels)),
            None => self.weight_gradient_of_patches(image, pixels),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::ops::{ConvOptions, ConvTransposeOptions};
    use proptest::prelude::*;

    use super::*;
    use crate::ops::backends::flex::arbitrary;
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
            channels in [1usize..4, 1usize..12],
            kernel in [1usize..3, 1usize..4, 1usize..4],
            stride in [1usize..3, 1usize..4, 1usize..4],
            dilation in [1usize..3, 1usize..3, 1usize..3],
            padding in [0usize..2, 0usize..3, 0usize..3],
            size in [4usize..6, 6usize..14, 6usize..14],
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
                // No more than the kernel allows.
                std::array::from_fn(|axis| self.padding[axis].0.min(self.kernel[axis] - 1)),
                std::array::from_fn(|axis| self.stride[axis] - 1),
                std::array::from_fn(|axis| self.dilation[axis]),
                self.groups,
            )
        }

        /// Compares output and gradients with Burn's operations.
        fn check<const D: usize>(&self, convolution: Convolution) {
            let tensor = |shape: [usize; D], phase: f32| {
                FloatTensor::<Flex>::from_data((arbitrary(shape) + phase).into_data())
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
            let bias = (arbitrary([self.groups * to]) + 0.2).into_data();
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
                arbitrary::<1>([output.shape().num_elements()]).into_data(),
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
            let primitive =
                Primitive::Convolution { convolution: convolution.clone(), kernel: None };
            let gradient = |input: FloatTensor<Flex>, grad: FloatTensor<Flex>| {
                let primitive = primitive.clone();
                primitive.flat_weight_gradient::<Flex>(Kept::One(input), weight.shape(), grad)
            };
            equal(native, gradient(input.clone(), grad.clone()));

            let (image, pixels) = exchange(&convolution, input.clone(), grad.clone());
            let native = example_gradients(&image, &pixels, &weight.shape(), &convolution);
            for example in 0..native.as_ref().map_or(0, |_| self.batch_size) {
                let row = |tensor: &FloatTensor<Flex>| tensor.narrow(0, example, 1);
                let native = native.as_ref().map(row).unwrap().transpose(2, 3);
                let values = Shape::new([weight.shape().num_elements()]);
                equal(native.reshape(values), gradient(row(&input), row(&grad)));
            }
        }
    }

    #[test]
    fn layers_of_residual_networks_need_no_patches() {
        let case = |channels: [usize; 2], size: usize, stride: usize| {
            let options = ConvOptions::new([stride; 2], [1; 2], [1; 2], 1);
            let [from, to] = channels;
            let output = size.div_ceil(stride);
            let shapes = [[to, from, 3, 3], [2, from, size, size], [2, to, output, output]];
            let [weight, image, pixels] = shapes.map(Shape::new);
            Geometry::new(&Convolution::Conv2d(options), &weight, &image, &pixels).unwrap()
        };
        for (channels, size) in [([3, 64], 32), ([64, 64], 32), ([128, 128], 16)] {
            let geometry = case(channels, size, 1);
            assert!(geometry.planes().unwrap().is_direct(), "{channels:?}");
            assert!(geometry.planes().unwrap().input_gradient().unwrap().is_direct());
            assert!(geometry.gradient_planes().is_some());
        }
        assert!(case([64, 128], 32, 2).planes().unwrap().is_direct());
        // Sixteen pixels fill one vector; the rows of the padded image leave gaps.
        assert!(!case([512, 512], 4, 1).planes().unwrap().is_direct());
        assert!(case([512, 512], 4, 1).gradient_planes().is_none());
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
