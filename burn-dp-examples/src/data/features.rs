//! Scattering features of images, computed once.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;

use super::batch::targets;
use super::{Batch, Encoder, ImageBatcher, ImageItem, ImageShape, ItemDataset, Splits};
use super::{ImageBatch, Scattering2d};

/// Scales and orientations of the wavelets.
const SCALES: usize = 2;
const ORIENTATIONS: usize = 8;
/// Number of channels that are normalized together.
const GROUP_CHANNELS: usize = 3;
/// Images that are transformed together: their values stay in the cache of a core.
const TOGETHER: usize = 8;
/// Added to a variance.
const EPSILON: f32 = 1e-5;

/// The features of a labeled image.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureItem {
    /// Normalized scattering coefficients, channel by channel and row by row.
    pub values: Arc<[f32]>,
    /// The image.
    pub image: Arc<[u8]>,
    /// The class.
    pub label: u16,
}

/// Of the image: the rounding of its features can differ on another machine.
impl Hash for FeatureItem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.image, self.label).hash(state);
    }
}

/// Turns images into scattering features, and stacks these.
///
/// The coefficients of two scales and eight orientations are normalized in groups of three
/// consecutive channels, within each image.
///
/// # Privacy
///
/// The features of an image depend only on this image, so clipping the gradients of a model of
/// features protects images.
#[derive(Debug, Clone)]
pub struct FeatureBatcher {
    images: ImageBatcher,
    transform: Arc<Scattering2d>,
    device: Device,
}

impl FeatureBatcher {
    /// Returns the features of these images, computed on a device; `None` if the images are too
    /// small.
    pub fn new(images: ImageBatcher, device: &Device) -> Option<Self> {
        let ImageShape { height, width, .. } = images.shape;
        let transform = Scattering2d::new(SCALES, ORIENTATIONS, [height, width], device)?;
        Some(Self { images, transform: Arc::new(transform), device: device.clone() })
    }

    /// Returns the shape of the features of an image: 81 channels for each of its channels.
    pub fn shape(&self) -> ImageShape {
        let [height, width] = self.transform.output_shape();
        ImageShape {
            channels: self.images.shape.channels * self.transform.channels(),
            height,
            width,
        }
    }

    /// Returns the features of images.
    pub fn features(&self, items: &[ImageItem]) -> Vec<FeatureItem> {
        let ImageShape { channels, height, width } = self.images.shape;
        let mut pixels = Vec::with_capacity(items.len() * self.images.shape.values());
        for item in items {
            pixels.extend(item.image.iter().map(|&pixel| f32::from(pixel) / 255.0));
        }
        let pixels = TensorData::new(pixels, [items.len(), channels, height, width]);
        let features = self.transform.forward(Tensor::from_data(pixels, &self.device)).into_data();
        let mut values: Vec<f32> = features.iter().collect();
        let ImageShape { height, width, .. } = self.shape();
        values.chunks_exact_mut(GROUP_CHANNELS * height * width).for_each(normalize);
        let length = self.shape().values();
        let features = values.chunks_exact(length).zip(items).map(|(values, item)| FeatureItem {
            values: values.into(),
            image: item.image.clone(),
            label: item.label,
        });
        features.collect()
    }

    /// Returns the features of the images of both splits.
    ///
    /// # Arguments
    ///
    /// - `done`: called after each image, on several threads
    pub fn splits(self, images: Splits<ImageBatcher>, done: impl Fn() + Sync) -> Splits<Self> {
        let of = |items: &[ImageItem]| {
            let features = items.par_chunks(TOGETHER).flat_map_iter(|items| {
                let features = self.features(items);
                items.iter().for_each(|_| done());
                features
            });
            ItemDataset::new(features.collect())
        };
        let (train, test) = (of(images.train.items()), of(images.test.items()));
        Splits { name: images.name, classes: images.classes, encoder: self, train, test }
    }
}

/// Gives values mean zero and variance one.
fn normalize(values: &mut [f32]) {
    let count = values.len() as f32;
    let mean = values.iter().sum::<f32>() / count;
    values.iter_mut().for_each(|value| *value -= mean);
    let variance = values.iter().map(|value| value * value).sum::<f32>() / count;
    let scale = 1.0 / (variance + EPSILON).sqrt();
    values.iter_mut().for_each(|value| *value *= scale);
}

impl Batcher<FeatureItem, ImageBatch> for FeatureBatcher {
    fn batch(&self, items: Vec<FeatureItem>, device: &Device) -> ImageBatch {
        let ImageShape { channels, height, width } = self.shape();
        let shape = [items.len(), channels, height, width];
        let mut values: Vec<f32> = Vec::with_capacity(shape.iter().product());
        items.iter().for_each(|item| values.extend_from_slice(&item.values));
        Batch {
            inputs: Tensor::from_data(TensorData::new(values, shape), device),
            targets: targets(items.iter().map(|item| item.label), device),
        }
    }
}

impl Encoder for FeatureBatcher {
    type Item = FeatureItem;
    type Inputs = Tensor<4>;

    fn made_up(&self, items: usize, classes: usize) -> Vec<FeatureItem> {
        let images = self.images.made_up(items, classes);
        self.features(&images)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::data::digits;

    #[test]
    fn features_have_81_channels_for_each_channel_and_are_normalized() {
        for (images, channels, side) in
            [(ImageBatcher::MNIST, 81, 7), (ImageBatcher::CIFAR10, 243, 8)]
        {
            let batcher = FeatureBatcher::new(images, &Device::flex()).unwrap();
            assert_eq!(batcher.shape(), ImageShape::square(channels, side));
            let items = batcher.made_up(2, 10);
            for values in items[0].values.chunks_exact(GROUP_CHANNELS * side * side) {
                let mean = values.iter().sum::<f32>() / values.len() as f32;
                let square = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
                assert!(mean.abs() < 1e-4 && square > 0.0 && square < 1.0001, "{mean} {square}");
            }
            let batch = batcher.batch(items, &Device::flex());
            assert_eq!(batch.inputs.dims(), [2, channels, side, side]);
        }
        assert!(FeatureBatcher::new(ImageBatcher::photographs(3), &Device::flex()).is_none());
    }

    // Privacy: another image changes nothing.
    #[test]
    fn the_features_of_an_image_do_not_depend_on_others() {
        let (all, one) = (digits::splits(1, 3, 1), digits::splits(1, 1, 1));
        let batcher = FeatureBatcher::new(ImageBatcher::MNIST, &Device::flex()).unwrap();
        let done = AtomicUsize::new(0);
        let count = || {
            done.fetch_add(1, Ordering::Relaxed);
        };
        let (all, one) = (batcher.clone().splits(all, count), batcher.splits(one, || ()));
        assert_eq!(all.train.items()[0], one.train.items()[0]);
        assert_ne!(all.train.items()[0].values, all.train.items()[1].values);
        assert_eq!(done.into_inner(), 4);
        assert_eq!((all.encoder.shape().values(), all.classes), (3969, 10));
    }
}
