//! Labeled images, and their conversion into tensors.

use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;

use super::batch::targets;
use super::{Batch, Encoder, ItemDataset, SIDE, drawing};

/// A labeled image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageItem {
    /// Brightness, channel by channel and row by row.
    pub image: Arc<[u8]>,
    /// The class.
    pub label: u16,
}

/// Labeled images in memory.
pub type ImageDataset = ItemDataset<ImageItem>;

/// Images and labels of a batch.
pub type ImageBatch = Batch<Tensor<4>>;

/// Size of the images of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageShape {
    /// 1 for gray, 3 for red, green and blue.
    pub channels: usize,
    /// Number of rows.
    pub height: usize,
    /// Number of pixels in a row.
    pub width: usize,
}

impl ImageShape {
    /// Returns the shape of square images.
    pub const fn square(channels: usize, side: usize) -> Self {
        Self { channels, height: side, width: side }
    }

    /// Returns the number of values of an image.
    pub const fn values(&self) -> usize {
        self.channels * self.height * self.width
    }
}

/// Normalizes images with public constants and stacks them.
///
/// An empty list results in tensors with zero rows, because a Poisson sample may be empty.
///
/// # Privacy
///
/// The mean and the standard deviation must be public: computed from the private images they would
/// be another release. The constants here are in common use for the data set of that name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImageBatcher {
    /// Shape of every image.
    pub shape: ImageShape,
    /// Mean of each channel, on the scale from 0 to 1.
    pub mean: [f32; 3],
    /// Standard deviation of each channel.
    pub std: [f32; 3],
}

impl ImageBatcher {
    /// Synthetic digits and MNIST.
    pub const MNIST: Self =
        Self { shape: ImageShape::square(1, SIDE), mean: [0.1307; 3], std: [0.3081; 3] };

    /// Fashion-MNIST.
    pub const FASHION_MNIST: Self = Self { mean: [0.2860; 3], std: [0.3530; 3], ..Self::MNIST };

    /// CIFAR-10.
    pub const CIFAR10: Self = Self {
        shape: ImageShape::square(3, 32),
        mean: [0.4914, 0.4822, 0.4465],
        std: [0.2470, 0.2435, 0.2616],
    };

    /// Photographs of this size, with the constants of ImageNet.
    pub const fn photographs(side: usize) -> Self {
        Self {
            shape: ImageShape::square(3, side),
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
        }
    }
}

impl Default for ImageBatcher {
    fn default() -> Self {
        Self::MNIST
    }
}

impl Batcher<ImageItem, ImageBatch> for ImageBatcher {
    fn batch(&self, items: Vec<ImageItem>, device: &Device) -> ImageBatch {
        let ImageShape { channels, height, width } = self.shape;
        let mut values = Vec::with_capacity(items.len() * self.shape.values());
        for item in &items {
            for (channel, pixels) in item.image.chunks_exact(height * width).enumerate() {
                let (mean, std) = (self.mean[channel], self.std[channel]);
                values.extend(pixels.iter().map(|&pixel| (f32::from(pixel) / 255.0 - mean) / std));
            }
        }
        Batch {
            inputs: Tensor::from_data(
                TensorData::new(values, [items.len(), channels, height, width]),
                device,
            ),
            targets: targets(items.iter().map(|item| item.label), device),
        }
    }
}

impl Encoder for ImageBatcher {
    type Item = ImageItem;
    type Inputs = Tensor<4>;

    /// Synthetic digits, stretched to the size of the images.
    fn made_up(&self, items: usize, classes: usize) -> Vec<ImageItem> {
        let ImageShape { channels, height, width } = self.shape;
        let stretched = (0..items as u64).into_par_iter().map(|index| {
            let (drawn, label) = drawing::draw(0, 0, index);
            let pixel = |y: usize, x: usize| drawn[y * SIDE / height * SIDE + x * SIDE / width];
            let image = (0..channels * height)
                .flat_map(|row| (0..width).map(move |x| pixel(row % height, x)));
            ImageItem { image: image.collect(), label: label % classes as u16 }
        });
        stretched.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::data::PIXELS;

    fn devices() -> Vec<Device> {
        vec![
            Device::flex(),
            // Burn deprecates NdArray; here it is the second implementation to compare with.
            #[cfg(feature = "ndarray")]
            #[allow(deprecated)]
            Device::ndarray(),
        ]
    }

    #[test]
    fn pixels_are_normalized_by_public_constants() {
        let mut image = [0; PIXELS];
        image[SIDE + 2] = 255;
        for device in devices() {
            let black = ImageItem { image: [0; PIXELS].into(), label: 3 };
            let items = vec![black, ImageItem { image: image.into(), label: 9 }];
            let batch = ImageBatcher::MNIST.batch(items, &device);
            assert_eq!(batch.inputs.dims(), [2, 1, SIDE, SIDE]);
            let values = batch.inputs.into_data().try_into_vec::<f32>().unwrap();
            let (black, white) = (-0.1307 / 0.3081, (1.0 - 0.1307) / 0.3081);
            let position = PIXELS + SIDE + 2;
            assert!((values[position] - white).abs() < 1e-6);
            assert!((values[0] - black).abs() < 1e-6);
            assert_eq!(values.iter().filter(|&&value| value > 0.0).count(), 1);
            let labels = batch.targets.into_data().convert::<i64>().try_into_vec::<i64>().unwrap();
            assert_eq!(labels, [3, 9]);
        }
    }

    #[test]
    fn each_channel_has_its_own_mean_and_deviation() {
        let batcher = ImageBatcher {
            shape: ImageShape { channels: 3, height: 1, width: 2 },
            mean: [0.0, 0.5, 1.0],
            std: [1.0, 0.5, 0.25],
        };
        let item = ImageItem { image: [255, 0, 255, 0, 255, 0].into(), label: 0 };
        let images = batcher.batch(vec![item], &Device::flex()).inputs;
        assert_eq!(images.dims(), [1, 3, 1, 2]);
        let values = images.into_data().try_into_vec::<f32>().unwrap();
        assert_eq!(values, [1.0, 0.0, 1.0, -1.0, 0.0, -4.0]);
    }

    #[test]
    fn no_items_give_a_batch_of_zero_rows() {
        for device in devices() {
            let batch = ImageBatcher::CIFAR10.batch(Vec::new(), &device);
            assert_eq!(batch.inputs.dims(), [0, 3, 32, 32]);
            assert_eq!(batch.targets.dims(), [0]);
        }
    }

    #[test]
    fn one_example_of_a_batch_is_the_batch_of_one() {
        let device = Device::flex();
        let items = ImageBatcher::MNIST.made_up(3, 10);
        let batch = ImageBatcher::MNIST.batch(items.clone(), &device);
        let one = ImageBatcher::MNIST.batch(items[2..].to_vec(), &device);
        batch.one(2).inputs.into_data().assert_eq(&one.inputs.into_data(), true);
        batch.one(2).targets.into_data().assert_eq(&one.targets.into_data(), true);
    }

    #[test]
    fn made_up_images_fill_the_shape_and_differ() {
        for batcher in [ImageBatcher::MNIST, ImageBatcher::CIFAR10, ImageBatcher::photographs(64)] {
            let items = batcher.made_up(4, 3);
            assert!(items.iter().all(|item| item.image.len() == batcher.shape.values()));
            assert!(items.iter().all(|item| item.label < 3));
            assert!(items.windows(2).all(|pair| pair[0].image != pair[1].image));
        }
    }
}
