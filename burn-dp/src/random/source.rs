//! Streams of random words, one for each purpose, step and parameter.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use chacha20::ChaCha20Rng;
use rand_core::{CryptoRng, Rng, SeedableRng};
use zeroize::Zeroizing;

use crate::DpError;
use crate::noise::NoiseAhead;
use crate::random::keystream::Keystream;
use crate::random::share::share;
use crate::random::{InsecureSeed, NoiseKey};

/// Values of one digest of the content that noise is bound to.
const HASHED_VALUES: usize = 1 << 14;

/// Marks the derivation of keys for other generators; no purpose has this bit.
const DERIVED_KEYS: u64 = 1 << 63;

/// What randomness is used for. Different purposes never share a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Noise of the clipped sums.
    Gradient,
    /// Noise of the counts that adapt a clipping threshold.
    Count,
    /// Noise of any other released statistic.
    Statistic,
    /// Who takes part in a step.
    Sampling,
    /// The order of units where it has to be secret.
    Shuffling,
}

impl Purpose {
    const NUMBER: usize = 5;

    /// The number that enters the key derivation. Never changed and never used again for another
    /// purpose: stored keys would then repeat words.
    fn tag(self) -> u64 {
        match self {
            Self::Gradient => 1,
            Self::Count => 2,
            Self::Statistic => 3,
            Self::Sampling => 4,
            Self::Shuffling => 5,
        }
    }

    fn index(self) -> usize {
        self.tag() as usize - 1
    }
}

/// The source of all randomness of one private run.
///
/// It holds a 256-bit key of the operating system and cannot be cloned. Each step of each purpose
/// begins once, in increasing order.
///
/// # Privacy
///
/// Why no two streams share a word. The generator is ChaCha20, a function of a 256-bit key, a
/// 64-bit stream number and a 64-bit block number that is computationally a random function. The
/// key of (purpose, step) is the first half of block `step` of stream `purpose` under the run's
/// key, which for different pairs are different inputs, for all 2^64 steps. The words of parameter
/// `p` are stream `p` under that key, block by block; a parameter of 2^40 values takes 2^37 of the
/// 2^64 blocks. So words of different (purpose, step, parameter, position) come from different
/// inputs, unless two of n derived keys are equal, with probability below n²/2^257.
///
/// A run that is continued from an older state after its last release must not use the old key for
/// the steps it repeats: two different sums with the same noise give away their difference. Take a
/// new key ([`from_os`](Self::from_os)), which needs nothing stored, or [`resume`](Self::resume)
/// after the last step that may have been released.
///
/// # References
///
/// - D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008.
/// - Y. Nir, A. Langley, "ChaCha20 and Poly1305 for IETF Protocols", RFC 8439, 2018, section 2.3.
pub struct NoiseSource {
    key: NoiseKey,
    /// For each purpose the least step that may begin; `None` when all were used.
    next: [Option<u64>; Purpose::NUMBER],
    /// Whether the key was ever outside of this source, so that a step could be made again.
    exported: AtomicBool,
}

impl NoiseSource {
    /// A source with a new key from the operating system.
    ///
    /// # Errors
    ///
    /// [`DpError::Entropy`] when the operating system gives none. There is no substitute.
    pub fn from_os() -> Result<Self, DpError> {
        Ok(Self::new(NoiseKey::from_os()?))
    }

    /// A source whose every word follows from a number, for tests.
    ///
    /// # Privacy
    ///
    /// None; see [`InsecureSeed`].
    pub fn insecure(seed: InsecureSeed) -> Self {
        Self::new(NoiseKey::insecure(seed))
    }

    fn new(key: NoiseKey) -> Self {
        Self { key, next: [Some(0); Purpose::NUMBER], exported: AtomicBool::new(false) }
    }

    /// The source of a stored key, which refuses all steps before `next_step`, for all purposes.
    ///
    /// # Privacy
    ///
    /// `next_step` must be greater than every step that was released with this key, also by runs
    /// that ended without saving.
    pub fn resume(key: NoiseKey, next_step: u64) -> Self {
        let next = [Some(next_step); Purpose::NUMBER];
        Self { key, next, exported: AtomicBool::new(true) }
    }

