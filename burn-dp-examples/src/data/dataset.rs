//! Data sets in memory.

use std::sync::Arc;

use burn::data::dataset::{Dataset, DatasetError};

use burn_dp::sampling::DistinctRecords;

use super::Encoder;

/// Width and height of the digits.
pub const SIDE: usize = 28;

/// Number of pixels of a digit.
pub const PIXELS: usize = SIDE * SIDE;

/// Number of classes of the digits.
pub const CLASSES: usize = 10;

/// Labeled items in memory, which clones share.
#[derive(Debug, Clone)]
pub struct ItemDataset<T> {
    items: Arc<Vec<T>>,
    len: usize,
}

impl<T> ItemDataset<T> {
    /// Creates a data set of these items, in this order.
    pub fn new(items: Vec<T>) -> Self {
        Self { len: items.len(), items: Arc::new(items) }
    }

    /// Returns the items, in order.
    pub fn items(&self) -> &[T] {
        &self.items[..self.len]
    }

    /// Returns the data set cut to its first `len` items; unchanged if it is not longer.
    pub fn truncated(mut self, len: usize) -> Self {
        self.len = self.len.min(len);
        self
    }
}

impl<T: PartialEq> PartialEq for ItemDataset<T> {
    fn eq(&self, other: &Self) -> bool {
        self.items() == other.items()
    }
}

impl<T: Eq> Eq for ItemDataset<T> {}

impl<T: Clone + Send + Sync> Dataset<T> for ItemDataset<T> {
    fn get(&self, index: usize) -> Result<T, DatasetError> {
        Ok(self.items()[index].clone())
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Every index is a different item.
impl<T: Clone + Send + Sync> DistinctRecords<T> for ItemDataset<T> {}

/// A training set and its test set.
#[derive(Debug, Clone)]
pub struct Splits<E: Encoder> {
    /// Name of the data in reports.
    pub name: String,
    /// Number of classes.
    pub classes: usize,
    /// Converts items into tensors.
    pub encoder: E,
    /// The items to train on, which the privacy guarantee protects.
    pub train: ItemDataset<E::Item>,
    /// The items to test on, treated as public.
    pub test: ItemDataset<E::Item>,
}

impl<E: Encoder> Splits<E> {
    /// Returns the splits, each cut to its first items; unchanged if it is not longer.
    pub fn truncated(self, train_items: usize, test_items: usize) -> Self {
        let (train, test) = (self.train.truncated(train_items), self.test.truncated(test_items));
        Self { train, test, ..self }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn items_keep_their_order() {
        let dataset = ItemDataset::new(vec!['a', 'b', 'c']);
        assert_eq!(dataset.len(), 3);
        assert_eq!(dataset.get(2).unwrap(), 'c');
        assert_eq!(dataset.get_many(vec![2, 0]).unwrap(), ['c', 'a']);
    }

    #[test]
    fn a_data_set_is_cut_but_never_extended() {
        assert_eq!(ItemDataset::new(vec![1, 2, 3]).truncated(1).len(), 1);
        assert_eq!(ItemDataset::new(vec![1, 2, 3]).truncated(9).len(), 3);
        let cut = ItemDataset::new(vec![1, 2, 3]).truncated(2);
        assert_eq!((cut.items(), &cut), (&[1, 2][..], &ItemDataset::new(vec![1, 2])));
        assert_eq!(cut.truncated(3).len(), 2);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_index_past_the_end_panics_as_burn_asks() {
        let _ = ItemDataset::new(vec![1, 2, 3, 4]).truncated(3).get(3);
    }
}
