//! The words of a stream, one after the other.

use std::fmt;

use super::keystream::{GROUP_WORDS, Group, Keystream};

/// 64-bit words of a block.
const BLOCK_WORDS: usize = 8;

/// The 64-bit words of a keystream, in the order of its bytes. The iterator has no end.
pub(crate) struct Words {
    keystream: Keystream,
    group: Group,
    position: u64,
}

impl Words {
    pub(super) fn new(keystream: Keystream) -> Self {
        Self { keystream, group: Group::new(), position: 0 }
    }
}

impl Iterator for Words {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let index = self.position % GROUP_WORDS as u64;
        if index == 0 {
            self.keystream.group(self.position / GROUP_WORDS as u64, &mut self.group);
        }
        self.position += 1;
        Some(self.group.word(index as usize % BLOCK_WORDS, index as usize / BLOCK_WORDS))
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("position", &self.position).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use chacha20::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn words_are_the_keystream_of_rfc_8439() {
        // Key, nonce and counter zero: appendix A.1, vector 1.
        let mut words = Words::new(Keystream::new(&[0; 32], 0)).map(u64::to_le_bytes);
        assert_eq!(words.next(), Some([0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]));
        assert_eq!(words.next(), Some([0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28]));
    }

    #[test]
    fn words_equal_the_independent_implementation_across_groups() {
        let (key, stream) = ([7; 32], 1 << 40);
        let mut rng = ChaCha20Rng::from_seed(key);
        rng.set_stream(stream);
        let words = Words::new(Keystream::new(&key, stream));
        assert!(words.take(3 * GROUP_WORDS + 5).all(|word| word == rng.next_u64()));
    }
}
