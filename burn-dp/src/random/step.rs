//! One step of noise.

use std::collections::HashSet;

use zeroize::Zeroizing;

use super::content::{ContentKey, ContentMark};
use super::key::Key;
use super::purpose::Purpose;
use super::stream::Stream;
use crate::DpError;

/// Whether somebody else who has the key can repeat a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    Possible,
    Impossible,
}

/// One step of one purpose, which returns the stream of each parameter once.
pub struct NoiseStep {
    key: Key,
    purpose: Purpose,
    step: u64,
    repetition: Repetition,
    /// A mark of the content that the noise is bound to.
    content: Option<[u8; 16]>,
    taken: HashSet<u32>,
}

impl NoiseStep {
    pub(super) fn new(key: Key, purpose: Purpose, step: u64, repetition: Repetition) -> Self {
        Self { key, purpose, step, repetition, content: None, taken: HashSet::new() }
    }

    /// Returns the purpose of this step.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns the number of the step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the same step with a key that depends on `content`, the sums that the noise will be
    /// added to.
    ///
    /// # Privacy
    ///
    /// A step that is repeated after a crash has the same noise if the sums are the same, and then
    /// releases nothing new. If anything differs (a learning rate, the data, the order of a sum)
    /// the noise is independent, and the difference of the two releases is protected by the noise
    /// of both. The key is a pseudo-random function (a universal hash, then keyed BLAKE3) of the
    /// content under the secret key of the step, so for any given sums the noise is
    /// indistinguishable from fresh noise. Two contents have the same key with a probability below
    /// 2^-124.
    ///
    /// A step is returned unchanged if the key was never outside its source: the source starts each
    /// step once, so there is no second release, and the noise can be drawn before the sums are
    /// computed. The key is outside once it was [exported](super::NoiseSource::export_key), as for
    /// a checkpoint, and in a source that was [resumed](super::NoiseSource::resume).
    ///
    /// The noise of an insecure step does not change either, because it hides nothing and tests
    /// compare it.
    pub fn bound_to<'a>(self, content: impl IntoIterator<Item = &'a [f32]>) -> Self {
        let Some(key) = self.content_key() else { return self };
        let content = (0..).zip(content).map(|(part, values)| key.mark(part, values)).collect();
        self.bound_to_marks(content)
    }

    /// Returns the keys for hashing the content that the step will be [bound to](Self::bound_to),
    /// or `None` if it needs no content.
    pub(crate) fn content_key(&self) -> Option<ContentKey> {
        (self.repetition == Repetition::Possible).then(|| ContentKey::new(self.key.bytes()))
    }

    /// Returns the step [bound to](Self::bound_to) content with these hashes, in this order, under
    /// its [`content_key`](Self::content_key).
    pub(crate) fn bound_to_marks(self, content: Vec<ContentMark>) -> Self {
        if self.repetition == Repetition::Impossible {
            return self;
        }
        let mut hash = blake3::Hasher::new_keyed(self.key.bytes());
        for mark in content {
            hash.update(&(mark.length as u64).to_le_bytes());
            mark.hash.iter().for_each(|word| {
                hash.update(&word.to_le_bytes());
            });
        }
        let bound = Zeroizing::new(*hash.finalize().as_bytes());
        hash.reset();
        let mark = blake3::keyed_hash(&bound, b"mark of the content of a burn-dp release");
        let mut content = [0; 16];
        content.copy_from_slice(&mark.as_bytes()[..16]);
        let key = if self.key.is_secure() { self.key.with_bytes(&bound) } else { self.key };
        Self { key, content: Some(content), ..self }
    }

    /// Returns a mark of the content that the step is [bound to](Self::bound_to), the same for the
    /// same sums in the same step; `None` for a step that nobody can repeat.
    ///
    /// # Privacy
    ///
    /// A pseudo-random function of the content under the secret key of the step. Without the key it
    /// reveals only whether two releases of one step are the same.
    pub(crate) fn content_mark(&self) -> Option<[u8; 16]> {
        self.content
    }

    /// Returns the stream of the parameter at position `parameter`, in any order.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the stream of that parameter was taken before.
    pub fn stream(&mut self, parameter: u32) -> Result<Stream, DpError> {
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
        Ok(Stream::of_step(self.key.clone(), parameter.into()))
    }
}

opaque_debug!(NoiseStep, |this|
    purpose: this.purpose,
    step: this.step,
    secure: this.key.is_secure()
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::random::InsecureSeed;

    fn step(key: &Key, repetition: Repetition) -> NoiseStep {
        NoiseStep::new(key.derive(1, 3), Purpose::Gradient, 3, repetition)
    }

    fn words(mut step: NoiseStep) -> Vec<u64> {
        step.stream(0).unwrap().into_words().take(4).collect()
    }

    #[test]
    fn a_parameter_has_one_stream_in_a_step() {
        let mut step = step(&InsecureSeed(1).into(), Repetition::Impossible);
        step.stream(3).unwrap();
        let error = step.stream(3).unwrap_err();
        assert!(matches!(error, DpError::InvalidArgument { name: "parameter", .. }));
        step.stream(2).unwrap();
        assert_eq!((step.step(), step.purpose()), (3, Purpose::Gradient));
    }

    #[test]
    fn bound_noise_repeats_for_the_same_sums_only() {
        let key = Key::from_os().unwrap();
        let noise = |sums: &[&[f32]]| {
            words(step(&key, Repetition::Possible).bound_to(sums.iter().copied()))
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
    fn noise_of_an_insecure_step_does_not_change_with_its_sums() {
        let key = Key::from(InsecureSeed(1));
        let free = words(step(&key, Repetition::Impossible));
        let bound = step(&key, Repetition::Possible).bound_to([&[1.0][..]]);
        assert!(bound.content_mark().is_some());
        assert_eq!(words(bound), free);
    }

    #[test]
    fn debug_output_shows_no_key() {
        let step = step(&InsecureSeed(1).into(), Repetition::Impossible);
        let expected = "NoiseStep { purpose: Gradient, step: 3, secure: false, .. }";
        assert_eq!(format!("{step:?}"), expected);
    }
}
