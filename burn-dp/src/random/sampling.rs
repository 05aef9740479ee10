//! Where the samplers take their randomness from.

use std::fmt;

use chacha20::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use crate::DpError;

/// The random words of every step, addressed by step and position.
///
/// The words of different (step, position) pairs are independent and uniform over all 64-bit words, and
/// are independent of every other stream of the run, in particular of the noise.
pub(crate) trait WordSource: fmt::Debug + Send + Sync {
    /// Fills `out` with the words `start, start + 1, …` of `step`.
    fn words(&self, step: u64, start: u64, out: &mut [u64]);

    /// Whether someone else could know the words.
    fn is_insecure(&self) -> bool;

    /// Marks the source: a word behind those of all units and of all steps that a run can make.
    fn origin(&self) -> u64 {
        let mut word = [0];
        self.words(u64::MAX, 1 << 62, &mut word);
        word[0]
    }
}

/// The secret from which all draws of a run follow.
///
/// # Privacy
///
/// Amplification by sampling assumes that nobody who sees the model knows which units were drawn. Keep
/// the key as secret as the data. A resumed run must go on with the key of the first run.
#[derive(Clone)]
pub struct SamplingKey {
    bytes: Zeroizing<[u8; 32]>,
    insecure: bool,
}

/// A known seed for tests and for the repetition of experiments on public data.
///
/// # Privacy
///
/// Draws from a known seed are known: there is **no** amplification by sampling. A sampler with such a
/// key says so by [`Sampler::is_insecure`](super::Sampler::is_insecure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsecureSamplingSeed(pub u64);

impl SamplingKey {
    /// A new key from the operating system.
    ///
    /// # Errors
    ///
    /// [`DpError::Entropy`] when the operating system has none to give.
    pub fn from_entropy() -> Result<Self, DpError> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut_slice()).map_err(|e| DpError::Entropy(e.to_string()))?;
        Ok(Self { bytes, insecure: false })
    }

    /// The key that [`expose_secret`](Self::expose_secret) saved, or one derived from a run key.
    ///
    /// # Privacy
    ///
    /// The bytes must be uniform, secret, and used for nothing else: not for the noise, nor for the
    /// sampling of another run.
    pub fn from_secret(bytes: [u8; 32]) -> Self {
        Self { bytes: Zeroizing::new(bytes), insecure: false }
    }

    /// The same key, marked as known: for a key derived from a run key that is not secret.
    pub fn into_insecure(self) -> Self {
        Self { insecure: true, ..self }
    }

    /// A key for one step alone, whose streams belong to the units of that step: for the order of a
    /// unit's own examples.
    pub(crate) fn of_step(&self, step: u64) -> Self {
        let mut words = Zeroizing::new([0; 4]);
        self.words(step, 0, &mut words[..]);
        let mut bytes = Zeroizing::new([0; 32]);
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words.iter()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Self { bytes, insecure: self.insecure }
    }

    /// The bytes of the key, to be stored where the data may be stored; `None` for an insecure key,
    /// which would otherwise come back as a secret one.
    pub fn expose_secret(&self) -> Option<&[u8; 32]> {
        (!self.insecure).then_some(&*self.bytes)
    }
}

impl From<InsecureSamplingSeed> for SamplingKey {
    fn from(seed: InsecureSamplingSeed) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        bytes[..8].copy_from_slice(&seed.0.to_le_bytes());
        bytes[8..].copy_from_slice(b"insecure sampling stream");
        Self { bytes, insecure: true }
    }
}

impl fmt::Debug for SamplingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SamplingKey").field("insecure", &self.insecure).finish_non_exhaustive()
    }
}

/// ChaCha20 in counter mode: the step is the stream, the position the counter, so the words of a step
/// depend on nothing that happened before.
impl WordSource for SamplingKey {
    fn words(&self, step: u64, start: u64, out: &mut [u64]) {
        let mut rng = ChaCha20Rng::from_seed(*self.bytes);
        rng.set_stream(step);
        rng.set_word_pos(u128::from(start) * 2);
        out.fill_with(|| rng.next_u64());
    }

    fn is_insecure(&self) -> bool {
        self.insecure
    }
}

/// Words that a [`WordStream`] takes at once.
const BUFFER: usize = 256;

/// The words of one step, one after the other.
pub(crate) struct WordStream<'a> {
    source: &'a dyn WordSource,
    step: u64,
    position: u64,
    buffer: [u64; BUFFER],
}

impl<'a> WordStream<'a> {
    pub(crate) fn new(source: &'a dyn WordSource, step: u64) -> Self {
        Self { source, step, position: 0, buffer: [0; BUFFER] }
    }

    fn next(&mut self) -> u64 {
        let index = (self.position % BUFFER as u64) as usize;
        if index == 0 {
            self.source.words(self.step, self.position, &mut self.buffer);
        }
        self.position += 1;
        self.buffer[index]
    }

