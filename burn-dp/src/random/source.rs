//! The source of all randomness of a run.

use std::sync::atomic::{AtomicBool, Ordering};

use super::key::{InsecureSeed, Key};
use super::keystream::{GROUP_WORDS, Group};
use super::purpose::{Domain, Purpose};
use super::step::{NoiseStep, Repetition};
use super::stream::Stream;
use crate::DpError;

/// The source of all randomness of one private run.
///
/// It holds a 256-bit [`Key`] and cannot be cloned. Each step of each purpose begins once, in
/// increasing order.
///
/// # Privacy
///
/// No two streams share a word. The generator is ChaCha12, a function of a 256-bit key, a 64-bit
/// stream number and a 64-bit block number that is computationally a random function. The key of
/// (purpose, step) is the first half of block `step` of stream `purpose` under the run's key. For
/// different pairs these are different inputs, for all 2^64 steps. The words of parameter `p` are
/// stream `p` under that key, block by block; a parameter of 2^40 values takes 2^37 of the 2^64
/// blocks. The units of a step, the order of a unit's examples and all other draws are derived in
/// the same way, each with its own purpose. Words of different (purpose, step, parameter, position)
/// therefore come from different inputs, unless two of n derived keys are equal, with probability
/// below n²/2^257.
///
/// A run that is continued from an older state after its last release must not use the old key for
/// the steps that it repeats: two different sums with the same noise reveal their difference. Take
/// a new key ([`from_os`](Self::from_os)), which needs nothing stored, or [`resume`](Self::resume)
/// after the last step that may have been released.
///
/// # References
///
/// - D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008.
pub struct NoiseSource {
    key: Key,
    /// For each purpose, the smallest step that may begin; `None` when all were used.
    next: [Option<u64>; Purpose::NUMBER],
    /// Whether the key was ever outside this source, so that a step could be repeated.
    exported: AtomicBool,
}

impl NoiseSource {
    /// Returns a source with a new key from the operating system.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Entropy`] if the operating system provides no entropy. There is no
    /// substitute.
    pub fn from_os() -> Result<Self, DpError> {
        Ok(Self::new(Key::from_os()?))
    }

    /// Returns a source whose words a number determines, for tests.
    ///
    /// # Privacy
    ///
    /// None; see [`InsecureSeed`].
    pub fn insecure(seed: InsecureSeed) -> Self {
        Self::new(seed.into())
    }

    fn new(key: Key) -> Self {
        Self { key, next: [Some(0); Purpose::NUMBER], exported: AtomicBool::new(false) }
    }

    /// Returns the source of a stored key, which rejects all steps before `next_step`, for all
    /// purposes.
    ///
    /// # Privacy
    ///
    /// `next_step` must be greater than every step that was released with this key, including
    /// releases of runs that ended without saving.
    pub fn resume(key: Key, next_step: u64) -> Self {
        let next = [Some(next_step); Purpose::NUMBER];
        Self { key, next, exported: AtomicBool::new(true) }
    }

    /// Returns whether the key came from the operating system. If not, nothing that is released
    /// with this source is private.
    pub fn is_secure(&self) -> bool {
        self.key.is_secure()
    }

    /// Returns the key, to store it.
    ///
    /// # Privacy
    ///
    /// The privacy of the whole run depends on it; see [`Key`]. After this call a step could be
    /// repeated elsewhere, so all noise is [bound](NoiseStep::bound_to) to its sums.
    pub fn export_key(&self) -> Key {
        self.exported.store(true, Ordering::SeqCst);
        self.key.clone()
    }

    /// Encrypts or decrypts secret state of the run.
    ///
    /// # Privacy
    ///
    /// Two contents with the same `nonce` reveal their difference: draw a new one for each content.
    pub(crate) fn crypt(&self, nonce: u64, bytes: &mut [u8]) {
        let keystream = Stream::new(&self.key, Domain::NoiseMemory, nonce, 0).into_keystream();
        let mut group = Group::new();
        for (index, bytes) in (0..).zip(bytes.chunks_mut(8 * GROUP_WORDS)) {
            keystream.group(index, &mut group);
            for (position, bytes) in bytes.chunks_mut(8).enumerate() {
                let word = group.word(position % 8, position / 8).to_le_bytes();
                bytes.iter_mut().zip(word).for_each(|(byte, mask)| *byte ^= mask);
            }
        }
    }

    /// Returns the key of an earlier step, from its decrypted bytes.
    pub(crate) fn key_of_state(&self, bytes: &[u8; 32]) -> Key {
        self.key.with_bytes(bytes)
    }

    /// Erases the key in memory. No step can begin afterwards.
    pub(crate) fn forget(&mut self) {
        self.key.erase();
        self.next = [None; Purpose::NUMBER];
    }