    /// Whether the key came from the operating system. If not, nothing that is released with this
    /// source is private.
    pub fn is_secure(&self) -> bool {
        self.key.is_secure()
    }

    /// The key, to store it.
    ///
    /// # Privacy
    ///
    /// It takes the privacy of the whole run with it; see [`NoiseKey`]. From here on a step could be
    /// made again elsewhere, so all noise is [bound](NoiseStep::bound_to) to its sums.
    pub fn export_key(&self) -> NoiseKey {
        self.exported.store(true, Ordering::SeqCst);
        self.key.clone()
    }

    /// Begins to draw the noise of a step that may begin, for parameters with so many values; erases
    /// what was drawn for the one before. Nothing if that noise will depend on its sums.
    pub(crate) fn draw_ahead(
        &self,
        purpose: Purpose,
        step: u64,
        lengths: &[usize],
        before: Option<NoiseAhead>,
    ) -> Option<NoiseAhead> {
        let free = !self.exported.load(Ordering::SeqCst)
            && self.next[purpose.index()].is_some_and(|next| step >= next);
        free.then(|| NoiseAhead::begin(self.derive(purpose.tag(), step), lengths, before))
    }

    /// The least step that may still begin for `purpose`; `None` after step 2^64 - 1.
    pub fn next_step(&self, purpose: Purpose) -> Option<u64> {
        self.next[purpose.index()]
    }

    /// Begins step `step` of `purpose`: steps only go forward, so none is drawn twice.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when that step, or a later one, has begun before.
    pub fn begin_step(&mut self, purpose: Purpose, step: u64) -> Result<NoiseStep, DpError> {
        match self.next[purpose.index()] {
            Some(next) if step >= next => {}
            next => {
                let next = next.map_or("none is left".into(), |next| format!("next is {next}"));
                return Err(DpError::state(format!(
                    "step {step} of {purpose:?} was already drawn from this noise key ({next}), \
                     and the same noise twice is no noise; continue with a later step, or with a \
                     new key"
                )));
            }
        }
        self.next[purpose.index()] = step.checked_add(1);
        Ok(NoiseStep {
            key: self.derive(purpose.tag(), step),
            purpose,
            step,
            secure: self.is_secure(),
            repeatable: self.exported.load(Ordering::SeqCst),
            content: None,
            taken: HashSet::new(),
        })
    }

    /// A key for a generator outside of this module, the same for every call with this purpose and
    /// unrelated to all streams of the source.
    ///
    /// # Privacy
    ///
    /// As secret as the source, and insecure when the source is; it does not reveal the source's
    /// key. The words of the two are independent. That the other generator repeats none of its own
    /// words is not checked here.
    pub fn derive_key(&self, purpose: Purpose) -> Zeroizing<[u8; 32]> {
        self.derive(DERIVED_KEYS | purpose.tag(), 0)
    }

    /// The first half of block `block` of stream `stream` under the run's key.
    fn derive(&self, stream: u64, block: u64) -> Zeroizing<[u8; 32]> {
        let mut rng = ChaCha20Rng::from_seed(*self.key.bytes());
        rng.set_stream(stream);
        rng.set_block_pos(block);
        let mut key = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut key[..]);
        key
    }
}

impl fmt::Debug for NoiseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseSource")
            .field("secure", &self.is_secure())
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// One step of one purpose: it hands out each parameter's stream once.
pub struct NoiseStep {
    key: Zeroizing<[u8; 32]>,
    purpose: Purpose,
    step: u64,
    secure: bool,
    /// Whether somebody else may have the key and make the step again.
    repeatable: bool,
    /// Marks what the noise is bound to.
    content: Option<[u8; 16]>,
    taken: HashSet<u32>,
}

