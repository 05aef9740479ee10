//! A keyed hash of sums, which devices compute with the same result.

use pulp::{Arch, Simd, WithSimd};
use zeroize::Zeroizing;

use super::keystream::{GROUP_BLOCKS, Group, Keystream};
use super::share::share;

/// Number of values in a block. The first half is multiplied with the second.
pub(crate) const BLOCK: usize = 1024;
const HALF: usize = BLOCK / 2;
/// Number of independent hashes.
const LANES: usize = 4;
/// Number of keys of one half: each lane starts one key later.
const HALF_KEYS: usize = HALF + LANES - 1;
/// Number of blocks that one task hashes.
const TASK_BLOCKS: usize = 64;

/// Number of the stream of the keys of all blocks. Noise has the streams below 2^32.
const BLOCK_KEYS: u64 = 1 << 32;
/// Number of the stream of the keys of the first part. Part p has the p-th stream after it.
const PART_KEYS: u64 = 2 << 32;

/// The keys of a hash of the sums of one step.
///
/// The hash has two levels. A block m of 1024 words of 32 bits becomes four integers,
///
/// `Σ_i (m_i + k_{i+l}) (m_{i+512} + k'_{i+l}) mod 2^64` for l = 0..4,
///
/// where the inner sums are mod 2^32 and the last block is extended by zeros. The two halves (a, b)
/// of each integer, of all blocks, become `Σ (a + c) (b + d) mod 2^64` with other keys c and d for
/// each block and l.
///
/// Only additions and products of 32-bit words occur, and the order of the blocks does not matter.
/// A device therefore computes it as fast as it reads the sums, with the same result as the host.
///
/// # Privacy
///
/// Two different tensors of equal length have the same four integers with a probability of at most
/// 2^-124 over the keys: for each integer 2^-32 at the first level (NH with Toeplitz keys, Black et
/// al., theorems 1 and 2) and 2^-32 at the second, and the four are independent. The keys are words
/// of ChaCha12 under the key of the step. The integers never leave the run: they enter a keyed
/// BLAKE3, together with the lengths.
///
/// # References
///
/// - J. Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway, "UMAC: Fast and Secure Message
///   Authentication", 1999.
pub(crate) struct ContentKey {
    key: Zeroizing<[u8; 32]>,
    /// k and k'.
    blocks: Zeroizing<[[u32; HALF_KEYS]; 2]>,
}

/// The hash of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentMark {
    /// Number of values.
    pub(crate) length: usize,
    pub(crate) hash: [u64; LANES],
}

impl ContentKey {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let keystream = Keystream::new(key, BLOCK_KEYS);
        let mut blocks = Zeroizing::new([[0; HALF_KEYS]; 2]);
        let mut group = Group::new();
        for (position, key) in blocks.as_flattened_mut().iter_mut().enumerate() {
            let place = position % (16 * GROUP_BLOCKS);
            if place == 0 {
                keystream.group((position / (16 * GROUP_BLOCKS)) as u64, &mut group);
            }
            *key = group.half_word(place % 16, place / 16);
        }
        Self { key: Zeroizing::new(*key), blocks }
    }

    /// Returns publicly known keys, for a hash that nothing is bound to.
    pub(crate) fn public() -> Self {
        Self::new(&[0; 32])
    }

    /// Returns the words that a device needs for part `part`: the key and the number of the stream
    /// of the second level, then the keys of the first.
    pub(crate) fn words(&self, part: u32) -> Vec<u32> {
        let mut words = Keystream::new(&self.key, PART_KEYS + u64::from(part)).words().to_vec();
        words.extend(self.blocks.as_flattened());
        words
    }

    /// Hashes the values of part `part`, on several threads.
    pub(crate) fn mark(&self, part: u32, values: &[f32]) -> ContentMark {
        let keystream = Keystream::new(&self.key, PART_KEYS + u64::from(part));
        let parts = values.chunks(TASK_BLOCKS * BLOCK);
        let mut hashes = vec![[0; LANES]; parts.len()];
        let tasks = parts.zip(&mut hashes).enumerate().collect();
        share(tasks, |(task, (values, hash))| {
            let (keys, first) = (&*self.blocks, (task * TASK_BLOCKS) as u64);
            *hash = Arch::new().dispatch(Task { keys, keystream: &keystream, first, values });
        });
        let mut hash = [0u64; LANES];
        hashes.iter().for_each(|part| add(&mut hash, part));
        ContentMark { length: values.len(), hash }
    }

    /// Combines the hashes of the parts of a tensor, each four integers of 64 bits with the lower
    /// half first.
    pub(crate) fn combine(length: usize, parts: impl Iterator<Item = [u32; 8]>) -> ContentMark {
        let mut hash = [0u64; LANES];
        for words in parts {
            let wide =
                |lane: usize| u64::from(words[2 * lane]) | (u64::from(words[2 * lane + 1]) << 32);
            add(&mut hash, &std::array::from_fn(wide));
        }
        ContentMark { length, hash }
    }
}

fn add(sum: &mut [u64; LANES], other: &[u64; LANES]) {
    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum = sum.wrapping_add(*other));
}

/// Consecutive blocks, from block `first` on, which is the first of a group of the keystream.
struct Task<'a> {
    keys: &'a [[u32; HALF_KEYS]; 2],
    keystream: &'a Keystream,
    first: u64,
    values: &'a [f32],
}

