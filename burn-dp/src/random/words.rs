//! The words of a stream, one after another.

use zeroize::Zeroizing;

use super::keystream::{GROUP_BLOCKS, GROUP_WORDS, Group, Keystream};

/// The 64-bit words of a keystream, in the order of its bytes. The iterator has no end.
pub(crate) struct Words {
    keystream: Keystream,
    next_group: u64,
    group: Group,
    words: Zeroizing<[u64; GROUP_WORDS]>,
    used: usize,
}

impl Words {
    pub(super) fn new(keystream: Keystream) -> Self {
        let words = Zeroizing::new([0; GROUP_WORDS]);
        Self { keystream, next_group: 0, group: Group::new(), words, used: GROUP_WORDS }
    }

    #[cold]
    fn refill(&mut self) {
        self.keystream.group(self.next_group, &mut self.group);
        for (block, words) in self.words.chunks_exact_mut(GROUP_WORDS / GROUP_BLOCKS).enumerate() {
            for (index, word) in words.iter_mut().enumerate() {
                *word = self.group.word(index, block);
            }
        }
        self.next_group += 1;
        self.used = 0;
    }
}

impl Iterator for Words {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.used == GROUP_WORDS {
            self.refill();
        }
        self.used += 1;
        Some(self.words[self.used - 1])
    }
}

opaque_debug!(Words);

#[cfg(test)]
mod tests {
    use chacha20::ChaCha12Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn words_are_the_published_keystream() {
        // Strombergson's TC1: key, stream and counter zero, 12 rounds.
        let mut words = Words::new(Keystream::new(&[0; 32], 0)).map(u64::to_le_bytes);
        assert_eq!(words.next(), Some([0x9b, 0xf4, 0x9a, 0x6a, 0x07, 0x55, 0xf9, 0x53]));
        assert_eq!(words.next(), Some([0x81, 0x1f, 0xce, 0x12, 0x5f, 0x26, 0x83, 0xd5]));
    }

    #[test]
    fn words_equal_the_independent_implementation_across_groups() {
        let (key, stream) = ([7; 32], 1 << 40);
        let mut rng = ChaCha12Rng::from_seed(key);
        rng.set_stream(stream);
        let words = Words::new(Keystream::new(&key, stream));
        assert!(words.take(3 * GROUP_WORDS + 5).all(|word| word == rng.next_u64()));
    }
}
