use burn::module::{Flag, Module, Param};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};

use super::unit_scope::{count_unkeyed, unit_words};
use crate::DpError;
use crate::ops;

/// Number of random values for one row: the two shifts, and whether the image is mirrored.
const WORDS: usize = 3;

/// Moves and mirrors images at random during training.
///
/// An image is extended by reflection at its borders, and a crop of the original size is taken at a
/// random position; then it may be mirrored from left to right. Outside training, the layer does
/// nothing. Several copies of a unit have different values: pass the number of copies to
/// [`AugmentationBatcher`](crate::sampling::AugmentationBatcher), and the same number to
/// [`PrivateBackward::with_group_size`](crate::grads::PrivateBackward::with_group_size).
///
/// # Example
///
/// ```
/// use burn::module::Module;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::nn::RandomCrop;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let augmentation = RandomCrop::new(4)?.with_mirror();
/// let images = Tensor::<4>::ones([2, 3, 32, 32], &Device::flex());
/// // Without autodiff it is the identity.
/// assert_eq!(augmentation.forward(images).dims(), [2, 3, 32, 32]);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// S. De, L. Berrada, J. Hayes, S. L. Smith, B. Balle, "Unlocking High-Accuracy Differentially
/// Private Image Classification through Scale", 2022, section 3.2.
#[derive(Module, Debug)]
pub struct RandomCrop {
    /// Whether the model is being trained.
    pub training: Param<Flag>,
    /// Maximum shift in each direction, in pixels.
    pub padding: usize,
    /// Whether images are mirrored with probability one half.
    pub mirror: bool,
}

impl RandomCrop {
    /// Returns the layer with shifts of up to `padding` pixels, without mirroring.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `padding` is more than 2^16.
    pub fn new(padding: usize) -> Result<Self, DpError> {
        if padding > 1 << 16 {
            let reason = format!("must be at most 65536 pixels, got {padding}");
            return Err(DpError::invalid("padding", reason));
        }
        Ok(Self { training: Param::from_bool(true), padding, mirror: false })
    }

    /// Mirrors each image with probability one half.
    pub fn with_mirror(mut self) -> Self {
        self.mirror = true;
        self
    }

    /// Applies the layer.
    ///
    /// # Shapes
    ///
    /// - input and output: `[batch_size, channels, height, width]`
    ///
    /// # Privacy
    ///
    /// In a private step, the values of a row are derived from the key of the run, the step, the
    /// unit, and the number of the copy, like the masks of [`Private<Dropout>`](super::Private),
    /// and do not depend on the other units in the batch. Elsewhere, in training mode, they are
    /// drawn from the device, and a private backward pass is rejected.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let device = images.device();
        let is_training = self.training.val().is_enabled() && device.is_autodiff();
        let [rows, channels, height, width] = images.dims();
        let identity = self.padding == 0 && !self.mirror;
        if !is_training || identity || rows * channels * height * width == 0 {
            return images;
        }
        let (words, is_keyed) = match unit_words(self.training.id, &[rows, WORDS]) {
            Some(words) => (words, true),
            None => {
                count_unkeyed();
                (drawn(rows, &device), false)
            }
        };
        let pixels: Vec<i32> =
            words.chunks_exact(WORDS).flat_map(|words| self.pixels(words, height, width)).collect();
        let pixels = TensorData::new(pixels, [rows, 1, height * width]);
        let pixels = Tensor::<3, Int>::from_data(pixels, &device).repeat_dim(1, channels);
        let moved = images.reshape([rows, channels, height * width]).gather(2, pixels);
        let moved = moved.reshape([rows, channels, height, width]);
        if is_keyed { moved } else { ops::mark_unkeyed(moved, self.training.id) }
    }

    /// Returns the pixel that each pixel of an image is taken from.
    fn pixels(&self, words: &[u32], height: usize, width: usize) -> impl Iterator<Item = i32> {
        let choices = 2 * self.padding as u64 + 1;
        // Less than 2^-15 from uniform, which only affects the accuracy.
        let shift = |word: u32| ((u64::from(word) * choices) >> 32) as i64 - self.padding as i64;
        let (down, right) = (shift(words[0]), shift(words[1]));
        let is_mirrored = self.mirror && words[2] >> 31 == 1;
        (0..height).flat_map(move |y| {
            let row = reflected(y as i64 + down, height) * width;
            (0..width).map(move |x| {
                let x = if is_mirrored { width - 1 - x } else { x };
                (row + reflected(x as i64 + right, width)) as i32
            })
        })
    }
}

