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
/// Number of groups of channels that are normalized together.
const GROUPS: usize = 27;
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
/// The coefficients of two scales and eight orientations are normalized in 27 groups of channels,
/// within each image.
///
/// # Privacy
///
/// The features of an image depend only on this image, so clipping the gradients of a model of
/// features protects images.
#[derive(Debug, Clone)]
pub struct FeatureBatcher {
    images: ImageBatcher,
    transform: Arc<Scattering2d>,
}

impl FeatureBatcher {
    /// Returns the features of these images; `None` if the images are too small.
    pub fn new(images: ImageBatcher) -> Option<Self> {
        let ImageShape { height, width, .. } = images.shape;
        let transform = Scattering2d::new(SCALES, ORIENTATIONS, [height, width])?;
        Some(Self { images, transform: Arc::new(transform) })
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

    /// Returns the features of an image.
    pub fn features(&self, item: &ImageItem) -> FeatureItem {
        let ImageShape { height, width, .. } = self.images.shape;
        let mut values = Vec::with_capacity(self.shape().values());
        for pixels in item.image.chunks_exact(height * width) {
            let pixels: Vec<f32> = pixels.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
            values.extend(self.transform.transform(&pixels));
        }
        let group = values.len() / GROUPS;
        values.chunks_exact_mut(group).for_each(normalize);
        FeatureItem { values: values.into(), image: item.image.clone(), label: item.label }
    }

    /// Returns the features of the images of both splits.
    ///
    /// # Arguments
    ///
    /// - `done`: called after each image, on several threads
    pub fn splits(self, images: Splits<ImageBatcher>, done: impl Fn() + Sync) -> Splits<Self> {
        let of = |items: &[ImageItem]| {
            let features = items.par_iter().map(|item| {
                let features = self.features(item);
                done();
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
        let values: Vec<f32> = items.iter().flat_map(|item| item.values.iter().copied()).collect();
        let shape = [items.len(), channels, height, width];
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
        images.par_iter().map(|image| self.features(image)).collect()
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
            let batcher = FeatureBatcher::new(images).unwrap();
            assert_eq!(batcher.shape(), ImageShape::square(channels, side));
            let items = batcher.made_up(2, 10);
            for values in items[0].values.chunks_exact(batcher.shape().values() / GROUPS) {
                let mean = values.iter().sum::<f32>() / values.len() as f32;
                let square = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
                assert!(mean.abs() < 1e-4 && square > 0.0 && square < 1.0001, "{mean} {square}");
            }
            let batch = batcher.batch(items, &Device::flex());
            assert_eq!(batch.inputs.dims(), [2, channels, side, side]);
        }
        assert!(FeatureBatcher::new(ImageBatcher::photographs(3)).is_none());
    }

    // Privacy: another image changes nothing.
    #[test]
    fn the_features_of_an_image_do_not_depend_on_others() {
        let (all, one) = (digits::splits(1, 3, 1), digits::splits(1, 1, 1));
        let batcher = FeatureBatcher::new(ImageBatcher::MNIST).unwrap();
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
