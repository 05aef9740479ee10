//! Random copies of images.

use burn_dp::nn::RandomCrop;
use clap::Args;
use serde::Serialize;

use super::options::headings;
use super::{TrainError, checks};
use crate::models::Augmented;

/// Default shift of an image, as in De et al., 2022.
const CROP: usize = 4;

/// Maximum shift: a larger one can move a whole image out of its frame.
const LARGEST_CROP: usize = 28;

/// How the images of a step are moved.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = headings::AUGMENTATION)]
pub struct AugmentationOptions {
    /// Move each image of a step at random, K times, and clip the mean gradient of the K copies
    /// (augmentation multiplicity), or of the K copies of all images of a mini-set. It costs no
    /// privacy, and the time of K images. Public images, and images to test on, are not moved.
    #[arg(long, value_name = "K")]
    pub augmentation: Option<usize>,
    /// With --augmentation: largest shift of an image in each direction [default: 4].
    #[arg(long, value_name = "PIXELS")]
    pub crop: Option<usize>,
    /// With --augmentation: also mirror images from left to right at random; not for digits.
    #[arg(long)]
    pub mirror: bool,
}

/// Random copies of each image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Augmentation {
    /// Number of copies.
    #[serde(rename = "augmentation")]
    pub copies: usize,
    /// Largest shift of an image in each direction, in pixels.
    pub crop: usize,
    /// Whether images are mirrored at random.
    pub mirror: bool,
}

impl Augmentation {
    /// Checks the options; `None` if no copies are requested.
    ///
    /// # Arguments
    ///
    /// - `read`: what the network reads instead of images
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option that is impossible or has no meaning.
    pub(super) fn new(
        options: &AugmentationOptions,
        read: Option<&str>,
    ) -> Result<Option<Self>, TrainError> {
        let Some(copies) = options.augmentation else {
            let given = [("--crop", options.crop.is_some()), ("--mirror", options.mirror)];
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                None => Ok(None),
                Some((name, _)) => {
                    let reason = "has no meaning without --augmentation; leave it out, or give \
                                  --augmentation 1";
                    Err(TrainError::option(name, reason))
                }
            };
        };
        if let Some(what) = read {
            let reason = format!("moves images, and the network reads {what}; leave it out");
            return Err(TrainError::option("--augmentation", reason));
        }
        checks::at_least_one([("--augmentation", copies)])?;
        checks::at_most("--augmentation", copies, u16::MAX.into(), "")?;
        let crop = options.crop.unwrap_or(CROP);
        if crop >= LARGEST_CROP {
            let reason = format!(
                "must be less than {LARGEST_CROP} pixels, the side of the smallest images, got \
                 {crop}"
            );
            return Err(TrainError::option("--crop", reason));
        }
        Ok(Some(Self { copies, crop, mirror: options.mirror }))
    }

    /// Returns the network with a layer that moves its images during training; without an
    /// augmentation, the layer does nothing.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the shift is impossible.
    pub fn of<M>(augmentation: Option<&Self>, network: M) -> Result<Augmented<M>, TrainError> {
        let crop = RandomCrop::new(augmentation.map_or(0, |moved| moved.crop))?;
        let is_mirrored = augmentation.is_some_and(|moved| moved.mirror);
        let crop = if is_mirrored { crop.with_mirror() } else { crop };
        Ok(Augmented { network, crop })
    }

    /// Describes the copies of an image.
    pub(super) fn description(&self) -> String {
        let copies = match self.copies {
            1 => "one copy".into(),
            copies => format!("{copies} copies"),
        };
        let mirrored = if self.mirror { " and mirrored" } else { "" };
        format!(
            "{copies} of each image to train on, shifted by up to {} pixels{mirrored} at random",
            self.crop
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn checked(
        augmentation: Option<usize>,
        crop: Option<usize>,
        mirror: bool,
    ) -> Result<Option<Augmentation>, String> {
        let options = AugmentationOptions { augmentation, crop, mirror };
        Augmentation::new(&options, None).map_err(|error| error.to_string())
    }

    #[test]
    fn an_image_is_shifted_by_up_to_four_pixels_unless_another_shift_is_given() {
        assert_eq!(checked(None, None, false), Ok(None));
        let usual = checked(Some(2), None, false).unwrap().unwrap();
        assert_eq!(usual, Augmentation { copies: 2, crop: 4, mirror: false });
        let given = checked(Some(1), Some(0), true).unwrap().unwrap();
        assert_eq!(given, Augmentation { copies: 1, crop: 0, mirror: true });
        let text = "2 copies of each image to train on, shifted by up to 4 pixels at random";
        assert_eq!(usual.description(), text);
        assert!(given.description().starts_with("one copy of each image"));
        assert!(given.description().ends_with("0 pixels and mirrored at random"));
    }

    #[test]
    fn impossible_copies_are_refused_by_name() {
        for (found, expected) in [
            (checked(Some(0), None, false), "--augmentation must be at least 1, got 0"),
            (checked(Some(65_536), None, false), "--augmentation must be at most 65535"),
            (checked(Some(1), Some(28), false), "--crop must be less than 28 pixels"),
            (checked(None, Some(2), false), "--crop has no meaning without --augmentation"),
            (checked(None, None, true), "--mirror has no meaning without --augmentation"),
        ] {
            let error = found.unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let options = AugmentationOptions { augmentation: Some(1), ..Default::default() };
        let error = Augmentation::new(&options, Some("texts")).unwrap_err().to_string();
        assert!(error.contains("moves images, and the network reads texts"), "{error}");
    }

    #[test]
    fn the_layer_has_the_settings_and_does_nothing_without_them() {
        let moved = Augmentation { copies: 3, crop: 2, mirror: true };
        let augmented = Augmentation::of(Some(&moved), ()).unwrap();
        assert_eq!((augmented.crop.padding, augmented.crop.mirror), (2, true));
        let plain = Augmentation::of(None, ()).unwrap();
        assert_eq!((plain.crop.padding, plain.crop.mirror), (0, false));
    }
}
