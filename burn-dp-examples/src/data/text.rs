//! Labeled texts, and their conversion into tensors.

use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};
use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::batch::targets;
use super::{Batch, Encoder, ItemDataset, PADDING, UNKNOWN};

/// A labeled text, as numbers of words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TextItem {
    /// The words, by their numbers in the vocabulary; at least one.
    pub tokens: Arc<[u32]>,
    /// The class.
    pub label: u16,
}

/// Labeled texts in memory.
pub type TextDataset = ItemDataset<TextItem>;

/// Texts and labels of a batch.
pub type TextBatch = Batch<Tensor<2, Int>>;

/// Cuts texts to one length, pads shorter ones with [`PADDING`], and stacks them.
///
/// The length is the same for all batches, so that the shape of a tensor reveals nothing about a
/// text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextBatcher {
    /// Number of words that are kept, from the beginning of the text.
    pub length: usize,
    /// Size of the vocabulary, padding included.
    pub vocabulary: usize,
}

impl Batcher<TextItem, TextBatch> for TextBatcher {
    fn batch(&self, items: Vec<TextItem>, device: &Device) -> TextBatch {
        let mut tokens = Vec::with_capacity(items.len() * self.length);
        for item in &items {
            let kept = item.tokens.len().min(self.length);
            tokens.extend(item.tokens[..kept].iter().map(|&token| token as i32));
            tokens.extend((kept..self.length).map(|_| PADDING as i32));
        }
        Batch {
            inputs: Tensor::from_data(TensorData::new(tokens, [items.len(), self.length]), device),
            targets: targets(items.iter().map(|item| item.label), device),
        }
    }
}

impl Encoder for TextBatcher {
    type Item = TextItem;
    type Inputs = Tensor<2, Int>;

    /// Random words; the texts also differ in length.
    fn made_up(&self, items: usize, classes: usize) -> Vec<TextItem> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut below = |bound: usize| rng.next_u32() % bound.max(1) as u32;
        let mut item = |index: usize| {
            let length = 1 + below(self.length) as usize;
            let tokens = (0..length).map(|_| UNKNOWN + below(self.vocabulary - 1)).collect();
            TextItem { tokens, label: (index % classes) as u16 }
        };
        (0..items).map(&mut item).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn item(tokens: &[u32], label: u16) -> TextItem {
        TextItem { tokens: tokens.into(), label }
    }

    #[test]
    fn texts_are_cut_and_padded_to_one_length() {
        let batcher = TextBatcher { length: 3, vocabulary: 10 };
        let items = vec![item(&[5, 6, 7, 8], 1), item(&[9], 0)];
        let batch = batcher.batch(items, &Device::flex());
        assert_eq!(batch.inputs.dims(), [2, 3]);
        let values = batch.inputs.into_data().convert::<i64>().try_into_vec::<i64>().unwrap();
        assert_eq!(values, [5, 6, 7, 9, 0, 0]);
        let labels = batch.targets.into_data().convert::<i64>().try_into_vec::<i64>().unwrap();
        assert_eq!(labels, [1, 0]);
    }

    #[test]
    fn no_items_give_a_batch_of_zero_rows() {
        let batch = TextBatcher { length: 3, vocabulary: 10 }.batch(Vec::new(), &Device::flex());
        assert_eq!((batch.inputs.dims(), batch.targets.dims()), ([0, 3], [0]));
    }

    #[test]
    fn made_up_texts_hold_words_of_the_vocabulary_and_differ() {
        let items = TextBatcher { length: 20, vocabulary: 50 }.made_up(8, 2);
        assert!(items.iter().all(|item| (1..=20).contains(&item.tokens.len())));
        assert!(items.iter().flat_map(|item| item.tokens.iter()).all(|&t| (1..50).contains(&t)));
        assert!(items.windows(2).all(|pair| pair[0].tokens != pair[1].tokens));
        assert!(items.iter().any(|item| item.label == 1));
    }
}
