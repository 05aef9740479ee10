//! Products with patches (im2col) of a few examples at a time: few enough for the cache, and enough
//! for an efficient product.
//!
//! The blocks of examples depend only on the shapes, so that results do not depend on the number of
//! threads.

use std::ops::Range;

use burn::backend::{Flex, ops::FloatTensorOps, tensor::FloatTensor};
use burn::tensor::{Shape, TensorData};
use rayon::prelude::*;

use super::{Geometry, PARTS};

/// Number of patch values per block, which fit into the cache of a core.
const BLOCK_VALUES: usize = 1 << 16;

/// Minimum number of patch columns per block: with fewer, a product reads the weights more often
/// than it computes with them.
const BLOCK_COLUMNS: usize = 256;

impl Geometry {
    /// Returns the number of examples in one block.
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
    pub(super) fn product_of_patches(
        &self,
        from: &[f32],
        weight: &FloatTensor<Flex>,
        transposed: bool,
    ) -> Option<Vec<f32>> {
        let weights = self.weights(weight)?;
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
    pub(super) fn weight_gradient_of_patches(
        &self,
        image: &[f32],
        pixels: &[f32],
    ) -> Option<FloatTensor<Flex>> {
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

    /// Returns the position of the channel in an image that row `row` of the patches is taken from.
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