    /// A permutation of `0..len`, every one with the same probability.
    pub(crate) fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut permutation: Vec<usize> = (0..len).collect();
        for last in (1..len).rev() {
            permutation.swap(last, self.below(last as u64 + 1) as usize);
        }
        permutation
    }

    /// A number below `bound`, exactly uniform.
    ///
    /// # References
    ///
    /// Fast random integer generation in an interval, Lemire 2019, section 4.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "bound must be positive");
        let rejected_below = bound.wrapping_neg() % bound; // 2^64 mod bound
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            if product as u64 >= rejected_below {
                return (product >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sampling::statistics::{assert_chi_squared, chi_squared};

    #[test]
    fn words_are_the_chacha20_key_stream_of_the_reference() {
        // Key, nonce and counter zero: the first key stream block of ChaCha20, RFC 8439, A.1 #1.
        let mut words = [0; 2];
        SamplingKey::from_secret([0; 32]).words(0, 0, &mut words);
        assert_eq!(words[0].to_le_bytes(), [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(words[1].to_le_bytes(), [0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28]);
    }

    #[test]
    fn any_part_of_a_step_can_be_read_by_itself() {
        let key = SamplingKey::from(InsecureSamplingSeed(1));
        let mut whole = vec![0; 1000];
        key.words(7, 0, &mut whole);
        for start in [0, 1, 7, 8, 63, 500, 999] {
            let mut part = vec![0; 1000 - start];
            key.words(7, start as u64, &mut part);
            assert_eq!(part, whole[start..]);
        }
    }

    #[test]
    fn two_keys_from_entropy_and_two_steps_share_no_word() {
        let keys = [SamplingKey::from_entropy().unwrap(), SamplingKey::from_entropy().unwrap()];
        let mut all = Vec::new();
        for key in &keys {
            for step in [0, 1, u64::MAX] {
                let mut words = [0; 64];
                key.words(step, 0, &mut words);
                all.extend(words);
            }
        }
        // Among 384 random words a collision has probability below 1e-14.
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_saved_key_gives_the_same_words_and_an_insecure_one_cannot_be_saved_as_a_secret() {
        let key = SamplingKey::from_entropy().unwrap();
        let restored = SamplingKey::from_secret(*key.expose_secret().unwrap());
        let (mut a, mut b) = ([0; 8], [0; 8]);
        key.words(3, 5, &mut a);
        restored.words(3, 5, &mut b);
        assert_eq!(a, b);
        assert!(!restored.is_insecure());

        let insecure = SamplingKey::from(InsecureSamplingSeed(0));
        assert!(insecure.is_insecure());
        assert!(insecure.expose_secret().is_none());
        assert!(restored.into_insecure().is_insecure());
    }

    #[test]
    fn the_debug_output_of_a_key_does_not_contain_it() {
        let text = format!("{:?}", SamplingKey::from_secret([0xab; 32]));
        assert!(!text.contains("171") && !text.contains("ab,"), "{text}");
    }

    #[test]
    fn bounded_numbers_are_uniform_with_error_rate_1e_6() {
        let key = SamplingKey::from(InsecureSamplingSeed(2));
        let mut stream = WordStream::new(&key, 0);
        let (bound, draws) = (48, 100_000);
        let mut counts = vec![0.0; bound];
        for _ in 0..draws {
            counts[stream.below(bound as u64) as usize] += 1.0;
        }
        let expected = vec![draws as f64 / bound as f64; bound];
        assert_chi_squared(chi_squared(&counts, &expected), bound - 1);
    }

    #[test]
    fn a_permutation_moves_every_number_to_every_place_with_error_rate_1e_6() {
        let key = SamplingKey::from(InsecureSamplingSeed(3));
        let mut counts = vec![0.0; 24];
        for step in 0..24_000 {
            let found = WordStream::new(&key.of_step(step), 5).permutation(4);
            let rest = |at: usize| (at..4).filter(|&i| found[i] < found[at]).count();
            counts[rest(0) * 6 + rest(1) * 2 + rest(2)] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[1000.0; 24]), 23);
        assert!(WordStream::new(&key, 0).permutation(0).is_empty());
        assert_ne!(
            WordStream::new(&key.of_step(0), 5).permutation(50),
            WordStream::new(&key.of_step(0), 6).permutation(50)
        );
    }

    #[derive(Debug)]
    struct Planted(Vec<u64>);

    impl WordSource for Planted {
        fn words(&self, _step: u64, start: u64, out: &mut [u64]) {
            for (i, word) in out.iter_mut().enumerate() {
                *word = self.0.get(start as usize + i).copied().unwrap_or(u64::MAX);
            }
        }

        fn is_insecure(&self) -> bool {
            true
        }
    }

    #[test]
    fn words_that_would_favour_a_number_are_rejected() {
        // 2^64 = 1 mod 3, so exactly one word, 0, has to go.
        assert_eq!(WordStream::new(&Planted(vec![0, 1]), 0).below(3), 0);
        let third = u64::MAX / 3;
        assert_eq!(WordStream::new(&Planted(vec![0, third + 1]), 0).below(3), 1);
        assert_eq!(WordStream::new(&Planted(vec![third]), 0).below(3), 0);
        assert_eq!(WordStream::new(&Planted(vec![u64::MAX]), 0).below(3), 2);
    }
}
