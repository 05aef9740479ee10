//! Private digits in mini-sets, public digits for BatchNorm, and digits to test on.

use burn_dp::updates::MiniSets;
use burn_dp::{DpError, PublicData};
use burn_dp_examples::data::{ImageItem, digits};

/// Number of images in a mini-set.
const MINI_SET_SIZE: usize = 5;

/// Number of public images.
const PUBLIC: usize = 100;

/// The data of the training run.
pub struct Data {
    /// Private images.
    pub private: Vec<ImageItem>,
    /// Their division into mini-sets. It is fixed before the training and public.
    pub sets: MiniSets,
    /// Public images: the statistics of BatchNorm come from them.
    pub public: PublicData<ImageItem>,
    /// Images to test on.
    pub test: Vec<ImageItem>,
}

impl Data {
    /// Makes the synthetic digits and divides the private ones.
    ///
    /// # Errors
    ///
    /// Returns [`DpError`] if the size of a mini-set does not fit, or if there is no public image.
    pub fn new() -> Result<Self, DpError> {
        let splits = digits::splits(0, 2_000, 500);
        let (private, public) = (splits.train.items().to_vec(), digits::public(0, PUBLIC)?);
        let sets = MiniSets::shuffled(private.len(), MINI_SET_SIZE, 0)?;
        Ok(Self { private, sets, public, test: splits.test.items().to_vec() })
    }

    /// Returns the images of a mini-set.
    pub fn members(&self, set: usize) -> Vec<ImageItem> {
        self.sets.members(set).iter().map(|&index| self.private[index].clone()).collect()
    }
}
