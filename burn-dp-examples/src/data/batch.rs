//! From images to tensors.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{ImageItem, PIXELS, SIDE};

/// Mean of the pixels, on the scale from 0 to 1.
///
/// The constant that is in common use for MNIST. It is public knowledge: a mean taken from the
/// private images at hand would be a release of its own.
pub const PIXEL_MEAN: f32 = 0.1307;

/// Standard deviation of the pixels, on the scale from 0 to 1; public like [`PIXEL_MEAN`].
pub const PIXEL_STD: f32 = 0.3081;

/// Images and labels of a batch.
#[derive(Debug, Clone)]
pub struct ImageBatch {
    /// Normalised brightness, `[batch_size, 1, 28, 28]`.
    pub images: Tensor<4>,
    /// Classes, `[batch_size]`.
    pub targets: Tensor<1, Int>,
}

/// Normalises images by [`PIXEL_MEAN`] and [`PIXEL_STD`] and stacks them.
///
/// An empty list gives tensors with zero rows: a Poisson sample may be empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageBatcher;

impl Batcher<ImageItem, ImageBatch> for ImageBatcher {
    fn batch(&self, items: Vec<ImageItem>, device: &Device) -> ImageBatch {
        let mut pixels = Vec::with_capacity(items.len() * PIXELS);
        for item in &items {
            pixels.extend(item.image.iter().map(|&pixel| normalised(pixel)));
        }
        let labels: Vec<_> = items.iter().map(|item| i32::from(item.label)).collect();
        ImageBatch {
            images: Tensor::from_data(
                TensorData::new(pixels, [items.len(), 1, SIDE, SIDE]),
                device,
            ),
            targets: Tensor::from_data(TensorData::new(labels, [items.len()]), device),
        }
    }
}

fn normalised(pixel: u8) -> f32 {
    (f32::from(pixel) / 255.0 - PIXEL_MEAN) / PIXEL_STD
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    // Burn deprecates NdArray; here it is the second implementation to compare with.
    #[allow(deprecated)]
    fn devices() -> Vec<Device> {
        vec![Device::flex(), Device::ndarray()]
    }

    #[test]
    fn pixels_are_normalised_by_the_public_constants() {
        let mut image = [0; PIXELS];
        image[SIDE + 2] = 255;
        for device in devices() {
            let items =
                vec![ImageItem { image: [0; PIXELS], label: 3 }, ImageItem { image, label: 9 }];
            let batch = ImageBatcher.batch(items, &device);
            assert_eq!(batch.images.dims(), [2, 1, SIDE, SIDE]);
            let values = batch.images.into_data().try_into_vec::<f32>().unwrap();
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
    fn no_items_give_a_batch_of_zero_rows() {
        for device in devices() {
            let batch = ImageBatcher.batch(Vec::new(), &device);
            assert_eq!(batch.images.dims(), [0, 1, SIDE, SIDE]);
            assert_eq!(batch.targets.dims(), [0]);
        }
    }
}