    /// Returns whether the key was erased.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.key.is_erased()
    }

    /// Returns the key, for draws of the same run; callers must keep it secret.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the key of a step that may still begin; `None` if its noise will depend on its sums.
    pub(crate) fn key_of_free_step(&self, purpose: Purpose, step: u64) -> Option<Key> {
        let may_begin = self.next[purpose.index()].is_some_and(|next| step >= next);
        let free = may_begin && !self.exported.load(Ordering::SeqCst);
        free.then(|| self.key.derive(purpose.tag(), step))
    }

    /// Returns the smallest step that may still begin for `purpose`; `None` after step 2^64 - 1.
    pub fn next_step(&self, purpose: Purpose) -> Option<u64> {
        self.next[purpose.index()]
    }

    /// Starts step `step` of `purpose`. Steps only increase, so none is drawn twice.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if that step, or a later one, was started before.
    pub fn begin_step(&mut self, purpose: Purpose, step: u64) -> Result<NoiseStep, DpError> {
        let next = self.next[purpose.index()];
        if next.is_none_or(|next| step < next) {
            let next = next.map_or("none is left".into(), |next| format!("next is {next}"));
            return Err(DpError::state(format!(
                "step {step} of {purpose:?} was already drawn from this key ({next}), and the same \
                 noise twice is no noise; continue with a later step, or with a new key"
            )));
        }
        self.next[purpose.index()] = step.checked_add(1);
        let repetition = match self.exported.load(Ordering::SeqCst) {
            true => Repetition::Possible,
            false => Repetition::Impossible,
        };
        Ok(NoiseStep::new(self.key.derive(purpose.tag(), step), purpose, step, repetition))
    }
}

