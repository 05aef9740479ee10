//! Convolutions and gradients of their weights without patches, one example after another.

use std::borrow::Cow;

use burn::backend::{Flex, tensor::FloatTensor};
use burn::tensor::TensorData;
use burn_dp_kernels::{Planes, transpose};
use rayon::prelude::*;

use super::{Geometry, PARTS};
use crate::ops::Patches;

/// Minimum number of output pixels and channels for which weight gradients are computed without
/// patches: with fewer, more time is spent on their sums.
const FEW_PIXELS: usize = 64;
const FEW_CHANNELS: usize = 8;

impl Geometry {
    /// Returns the sizes of the planes of one group, if the convolution has no third axis.
    pub(super) fn planes(&self) -> Option<Planes> {
        let Patches { kernel_size, output_size, options } = &self.patches;
        let [depth, image @ ..] = self.image;
        let ([kernel_depth, kernel @ ..], [output_depth, output @ ..]) =
            (*kernel_size, *output_size);
        let is_flat = [depth, kernel_depth, output_depth] == [1; 3] && options.padding[0].0 == 0;
        let plane = |axes: [usize; 3]| [axes[1], axes[2]];
        is_flat.then(|| Planes {
            channels: self.channels,
            image,
            output,
            kernel,
            stride: plane(options.stride),
            padding: plane(options.padding.map(|(before, _)| before)),
            dilation: plane(options.dilation),
        })
    }

    /// Computes a product without patches, one example after another.
    pub(super) fn direct_product(
        &self,
        planes: &Planes,
        from: &[f32],
        weights: &[Cow<[f32]>],
        bias: Option<&[f32]>,
    ) -> Vec<f32> {
        let [channels, outputs] = planes.channels;
        let source = channels * planes.image.iter().product::<usize>();
        let target = outputs * planes.output.iter().product::<usize>();
        let mut values = vec![0.0; self.batch_size * self.groups * target];
        let examples =
            from.par_chunks(self.groups * source).zip(values.par_chunks_mut(self.groups * target));
        examples.for_each(|(from, to)| {
            let groups = from.chunks_exact(source).zip(to.chunks_exact_mut(target));
            for (group, ((from, to), weight)) in groups.zip(weights).enumerate() {
                let bias = bias.map(|bias| &bias[group * outputs..][..outputs]);
                planes.forward(from, weight, bias, to);
            }
        });
        values
    }

    /// Returns the planes of a gradient of the weight that is computed without patches.
    pub(super) fn gradient_planes(&self) -> Option<Planes> {
        let [_, outputs] = self.channels;
        self.planes().filter(|_| self.positions >= FEW_PIXELS && outputs >= FEW_CHANNELS)
    }

    pub(super) fn direct_weight_gradient(
        &self,
        planes: &Planes,
        image: &[f32],
        pixels: &[f32],
    ) -> FloatTensor<Flex> {
        let values = self.groups * self.channels[1] * self.rows();
        let part = self.batch_size.div_ceil(PARTS);
        let of_part = |(image, pixels): (&[f32], &[f32])| {
            let mut sums = vec![0.0; values];
            let examples =
                image.chunks(self.image_values()).zip(pixels.chunks(self.pixel_values()));
            for (image, pixels) in examples {
                self.add_gradients(planes, image, pixels, &mut sums);
            }
            sums
        };
        let parts: Vec<Vec<f32>> = image
            .par_chunks(part * self.image_values())
            .zip(pixels.par_chunks(part * self.pixel_values()))
            .map(of_part)
            .collect();
        let mut sum = vec![0.0f32; values];
        for part in parts {
            sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
        }
        let mut grad = vec![0.0; values];
        self.transpose(&sum, &mut grad);
        FloatTensor::<Flex>::from_data(TensorData::new(grad, [values]))
    }

    /// Adds the gradient of the weight of one example to `[rows, channels]` for each group.
    pub(super) fn add_gradients(
        &self,
        planes: &Planes,
        image: &[f32],
        pixels: &[f32],
        sums: &mut [f32],
    ) {
        let size = sums.len() / self.groups;
        let groups = image
            .chunks_exact(image.len() / self.groups)
            .zip(pixels.chunks_exact(pixels.len() / self.groups));
        for ((image, pixels), sums) in groups.zip(sums.chunks_exact_mut(size)) {
            planes.add_weight_gradient(image, pixels, sums);
        }
    }

    /// Puts the sums of [`add_gradients`](Self::add_gradients) into the order of the weight.
    pub(super) fn transpose(&self, sums: &[f32], to: &mut [f32]) {
        let shape = [self.rows(), self.channels[1]];
        let size = sums.len() / self.groups;
        for (sums, to) in sums.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
            transpose(sums, shape, to);
        }
    }
}