impl NoiseStep {
    /// The purpose this step was begun for.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The number of the step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The same step with a key that depends on `content`, the sums that the noise will be added to.
    ///
    /// # Privacy
    ///
    /// A step that is made again after a crash has the same noise if the sums are the same, and then
    /// releases nothing new. If anything differs (a learning rate, the data, the order of a sum) the
    /// noise is independent, and the difference of the two releases hides what a difference should.
    /// The key is a pseudo-random function (keyed BLAKE3) of the content under the secret key of the
    /// step, so for any given sums the noise is as good as fresh.
    ///
    /// A step stays as it is if the key was never outside of its source: the source begins each step
    /// once, so there is no second release to hide a difference from, and the noise can be drawn before
    /// the sums are known. The key is outside as soon as it was [exported](NoiseSource::export_key), as
    /// a checkpoint does, and with a source that was [resumed](NoiseSource::resume).
    ///
    /// The noise of an insecure step stays as it is too: it hides nothing, and tests compare it.
    pub fn bound_to<'a>(self, content: impl IntoIterator<Item = &'a [f32]>) -> Self {
        if !self.repeatable {
            return self;
        }
        // The digests of the parts, which several threads make, then theirs in order.
        let parts: Vec<&[f32]> = content.into_iter().collect();
        let mut digests: Vec<Vec<[u8; 32]>> =
            parts.iter().map(|part| vec![[0; 32]; part.len().div_ceil(HASHED_VALUES)]).collect();
        let tasks = parts
            .iter()
            .zip(&mut digests)
            .flat_map(|(part, digests)| part.chunks(HASHED_VALUES).zip(digests));
        share(tasks.collect(), |(values, digest)| {
            *digest = *blake3::keyed_hash(&self.key, bytemuck::cast_slice(values)).as_bytes();
        });
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        for (part, digests) in parts.iter().zip(&digests) {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(digests.as_flattened());
        }
        // Values have four bytes: no part of the content is the content of another part.
        hash.update(&[1]);
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(hash.finalize().as_bytes());
        hash.reset();
        let mark = blake3::keyed_hash(&key, b"mark of the content of a burn-dp release");
        let mut content = [0; 16];
        content.copy_from_slice(&mark.as_bytes()[..16]);
        let key = if self.secure { key } else { self.key };
        Self { key, content: Some(content), ..self }
    }

    /// A mark of the content that the step is [bound to](Self::bound_to), the same for the same sums in
    /// the same step; none for a step that nobody can make again.
    ///
    /// # Privacy
    ///
    /// A pseudo-random function of the content under the secret key of the step: without the key it
    /// says nothing but whether two releases of one step are the same.
    pub(crate) fn content_mark(&self) -> Option<[u8; 16]> {
        self.content
    }

    /// The stream of the parameter at position `parameter`, in any order.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] when the stream of that parameter was taken before.
    pub fn stream(&mut self, parameter: u32) -> Result<NoiseStream, DpError> {
        if !self.taken.insert(parameter) {
            return Err(DpError::invalid(
                "parameter",
                format!(
                    "must be different for each tensor of a step, got {parameter} twice in step \
                     {} of {:?}; number the tensors by their position in the model",
                    self.step, self.purpose
                ),
            ));
        }
        Ok(NoiseStream { key: self.key.clone(), parameter, secure: self.secure })
    }
}

impl fmt::Debug for NoiseStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseStep")
            .field("purpose", &self.purpose)
            .field("step", &self.step)
            .field("secure", &self.secure)
            .finish_non_exhaustive()
    }
}

/// The words of one parameter in one step. Every use consumes it, so no word is used twice.
pub struct NoiseStream {
    key: Zeroizing<[u8; 32]>,
    parameter: u32,
    secure: bool,
}

impl NoiseStream {
    /// Whether the words are secret; see [`NoiseSource::is_secure`].
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The stream as a generator, for algorithms that take one, such as a shuffle.
    pub fn into_rng(self) -> impl CryptoRng + Send {
        let mut rng = ChaCha20Rng::from_seed(*self.key);
        rng.set_stream(u64::from(self.parameter));
        rng
    }

    /// The parameter, and the key of the step.
    pub(crate) fn identity(&self) -> (u32, &[u8; 32]) {
        (self.parameter, &self.key)
    }

    pub(crate) fn into_keystream(self) -> Keystream {
        Keystream::new(&self.key, u64::from(self.parameter))
    }
}