impl WithSimd for Task<'_> {
    type Output = [u64; LANES];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [u64; LANES] {
        let (mut hash, mut group) = ([0u64; LANES], Group::new());
        let mut padded: [f32; BLOCK];
        for (index, values) in self.values.chunks(BLOCK).enumerate() {
            let place = index % GROUP_BLOCKS;
            if place == 0 {
                let group_index = (self.first as usize + index) / GROUP_BLOCKS;
                self.keystream.fill(simd, group_index as u64, &mut group);
            }
            let block = match values.try_into() {
                Ok(block) => block,
                Err(_) => {
                    padded = [0.0; BLOCK];
                    padded[..values.len()].copy_from_slice(values);
                    &padded
                }
            };
            let lanes = first_level(block, self.keys);
            for (lane, (sum, value)) in hash.iter_mut().zip(lanes).enumerate() {
                let low = (value as u32).wrapping_add(group.half_word(2 * lane, place));
                let high =
                    ((value >> 32) as u32).wrapping_add(group.half_word(2 * lane + 1, place));
                *sum = sum.wrapping_add(u64::from(low).wrapping_mul(high.into()));
            }
        }
        hash
    }
}

#[inline(always)]
fn first_level(block: &[f32; BLOCK], [k, l]: &[[u32; HALF_KEYS]; 2]) -> [u64; LANES] {
    let (first, second) = block.split_at(HALF);
    std::array::from_fn(|lane| {
        let keys = k[lane..].iter().zip(&l[lane..]);
        let pairs = first.iter().zip(second).zip(keys);
        pairs.fold(0u64, |sum, ((a, b), (k, l))| {
            let (a, b) = (a.to_bits().wrapping_add(*k), b.to_bits().wrapping_add(*l));
            sum.wrapping_add(u64::from(a).wrapping_mul(b.into()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ContentKey {
        ContentKey::new(&std::array::from_fn(|i| i as u8))
    }

    fn values(length: usize) -> Vec<f32> {
        (0..length).map(|i| (i as f32 * 0.37).sin()).collect()
    }

    #[test]
    fn a_mark_is_the_formula_of_the_documentation() {
        let key = key();
        for length in [0, 1, 511, 512, 513, 1023, 1024, 1025, 100_000] {
            let values = values(length);
            let at = |i: usize| values.get(i).map_or(0, |value| value.to_bits());
            let mut group = Group::new();
            let second = Keystream::new(&key.key, PART_KEYS + 7);
            let mut hash = [0u64; LANES];
            for block in 0..length.div_ceil(BLOCK) {
                second.group((block / GROUP_BLOCKS) as u64, &mut group);
                for (lane, hash) in hash.iter_mut().enumerate() {
                    let sum = (0..HALF).fold(0u64, |sum, i| {
                        let a = at(block * BLOCK + i).wrapping_add(key.blocks[0][i + lane]);
                        let b = at(block * BLOCK + HALF + i).wrapping_add(key.blocks[1][i + lane]);
                        sum.wrapping_add(u64::from(a) * u64::from(b))
                    });
                    let c = group.half_word(2 * lane, block % GROUP_BLOCKS);
                    let d = group.half_word(2 * lane + 1, block % GROUP_BLOCKS);
                    let (a, b) =
                        ((sum as u32).wrapping_add(c), ((sum >> 32) as u32).wrapping_add(d));
                    *hash = hash.wrapping_add(u64::from(a) * u64::from(b));
                }
            }
            assert_eq!(key.mark(7, &values), ContentMark { length, hash }, "{length}");
        }
    }

    #[test]
    fn every_bit_of_every_value_changes_all_integers() {
        let (key, mut values) = (key(), values(2500));
        let original = key.mark(0, &values);
        for position in [0, 1, 511, 512, 1023, 1024, 2047, 2048, 2499] {
            for bit in [0, 13, 22, 23, 31] {
                let before = values[position];
                values[position] = f32::from_bits(before.to_bits() ^ (1 << bit));
                let changed = key.mark(0, &values);
                assert!(changed.hash.iter().zip(original.hash).all(|(a, b)| *a != b));
                values[position] = before;
            }
        }
        values.swap(3, 700);
        assert_ne!(key.mark(0, &values), original);
        values.swap(3, 700);
        assert_eq!(key.mark(0, &values), original);
    }

    #[test]
    fn parts_keys_and_blocks_have_hashes_of_their_own() {
        let (key, values) = (key(), values(1024));
        let other = ContentKey::new(&[9; 32]);
        assert_ne!(key.mark(0, &values), key.mark(1, &values));
        assert_ne!(key.mark(0, &values), other.mark(0, &values));
        // Blocks that swap their places.
        let zeros = vec![0.0; 1024];
        let one = key.mark(0, &[values.clone(), zeros.clone()].concat());
        assert_ne!(key.mark(0, &[zeros.clone(), values].concat()), one);
        assert_ne!(key.mark(0, &zeros).hash, key.mark(0, &[]).hash);
    }

    #[test]
    fn parts_of_a_tensor_combine_in_any_order() {
        let (key, values) = (key(), values(5 * TASK_BLOCKS * BLOCK / 2));
        let whole = key.mark(0, &values);
        let words = |hash: [u64; LANES]| {
            let mut words = [0; 8];
            for (lane, value) in hash.into_iter().enumerate() {
                words[2 * lane] = value as u32;
                words[2 * lane + 1] = (value >> 32) as u32;
            }
            words
        };
        let zeros = [0; LANES];
        let parts = [zeros, whole.hash, zeros].map(words);
        assert_eq!(ContentKey::combine(values.len(), parts.into_iter()), whole);
        let doubled = [whole.hash, whole.hash].map(words);
        assert_ne!(ContentKey::combine(values.len(), doubled.into_iter()), whole);
    }
}
