//! One labelled image, and a data set of them in memory.

use burn::data::dataset::{Dataset, DatasetError};

/// Width and height of an image.
pub const SIDE: usize = 28;

/// Number of pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// Number of classes.
pub const CLASSES: usize = 10;

/// A labelled grey-scale image of [`SIDE`] × [`SIDE`] pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageItem {
    /// Brightness, row by row; 0 is the background.
    pub image: [u8; PIXELS],
    /// The class, less than [`CLASSES`].
    pub label: u8,
}

/// Labelled images in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDataset {
    items: Vec<ImageItem>,
}

impl ImageDataset {
    /// A data set of these images, in this order.
    pub fn new(items: Vec<ImageItem>) -> Self {
        Self { items }
    }

    /// The images, in order.
    pub fn items(&self) -> &[ImageItem] {
        &self.items
    }

    /// The same data set cut to its first `len` images; unchanged if it is not longer.
    pub fn truncated(mut self, len: usize) -> Self {
        self.items.truncate(len);
        self
    }
}

impl Dataset<ImageItem> for ImageDataset {
    fn get(&self, index: usize) -> Result<ImageItem, DatasetError> {
        Ok(self.items[index])
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

/// A training set and the test set that goes with it.
#[derive(Debug, Clone)]
pub struct Splits {
    /// Name of the data, as it appears in reports.
    pub name: String,
    /// The images to train on, which the privacy guarantee protects.
    pub train: ImageDataset,
    /// The images to measure on, taken as public.
    pub test: ImageDataset,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn three() -> ImageDataset {
        ImageDataset::new((0..3).map(|label| ImageItem { image: [label; PIXELS], label }).collect())
    }

    #[test]
    fn items_come_back_in_their_order() {
        let dataset = three();
        assert_eq!(dataset.len(), 3);
        assert_eq!(dataset.get(2).unwrap().label, 2);
        let many: Vec<_> = dataset.get_many(vec![2, 0]).unwrap();
        assert_eq!([many[0].label, many[1].label], [2, 0]);
    }

    #[test]
    fn a_data_set_is_cut_but_never_extended() {
        assert_eq!(three().truncated(1).len(), 1);
        assert_eq!(three().truncated(9).len(), 3);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_index_past_the_end_panics_as_burn_asks() {
        let _ = three().get(3);
    }
}
