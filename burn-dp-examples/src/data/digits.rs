//! Synthetic digits without a download.
//!
//! Every image is a function of only the seed, the split, and its index: one of several shapes of
//! its digit is bent, slanted, rotated, scaled, and moved at random, drawn with a pen of random
//! width, and covered with a stray line and noise. A linear classifier is clearly worse than a
//! convolutional network on these images.
//!
//! The generator is deterministic and its seed public: these data need no protection.

use burn_dp::{DpError, PublicData, PublicSource};
use rayon::prelude::*;

use super::drawing::draw;
use super::{CLASSES, ImageBatcher, ImageDataset, ImageItem, Splits};

/// Name of the data set in reports.
pub const NAME: &str = "digits";

/// Number of images to train on by default.
pub const TRAIN_ITEMS: usize = 12_000;

/// Number of images to test on by default.
pub const TEST_ITEMS: usize = 2_000;

/// Distance of the index of a test image from the index of a training image.
const TEST_OFFSET: u64 = 1 << 32;

/// Distance of the index of a public image from the index of a training image.
const PUBLIC_OFFSET: u64 = 1 << 33;

/// Makes synthetic public images, which are in neither split of the same seed.
///
/// # Errors
///
/// Returns [`DpError`] if `items` is zero.
pub fn public(seed: u64, items: usize) -> Result<PublicData<ImageItem>, DpError> {
    let name = format!("synthetic digits of seed {seed}, apart from the training digits");
    PublicSource::generated(name).data(images(seed, PUBLIC_OFFSET, items))
}

/// Makes a synthetic training split and a test split.
///
/// The classes alternate, so each is as frequent as the others. Splits of another length with the
/// same seed start with the same images.
pub fn splits(seed: u64, train_items: usize, test_items: usize) -> Splits<ImageBatcher> {
    let split = |offset, items| ImageDataset::new(images(seed, offset, items));
    Splits {
        name: NAME.into(),
        classes: CLASSES,
        encoder: ImageBatcher::MNIST,
        train: split(0, train_items),
        test: split(TEST_OFFSET, test_items),
    }
}

fn images(seed: u64, offset: u64, items: usize) -> Vec<ImageItem> {
    let items = (0..items as u64).into_par_iter().map(|index| {
        let (image, label) = draw(seed, offset, index);
        ImageItem { image: image.into(), label }
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataset::Dataset;

    use super::*;
    use crate::data::{Encoder, PIXELS, SIDE};

    #[test]
    fn an_image_depends_only_on_seed_split_and_index() {
        let (short, long) = (splits(1, 20, 10), splits(1, 60, 30));
        assert_eq!(short.train.items(), &long.train.items()[..20]);
        assert_eq!(short.test.items(), &long.test.items()[..10]);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(pool.install(|| splits(1, 60, 0)).train, long.train);
    }

    #[test]
    fn the_drawings_are_the_same_on_every_machine() {
        // Recorded from this generator; a change of the data set changes every published figure.
        let items = splits(42, 100, 0).train;
        let sum: u64 = items
            .items()
            .iter()
            .flat_map(|item| item.image.iter())
            .map(|&pixel| u64::from(pixel))
            .sum();
        // The tolerance is for the last bits of `sin`, which differ between machines.
        let expected = 2_464_503.0;
        assert!((sum as f64 - expected).abs() <= 1e-4 * expected, "sum of the pixels: {sum}");
    }

    #[test]
    fn seeds_and_splits_differ() {
        let (a, b) = (splits(1, 50, 50), splits(2, 50, 0));
        assert!(a.train.items().iter().zip(b.train.items()).all(|(a, b)| a.image != b.image));
        assert!(a.train.items().iter().zip(a.test.items()).all(|(a, b)| a.image != b.image));
        let public = public(1, 50).unwrap();
        for split in [&a.train, &a.test] {
            let mut pairs = split.items().iter().zip(public.items());
            assert!(pairs.all(|(a, b)| a.image != b.image && a.label == b.label));
        }
        assert!(public.to_string().contains("generated, 50 items"), "{public}");
    }

    #[test]
    fn every_class_is_as_frequent_as_the_others() {
        let train = splits(3, 200, 0).train;
        for label in 0..10 {
            assert_eq!(train.items().iter().filter(|item| item.label == label).count(), 20);
        }
    }

    #[test]
    fn the_ink_lies_on_the_paper() {
        for item in splits(4, 300, 0).train.items() {
            let dark = item.image.iter().filter(|&&pixel| pixel > 100).count();
            assert!((15..400).contains(&dark), "digit {} has {dark} dark pixels", item.label);
            let edge: u32 = item.image[..SIDE].iter().map(|&pixel| u32::from(pixel)).sum();
            assert!(edge < 160 * SIDE as u32, "digit {} leaves the paper", item.label);
        }
    }

    /// The nearest class mean is a linear classifier: an estimate of the accuracy from positions
    /// alone.
    #[test]
    fn the_nearest_mean_is_neither_lost_nor_sufficient() {
        let data = splits(5, 2_000, 500);
        let mut means = vec![[0.0_f32; PIXELS]; CLASSES];
        for item in data.train.items() {
            for (mean, &pixel) in means[usize::from(item.label)].iter_mut().zip(item.image.iter()) {
                *mean += f32::from(pixel) / 200.0;
            }
        }
        let distance = |mean: &[f32; PIXELS], item: &ImageItem| -> f32 {
            mean.iter()
                .zip(item.image.iter())
                .map(|(mean, &pixel)| (mean - f32::from(pixel)).powi(2))
                .sum()
        };
        let right = data.test.items().iter().filter(|item| {
            let distances: Vec<_> = means.iter().map(|mean| distance(mean, item)).collect();
            let own = distances[usize::from(item.label)];
            distances.iter().all(|&other| own <= other)
        });
        let accuracy = right.count() as f64 / data.test.len() as f64;
        assert!((0.4..0.8).contains(&accuracy), "accuracy {accuracy}");
    }

    #[test]
    fn made_up_images_are_the_first_drawn_digits() {
        let drawn = splits(0, 2, 0).train;
        assert_eq!(ImageBatcher::MNIST.made_up(2, 10), drawn.items());
    }
}
