//! The digits as tensors.

use std::path::Path;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_dp_examples::data::{DataError, ImageDataset, ImageItem, SIDE, digits, mnist};

/// Images and labels of a physical batch.
#[derive(Debug, Clone)]
pub struct MnistBatch {
    /// Pixels, `[batch_size, 1, 28, 28]`.
    pub images: Tensor<4>,
    /// Digits, `[batch_size]`.
    pub targets: Tensor<1, Int>,
}

/// Normalizes images and stacks them.
///
/// # Privacy
///
/// Mean and standard deviation are the published constants of MNIST. Constants computed from the
/// private images would be a release that ε does not count.
#[derive(Debug, Clone)]
pub struct MnistBatcher;

impl Batcher<ImageItem, MnistBatch> for MnistBatcher {
    fn batch(&self, items: Vec<ImageItem>, device: &Device) -> MnistBatch {
        let normalized = |pixel: u8| (f32::from(pixel) / 255.0 - 0.1307) / 0.3081;
        let pixels = items.iter().flat_map(|item| item.image.iter().map(|&p| normalized(p)));
        let pixels: Vec<f32> = pixels.collect();
        let labels: Vec<i32> = items.iter().map(|item| i32::from(item.label)).collect();
        // A Poisson sample can be empty: the tensors then have zero rows.
        let shape = [items.len(), 1, SIDE, SIDE];
        MnistBatch {
            images: Tensor::from_data(TensorData::new(pixels, shape), device),
            targets: Tensor::from_data(TensorData::new(labels, [items.len()]), device),
        }
    }
}

/// Returns the digits to train on, which are private, and the digits to test on, which are public.
///
/// # Errors
///
/// Returns [`DataError`] if the folder does not hold the four files of MNIST.
pub fn splits(folder: Option<&Path>) -> Result<(ImageDataset, ImageDataset), DataError> {
    let splits = match folder {
        Some(folder) => mnist::from_folder(folder)?,
        None => digits::splits(0, 2_000, 500),
    };
    Ok((splits.train, splits.test))
}
