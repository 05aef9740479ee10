//! The words of the random layers of a model, such as dropout.

use zeroize::Zeroizing;

use super::key::{InsecureSeed, Key};
use super::keystream::{GROUP_BLOCKS, Group, Keystream};
use super::purpose::Domain;

/// 32-bit words in a block.
const BLOCK_WORDS: usize = 16;

/// The randomness of all layers in one step of a run.
///
/// # Privacy
///
/// The words of a unit follow from its index in the data set. If a unit is added, those after it
/// have the words of the next index, but the sensitivity is still one threshold: the words are
/// secret, independent of the data and of the draws, and the words of all indices have one
/// distribution. So pair the outcomes of the two runs in which each common unit has the same draws
/// and words, wherever it is listed. In each pair the clipped sums differ by the contribution of
/// the added unit, at most the threshold for all words, and the divergence of the two releases is
/// at most the mean of the divergences of the pairs (joint convexity). With words that somebody
/// knows, this holds only for a neighbor in which all other units keep their indices.
#[derive(Clone, Debug)]
pub(crate) struct LayerRandomness {
    key: Key,
}

impl LayerRandomness {
    /// Returns the randomness of a step, which is a function of the arguments and may be computed
    /// again.
    pub(crate) fn new(key: &Key, step: u64) -> Self {
        Self { key: key.derive(Domain::Layers.tag(), step) }
    }

    /// Returns publicly known randomness, for tests of a model outside a run.
    pub(crate) fn known() -> Self {
        Self::new(&InsecureSeed(0).into(), 0)
    }

    /// Returns the key of the layer at a path of the model.
    pub(crate) fn of_layer(&self, path: &str) -> LayerKey {
        LayerKey(Zeroizing::new(*blake3::keyed_hash(self.key.bytes(), path.as_bytes()).as_bytes()))
    }
}

/// The key of one layer in one step.
#[derive(Clone)]
pub(crate) struct LayerKey(Zeroizing<[u8; 32]>);

impl LayerKey {
    /// Fills a matrix with random words, row by row. Each word depends only on the key, on `place`,
    /// and on its row and column, not on the size of the matrix.
    ///
    /// # Privacy
    ///
    /// A matrix has its own key, the keyed BLAKE3 digest of `place`; sixteen of its rows are a
    /// stream of ChaCha12. The words of a unit therefore do not depend on the other units in its
    /// batch, even if these lengthen its rows or columns by padding.
    ///
    /// # Arguments
    ///
    /// - `place`: numbers that identify the matrix within the layer and the step
    /// - `columns`: length of a row
    /// - `words`: a whole number of rows
    pub(crate) fn fill(&self, place: &[u64], columns: usize, words: &mut [u32]) {
        if words.is_empty() {
            return;
        }
        let place: Vec<u8> = place.iter().flat_map(|number| number.to_le_bytes()).collect();
        let key = Zeroizing::new(*blake3::keyed_hash(&self.0, &place).as_bytes());
        let mut group = Group::new();
        for (stream, rows) in (0..).zip(words.chunks_mut(columns * GROUP_BLOCKS)) {
            let keystream = Keystream::new(&key, stream);
            for (index, column) in (0..columns).step_by(BLOCK_WORDS).enumerate() {
                keystream.group(index as u64, &mut group);
                let end = columns.min(column + BLOCK_WORDS);
                for (block, row) in rows.chunks_mut(columns).enumerate() {
                    for (word, value) in row[column..end].iter_mut().enumerate() {
                        *value = group.half_word(word, block);
                    }
                }
            }
        }
    }
}

opaque_debug!(LayerKey);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn words(layer: &LayerKey, place: &[u64], rows: usize, columns: usize) -> Vec<u32> {
        let mut words = vec![0; rows * columns];
        layer.fill(place, columns, &mut words);
        words
    }

    #[test]
    fn a_word_does_not_depend_on_the_size_of_its_matrix() {
        let layer = LayerRandomness::known().of_layer("dropout");
        let largest = words(&layer, &[3, 4], 40, 50);
        for (rows, columns) in [(1, 1), (1, 50), (16, 16), (17, 17), (40, 3), (33, 49), (0, 5)] {
            let smaller = words(&layer, &[3, 4], rows, columns);
            for (row, found) in smaller.chunks(columns).enumerate() {
                assert_eq!(found, &largest[row * 50..][..columns], "{rows} {columns} {row}");
            }
        }
    }

    #[test]
    fn keys_steps_layers_and_places_share_no_word() {
        let mut seen = HashSet::new();
        let mut count = 0;
        for seed in [0, 1] {
            for step in [0, 1, u64::MAX] {
                let randomness = LayerRandomness::new(&InsecureSeed(seed).into(), step);
                for path in ["", "a", "b", "a.b"] {
                    let layer = randomness.of_layer(path);
                    for place in [&[0u64][..], &[1], &[0, 0], &[0, 1], &[u64::MAX]] {
                        // Two words together: a collision of 9,600 pairs has probability 3e-12.
                        for pair in words(&layer, place, 10, 16).chunks(2) {
                            seen.insert((pair[0], pair[1]));
                            count += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn debug_output_shows_no_key() {
        let randomness = LayerRandomness::known();
        assert_eq!(
            format!("{randomness:?} {:?}", randomness.of_layer("a")),
            "LayerRandomness { key: Key { secure: false, .. } } LayerKey { .. }"
        );
    }
}