/// Returns a position within `0..length`, reflected at the first and the last one.
fn reflected(position: i64, length: usize) -> usize {
    let last = length as i64 - 1;
    if last == 0 {
        return 0;
    }
    let folded = position.rem_euclid(2 * last);
    (if folded > last { 2 * last - folded } else { folded }) as usize
}

/// Returns words that belong to no unit.
fn drawn(rows: usize, device: &Device) -> Vec<u32> {
    let values = Tensor::<1>::random([rows * WORDS], Distribution::Uniform(0.0, 1.0), device);
    let values = values.into_data().convert::<f64>();
    let word = |value: f64| (value * 2f64.powi(32)) as u32;
    values.iter::<f64>().map(word).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use super::*;
    use crate::grads::oracle::{host, numbers};
    use crate::nn::{UnitScope, Units, refuse_unkeyed};
    use crate::random::{InsecureSeed, LayerRandomness};
    use crate::test_devices::devices;

    fn moved(layer: &RandomCrop, step: u64, units: &[usize], images: Tensor<4>) -> Tensor<4> {
        let copies = images.dims()[0] / units.len();
        let randomness = LayerRandomness::new(&InsecureSeed(5).into(), step);
        let units = Units::Rows { units: units.to_vec(), copies };
        let _scope = UnitScope::enter(layer, &randomness, units);
        layer.forward(images)
    }

    #[test]
    fn images_of_a_unit_are_moved_alike_in_every_batch() {
        for device in devices() {
            let device = device.autodiff();
            let layer = RandomCrop::new(2).unwrap().with_mirror();
            let (units, copies) = ([4, 9, 700], 2);
            let images = numbers([units.len() * copies, 3, 5, 7], 1, &device);
            let all = moved(&layer, 3, &units, images.clone());
            for (index, &unit) in units.iter().enumerate() {
                let rows = |batch: &Tensor<4>| batch.clone().narrow(0, index * copies, copies);
                let alone = moved(&layer, 3, &[unit], rows(&images));
                assert_eq!(host(alone), host(rows(&all)));
            }
            assert_ne!(host(moved(&layer, 4, &units, images)), host(all));
        }
    }

    #[test]
    fn every_shift_and_both_orientations_occur_and_channels_move_together() {
        let device = Device::flex().autodiff();
        let layer = RandomCrop::new(1).unwrap().with_mirror();
        let (height, width, copies) = (4, 5, 400);
        let image: Tensor<4> = numbers([1, 2, height, width], 2, &device);
        let all = moved(&layer, 0, &[7], image.clone().repeat_dim(0, copies));
        let source = host(image);
        let mut seen = HashSet::new();
        for row in 0..copies {
            let found = host(all.clone().narrow(0, row, 1));
            let expected = |down: i64, right: i64, is_mirrored: bool| -> Vec<f64> {
                let pixel = |channel: usize, y: usize, x: usize| {
                    let x = if is_mirrored { width - 1 - x } else { x };
                    let y = reflected(y as i64 + down, height);
                    let x = reflected(x as i64 + right, width);
                    source[(channel * height + y) * width + x]
                };
                let places = (0..2 * height * width)
                    .map(|i| (i / (height * width), i / width % height, i % width));
                places.map(|(channel, y, x)| pixel(channel, y, x)).collect()
            };
            let choices = (-1..=1).flat_map(|down| (-1..=1).map(move |right| (down, right)));
            let choices = choices.flat_map(|(down, right)| {
                [false, true].map(|is_mirrored| (down, right, is_mirrored))
            });
            let choice = choices.into_iter().find(|&(d, r, m)| expected(d, r, m) == found);
            seen.insert(choice.unwrap());
        }
        assert_eq!(seen.len(), 18);
    }

    #[test]
    fn borders_are_reflected() {
        let found: Vec<usize> = (-5..8).map(|position| reflected(position, 4)).collect();
        assert_eq!(found, [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!(reflected(-3, 1), 0);
    }

    #[test]
    fn outside_of_training_nothing_moves_and_without_units_the_values_are_not_private() {
        let plain = Device::flex();
        let layer = RandomCrop::new(2).unwrap();
        let images: Tensor<4> = numbers([2, 1, 6, 6], 3, &plain);
        assert_eq!(host(layer.forward(images.clone())), host(images));
        let images: Tensor<4> = numbers([20, 1, 6, 6], 4, &plain.autodiff());
        let frozen = layer.clone().freeze();
        assert_eq!(host(frozen.forward(images.clone())), host(images.clone()));
        let error = refuse_unkeyed(|| Ok(layer.forward(images.clone()))).unwrap_err().to_string();
        assert!(error.contains("belong to no unit"), "{error}");
        assert_ne!(host(layer.forward(images.clone())), host(images));
    }
}