impl fmt::Debug for NoiseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseStream")
            .field("parameter", &self.parameter)
            .field("secure", &self.secure)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PURPOSES: [Purpose; Purpose::NUMBER] = [
        Purpose::Gradient,
        Purpose::Count,
        Purpose::Statistic,
        Purpose::Sampling,
        Purpose::Shuffling,
    ];

    fn source() -> NoiseSource {
        NoiseSource::insecure(InsecureSeed(1))
    }

    fn first_bytes(source: &mut NoiseSource, purpose: Purpose, step: u64, param: u32) -> [u8; 16] {
        // A fresh view of the key, so that one test can look at many steps in any order.
        let mut view = NoiseSource::resume(source.export_key(), 0);
        let mut bytes = [0; 16];
        let stream = view.begin_step(purpose, step).unwrap().stream(param).unwrap();
        stream.into_rng().fill_bytes(&mut bytes);
        bytes
    }

    #[test]
    fn every_purpose_step_and_parameter_has_its_own_words() {
        let mut source = source();
        let mut seen = HashSet::new();
        let steps = (0..40).chain([u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX]);
        for step in steps {
            for purpose in PURPOSES {
                for parameter in (0..20).chain([1 << 16, u32::MAX]) {
                    assert!(seen.insert(first_bytes(&mut source, purpose, step, parameter)));
                }
            }
        }
        assert_eq!(seen.len(), 44 * 5 * 22);
    }

    #[test]
    fn words_depend_on_the_key_and_not_on_the_order_of_the_calls() {
        let words = |seed: u64, order: [u32; 3]| {
            let mut source = NoiseSource::insecure(InsecureSeed(seed));
            let mut step = source.begin_step(Purpose::Gradient, 3).unwrap();
            let mut words = [0; 3];
            for parameter in order {
                let mut rng = step.stream(parameter).unwrap().into_rng();
                words[parameter as usize] = rng.next_u64();
            }
            words
        };
        assert_eq!(words(5, [0, 1, 2]), words(5, [2, 0, 1]));
        assert_ne!(words(5, [0, 1, 2]), words(6, [0, 1, 2]));
    }

    #[test]
    fn the_key_of_a_step_is_the_chacha20_block_it_is_documented_to_be() {
        let source = source();
        let mut rng = ChaCha20Rng::from_seed(*source.export_key().bytes());
        rng.set_stream(Purpose::Count.tag());
        rng.set_word_pos(16 * 77);
        let mut expected = [0; 32];
        rng.fill_bytes(&mut expected);
        let mut view = source;
        let step = view.begin_step(Purpose::Count, 77).unwrap();
        assert_eq!(*step.key, expected);
    }

    #[test]
    fn a_step_cannot_begin_twice_nor_backwards_and_purposes_count_apart() {
        let mut source = source();
        source.begin_step(Purpose::Gradient, 5).unwrap();
        for step in [5, 4, 0] {
            let error = source.begin_step(Purpose::Gradient, step).unwrap_err();
            assert!(matches!(error, DpError::InvalidState { .. }));
            assert!(error.to_string().contains(&format!("step {step} of Gradient")));
            assert!(error.to_string().contains("next is 6"));
        }
        source.begin_step(Purpose::Sampling, 5).unwrap();
        source.begin_step(Purpose::Gradient, 6).unwrap();
        assert_eq!(source.next_step(Purpose::Gradient), Some(7));
        assert_eq!(source.next_step(Purpose::Count), Some(0));
    }

    #[test]
    fn after_the_last_step_there_is_none() {
        let mut source = source();
        source.begin_step(Purpose::Gradient, u64::MAX).unwrap();
        let error = source.begin_step(Purpose::Gradient, u64::MAX).unwrap_err();
        assert!(error.to_string().contains("none is left"));
        assert_eq!(source.next_step(Purpose::Gradient), None);
    }

    #[test]
    fn a_resumed_source_continues_the_words_and_refuses_the_steps_before() {
        let mut first = source();
        let key = NoiseKey::from_bytes(&first.export_key().to_bytes()[..]).unwrap();
        let mut second = NoiseSource::resume(key, 10);
        for purpose in PURPOSES {
            assert!(second.begin_step(purpose, 9).is_err());
        }
        let word = |source: &mut NoiseSource| {
            let mut step = source.begin_step(Purpose::Gradient, 10).unwrap();
            step.stream(0).unwrap().into_rng().next_u64()
        };
        assert_eq!(word(&mut first), word(&mut second));
        assert!(!second.is_secure());
    }

    #[test]
    fn a_parameter_has_one_stream_a_step() {
        let mut source = source();
        let mut step = source.begin_step(Purpose::Gradient, 0).unwrap();
        step.stream(3).unwrap();
        let error = step.stream(3).unwrap_err();
        assert!(matches!(error, DpError::InvalidArgument { name: "parameter", .. }));
        step.stream(2).unwrap();
        assert_eq!((step.step(), step.purpose()), (0, Purpose::Gradient));
    }

    #[test]
    fn derived_keys_differ_by_purpose_and_from_all_step_keys() {
        let mut source = source();
        let mut seen = HashSet::new();
        for purpose in PURPOSES {
            assert!(seen.insert(*source.derive_key(purpose)));
            assert_eq!(source.derive_key(purpose), source.derive_key(purpose));
            for step in 0..10 {
                assert!(seen.insert(*source.begin_step(purpose, step).unwrap().key));
            }
        }
    }

    #[test]
    fn a_source_of_the_operating_system_is_secure_and_never_the_same() {
        let mut words = HashSet::new();
        for _ in 0..16 {
            let mut source = NoiseSource::from_os().unwrap();
            assert!(source.is_secure());
            let stream = source.begin_step(Purpose::Gradient, 0).unwrap().stream(0).unwrap();
            assert!(stream.is_secure());
            assert!(words.insert(stream.into_rng().next_u64()));
        }
    }

    #[test]
    fn debug_output_shows_no_key() {
        let mut source = source();
        let text = format!("{source:?}");
        assert!(text.starts_with("NoiseSource { secure: false") && !text.contains("key"), "{text}");
        let mut step = source.begin_step(Purpose::Count, 4).unwrap();
        assert_eq!(format!("{step:?}"), "NoiseStep { purpose: Count, step: 4, secure: false, .. }");
        let stream = step.stream(9).unwrap();
        assert_eq!(format!("{stream:?}"), "NoiseStream { parameter: 9, secure: false, .. }");
    }

    #[test]
    fn bound_noise_repeats_for_the_same_sums_only() {
        let key = NoiseSource::from_os().unwrap().export_key();
        let noise = |sums: &[&[f32]]| {
            let mut source = NoiseSource::resume(key.clone(), 0);
            let step = source.begin_step(Purpose::Gradient, 3).unwrap();
            let mut step = step.bound_to(sums.iter().copied());
            let mut words = [0; 4];
            step.stream(0).unwrap().words(&mut words);
            words
        };
        let once = noise(&[&[1.0, 2.0], &[3.0]]);
        assert_eq!(once, noise(&[&[1.0, 2.0], &[3.0]]));
        for other in [
            [&[1.0, 2.0][..], &[3.0_f32.next_up()]],
            [&[1.0][..], &[2.0, 3.0]],
            [&[1.0, 2.0][..], &[]],
        ] {
            assert_ne!(once, noise(&other));
        }
    }

    #[test]
    fn noise_is_bound_from_the_moment_on_in_which_the_key_may_be_elsewhere() {
        let word = |step: NoiseStep| {
            let mut step = step.bound_to([&[1.0][..]]);
            step.stream(0).unwrap().into_rng().next_u64()
        };
        let mut source = NoiseSource::from_os().unwrap();
        let free = source.begin_step(Purpose::Gradient, 0).unwrap().bound_to([&[1.0][..]]);
        assert_eq!(free.content_mark(), None);
        let key = source.export_key();
        let step = source.begin_step(Purpose::Gradient, 1).unwrap();
        let bound = word(step);
        let mut elsewhere = NoiseSource::resume(key.clone(), 0);
        assert_eq!(word(elsewhere.begin_step(Purpose::Gradient, 1).unwrap()), bound);
        // What a step that was not bound has added is not what it would add if it were made again.
        let mut again = NoiseSource::resume(key, 0);
        let again = again.begin_step(Purpose::Gradient, 0).unwrap();
        assert!(again.bound_to([&[1.0][..]]).content_mark().is_some());
    }
}
