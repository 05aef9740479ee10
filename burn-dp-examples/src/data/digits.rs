//! Ten thousand drawn digits without a download.
//!
//! Every image is a function of the seed, the split and its index alone: one of several ways of
//! writing its digit is bent, slanted, turned, scaled and moved at random, drawn with a pen of
//! random width, and covered with a stray line and noise. A linear classifier stays clearly behind
//! a convolutional network on it.
//!
//! The generator is deterministic and its seed public: these data need no protection.

use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

use super::stroke::{self, Point};
use super::{CLASSES, ImageBatcher, ImageDataset, ImageItem, PIXELS, SIDE, Splits, glyphs};

/// Name of the data set in reports.
pub const NAME: &str = "digits";

/// Number of images to train on by default.
pub const TRAIN_ITEMS: usize = 12_000;

/// Number of images to test on by default.
pub const TEST_ITEMS: usize = 2_000;

/// Distance of the index of a test image from the index of a training image.
const TEST_OFFSET: u64 = 1 << 32;

/// Draws a training split and a test split.
///
/// The classes take turns, so each is as frequent as the others. Splits of another length
/// with the same seed begin with the same images.
pub fn splits(seed: u64, train_items: usize, test_items: usize) -> Splits<ImageBatcher> {
    let split = |offset: u64, items: usize| {
        let items = (0..items as u64).into_par_iter().map(|index| draw(seed, offset, index));
        ImageDataset::new(items.collect())
    };
    Splits {
        name: NAME.into(),
        classes: CLASSES,
        encoder: ImageBatcher::MNIST,
        train: split(0, train_items),
        test: split(TEST_OFFSET, test_items),
    }
}

/// Draws one image.
fn draw(seed: u64, offset: u64, index: u64) -> ImageItem {
    let mut dice = Dice::new(seed, offset + index);
    let label = (index % CLASSES as u64) as u16;
    let lines = glyphs::lines(label as u8, dice.below(glyphs::variants(label as u8)));
    let hand = Hand::random(&mut dice);

    let mut ink = [0.0; PIXELS];
    for line in lines {
        let line: Vec<_> = line.into_iter().map(|point| hand.place(point)).collect();
        stroke::draw(&mut ink, &line, hand.radius);
    }
    stray_line(&mut ink, &mut dice);

    let darkness = dice.between(150.0, 255.0);
    let grain = dice.between(8.0, 32.0);
    let image = ink.map(|cover| (cover * darkness + grain * dice.normal()).clamp(0.0, 255.0) as u8);
    ImageItem { image: image.into(), label }
}

/// A handwriting: maps the unit square to the grid of pixels.
struct Hand {
    /// Half the width of the pen.
    radius: f32,
    /// Rows of the linear map.
    map: [[f32; 2]; 2],
    /// Position of the middle of the digit.
    middle: Point,
    /// Amplitude, frequencies and phase of the bend in each direction.
    bend: [[f32; 4]; 2],
}

impl Hand {
    fn random(dice: &mut Dice) -> Self {
        let (width, height) = (dice.between(13.0, 21.0), dice.between(16.0, 22.0));
        let slant = dice.between(-0.35, 0.35);
        let (sin, cos) = dice.between(-0.26, 0.26).sin_cos();
        // Scale, then slant, then turn.
        let map = [
            [cos * width, cos * slant * height - sin * height],
            [sin * width, sin * slant * height + cos * height],
        ];
        let center = (SIDE as f32 - 1.0) / 2.0;
        let mut bend = || {
            [
                dice.between(0.0, 1.4),
                dice.between(2.0, 6.0),
                dice.between(2.0, 6.0),
                dice.between(0.0, std::f32::consts::TAU),
            ]
        };
        let bend = [bend(), bend()];
        Self {
            radius: dice.between(0.6, 1.9),
            map,
            middle: [center + dice.between(-3.0, 3.0), center + dice.between(-3.0, 3.0)],
            bend,
        }
    }

    fn place(&self, [x, y]: Point) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        [0, 1].map(|axis| {
            let [amplitude, along_x, along_y, phase] = self.bend[axis];
            let bend = amplitude * (along_x * x + along_y * y + phase).sin();
            self.middle[axis] + self.map[axis][0] * x + self.map[axis][1] * y + bend
        })
    }
}

/// A short thin line somewhere on two images of three, as dirt on the paper.
fn stray_line(ink: &mut [f32; PIXELS], dice: &mut Dice) {
    if dice.below(3) == 0 {
        return;
    }
    let side = SIDE as f32;
    let from = [dice.between(0.0, side), dice.between(0.0, side)];
    let (sin, cos) = dice.between(0.0, std::f32::consts::TAU).sin_cos();
    let length = dice.between(3.0, 9.0);
    let to = [from[0] + length * cos, from[1] + length * sin];
    stroke::draw(ink, &[from, to], dice.between(0.3, 0.9));
}

/// The random choices of one image.
struct Dice(ChaCha8Rng);

impl Dice {
    fn new(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }

    /// Uniform in [0, 1), a multiple of 2⁻²⁴.
    fn uniform(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1 << 24) as f32
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.uniform()
    }

    /// Uniform below a small number.
    fn below(&mut self, end: usize) -> usize {
        ((u64::from(self.0.next_u32()) * end as u64) >> 32) as usize
    }

    /// Nearly normal, with variance 1: the sum of four uniform bytes is enough for grain.
    fn normal(&mut self) -> f32 {
        let sum: u32 = self.0.next_u32().to_le_bytes().into_iter().map(u32::from).sum();
        (sum as f32 - 510.0) / 147.8
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataset::Dataset;

    use super::*;

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

    /// The nearest class mean is a linear classifier: an estimate of how far position alone goes.
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
    fn the_grain_has_mean_zero_and_variance_one() {
        let mut dice = Dice::new(0, 0);
        let draws: Vec<_> = (0..100_000).map(|_| f64::from(dice.normal())).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| draw * draw).sum::<f64>() / draws.len() as f64;
        // Five standard errors: 1/sqrt(n) and about sqrt(2/n).
        assert!(mean.abs() < 0.016, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.023, "variance {variance}");
    }
}