opaque_debug!(NoiseSource, |this| secure: this.is_secure(), next: this.next);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use super::*;
    const PURPOSES: [Purpose; Purpose::NUMBER] =
        [Purpose::Gradient, Purpose::Count, Purpose::Statistic];

    fn source() -> NoiseSource {
        NoiseSource::insecure(InsecureSeed(1))
    }

    fn word(stream: Stream) -> u64 {
        stream.into_words().next().unwrap()
    }

    /// The first word of the first parameter of a step that begins now.
    fn word_of_step(source: &mut NoiseSource, purpose: Purpose, step: u64) -> u64 {
        word(source.begin_step(purpose, step).unwrap().stream(0).unwrap())
    }

    #[test]
    fn every_purpose_step_and_parameter_has_its_own_words() {
        let mut source = source();
        let mut seen = HashSet::new();
        let mut count = 0;
        for step in (0..40).chain([u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX]) {
            let mut add = |stream: Stream| {
                let mut words = stream.into_words();
                count += 1;
                assert!(seen.insert([words.next(), words.next()]));
            };
            for purpose in PURPOSES {
                let mut step = source.begin_step(purpose, step).unwrap();
                for parameter in (0..20).chain([1 << 16, u32::MAX]) {
                    add(step.stream(parameter).unwrap());
                }
            }
            for domain in [Domain::Sampling, Domain::Shuffling] {
                for position in (0..20).chain([1 << 16, u64::from(u32::MAX)]) {
                    add(Stream::new(source.key(), domain, step, position));
                }
            }
        }
        assert_eq!(count, 44 * 5 * 22);
    }

    #[test]
    fn words_depend_on_the_key_and_not_on_the_order_of_the_calls() {
        let words = |seed: u64, order: [u32; 3]| {
            let mut source = NoiseSource::insecure(InsecureSeed(seed));
            let mut step = source.begin_step(Purpose::Gradient, 3).unwrap();
            let mut words = [0; 3];
            for parameter in order {
                words[parameter as usize] = word(step.stream(parameter).unwrap());
            }
            words
        };
        assert_eq!(words(5, [0, 1, 2]), words(5, [2, 0, 1]));
        assert_ne!(words(5, [0, 1, 2]), words(6, [0, 1, 2]));
    }

    #[test]
    fn the_key_of_a_step_is_the_documented_chacha12_block() {
        let mut source = source();
        let expected = source.key().derive(Purpose::Count.tag(), 77);
        let stream = source.begin_step(Purpose::Count, 77).unwrap().stream(5).unwrap();
        let (key, parameter) = stream.identity();
        assert_eq!((key.bytes(), parameter), (expected.bytes(), 5));
    }

    #[test]
    fn a_step_begins_once_and_in_increasing_order_for_each_purpose() {
        let mut source = source();
        source.begin_step(Purpose::Gradient, 5).unwrap();
        for step in [5, 4, 0] {
            let error = source.begin_step(Purpose::Gradient, step).unwrap_err();
            assert!(matches!(error, DpError::InvalidState { .. }));
            assert!(error.to_string().contains(&format!("step {step} of Gradient")));
            assert!(error.to_string().contains("next is 6"));
        }
        source.begin_step(Purpose::Statistic, 5).unwrap();
        source.begin_step(Purpose::Gradient, 6).unwrap();
        assert_eq!(source.next_step(Purpose::Gradient), Some(7));
        assert_eq!(source.next_step(Purpose::Count), Some(0));
    }

    #[test]
    fn no_step_follows_the_last_one() {
        let mut source = source();
        source.begin_step(Purpose::Gradient, u64::MAX).unwrap();
        let error = source.begin_step(Purpose::Gradient, u64::MAX).unwrap_err();
        assert!(error.to_string().contains("none is left"));
        assert_eq!(source.next_step(Purpose::Gradient), None);
    }

    #[test]
    fn a_resumed_source_continues_the_words_and_refuses_the_steps_before() {
        let mut first = source();
        let key = Key::from_bytes(&first.export_key().to_bytes()[..]).unwrap();
        let mut second = NoiseSource::resume(key, 10);
        for purpose in PURPOSES {
            assert!(second.begin_step(purpose, 9).is_err());
        }
        let word = |source: &mut NoiseSource| word_of_step(source, Purpose::Gradient, 10);
        assert_eq!(word(&mut first), word(&mut second));
        assert!(!second.is_secure());
    }

    #[test]
    fn a_source_of_the_operating_system_is_secure_and_never_the_same() {
        let mut words = HashSet::new();
        for _ in 0..16 {
            let mut source = NoiseSource::from_os().unwrap();
            assert!(source.is_secure());
            let stream = source.begin_step(Purpose::Gradient, 0).unwrap().stream(0).unwrap();
            assert!(stream.is_secure());
            assert!(words.insert(word(stream)));
        }
    }

    #[test]
    fn noise_is_bound_once_the_key_was_exported() {
        let word = |step: NoiseStep| {
            let mut step = step.bound_to([&[1.0][..]]);
            word(step.stream(0).unwrap())
        };
        let mut source = NoiseSource::from_os().unwrap();
        let free = source.begin_step(Purpose::Gradient, 0).unwrap().bound_to([&[1.0][..]]);
        assert_eq!(free.content_mark(), None);
        assert!(source.key_of_free_step(Purpose::Gradient, 1).is_some());
        let key = source.export_key();
        assert!(source.key_of_free_step(Purpose::Gradient, 1).is_none());
        let bound = word(source.begin_step(Purpose::Gradient, 1).unwrap());
        let mut elsewhere = NoiseSource::resume(key.clone(), 0);
        assert_eq!(word(elsewhere.begin_step(Purpose::Gradient, 1).unwrap()), bound);
        // A step that was not bound adds different noise if it is repeated.
        let mut again = NoiseSource::resume(key, 0);
        let again = again.begin_step(Purpose::Gradient, 0).unwrap();
        assert!(again.bound_to([&[1.0][..]]).content_mark().is_some());
    }

    #[test]
    fn encrypted_state_returns_with_its_nonce_and_key_only() {
        let source = source();
        let state: Vec<u8> = (0..3000).map(|i| (i % 251) as u8).collect();
        let crypt = |source: &NoiseSource, nonce, mut bytes: Vec<u8>| {
            source.crypt(nonce, &mut bytes);
            bytes
        };
        let encrypted = crypt(&source, 7, state.clone());
        assert_eq!(crypt(&source, 7, encrypted.clone()), state);
        assert_ne!(crypt(&source, 8, encrypted.clone()), state);
        assert_ne!(crypt(&NoiseSource::insecure(InsecureSeed(2)), 7, encrypted.clone()), state);
        // As for random bytes: of 3000, about 12 are unchanged.
        let same = encrypted.iter().zip(&state).filter(|(a, b)| a == b).count();
        assert!(same < 40, "{same}");
    }

    #[test]
    fn encrypted_state_is_masked_with_words_that_are_used_once() {
        let source = source();
        let mut mask = vec![0u8; 3000];
        source.crypt(7, &mut mask);
        let words = Stream::new(source.key(), Domain::NoiseMemory, 7, 0).into_words();
        let expected: Vec<u8> = words.take(375).flat_map(u64::to_le_bytes).collect();
        assert_eq!(mask, expected);
    }

    #[test]
    fn debug_output_shows_no_key() {
        let text = format!("{:?}", source());
        assert!(text.starts_with("NoiseSource { secure: false") && !text.contains("key"), "{text}");
    }
}
