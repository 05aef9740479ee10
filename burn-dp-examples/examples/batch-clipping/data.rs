//! Private digits in mini-sets, public digits for BatchNorm, and digits to test on.

use burn_dp::DpError;
use burn_dp::updates::MiniSets;
use burn_dp_examples::data::{ImageItem, digits};

/// Images in a mini-set.
const MINI_SET_SIZE: usize = 5;

/// Number of public images.
const PUBLIC: usize = 100;

/// The data of the training.
pub struct Data {
    /// Private images.
    pub private: Vec<ImageItem>,
    /// Their division into mini-sets. It is fixed before the training and public.
    pub sets: MiniSets,
    /// Public images: the statistics of BatchNorm come from them.
    pub public: Vec<ImageItem>,
    /// Images to test on.
    pub test: Vec<ImageItem>,
}

impl Data {
    /// Draws the digits and divides the private ones.
    ///
    /// # Errors
    ///
    /// Returns [`DpError`] if the size of a mini-set does not fit.
    pub fn new() -> Result<Self, DpError> {
        let splits = digits::splits(0, 2_000 + PUBLIC, 500);
        let mut private = splits.train.items().to_vec();
        let public = private.split_off(private.len() - PUBLIC);
        let sets = MiniSets::shuffled(private.len(), MINI_SET_SIZE, 0)?;
        Ok(Self { private, sets, public, test: splits.test.items().to_vec() })
    }

    /// Returns the images of a mini-set.
    pub fn members(&self, set: usize) -> Vec<ImageItem> {
        self.sets.members(set).iter().map(|&index| self.private[index].clone()).collect()
    }
}
