//! The words of one use of randomness.

use super::key::Key;
use super::keystream::Keystream;
use super::purpose::Domain;
use super::words::Words;

/// The random words of one parameter or unit in one step. Every use consumes the stream, so that
/// no word is used twice.
///
/// [`NoiseStep::stream`](super::NoiseStep::stream) returns the streams of noise, each once.
pub struct Stream {
    key: Key,
    position: u64,
}

impl Stream {
    /// Returns a stream that is a function of only the arguments and can be created again.
    ///
    /// # Privacy
    ///
    /// For draws, which release nothing new if they are repeated. There is no domain for noise.
    pub(crate) fn new(key: &Key, domain: Domain, step: u64, position: u64) -> Self {
        Self::of_step(key.derive(domain.tag(), step), position)
    }

    /// Returns stream `position` under the key of a step.
    pub(super) fn of_step(key: Key, position: u64) -> Self {
        Self { key, position }
    }

    /// Returns whether the words are secret; see [`Key::is_secure`].
    pub fn is_secure(&self) -> bool {
        self.key.is_secure()
    }

    /// Returns the key of the step and the position.
    pub(crate) fn identity(&self) -> (&Key, u64) {
        (&self.key, self.position)
    }

    pub(crate) fn into_keystream(self) -> Keystream {
        Keystream::new(self.key.bytes(), self.position)
    }

    pub(crate) fn into_words(self) -> Words {
        Words::new(self.into_keystream())
    }
}

opaque_debug!(Stream, |this| position: this.position, secure: this.is_secure());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::InsecureSeed;

    #[test]
    fn domains_steps_and_positions_share_no_word() {
        let key = Key::from(InsecureSeed(1));
        let mut all = Vec::new();
        for domain in [Domain::Sampling, Domain::Shuffling, Domain::MiniSets, Domain::Independence]
        {
            for step in [0, 1, 1 << 32, u64::MAX] {
                for position in [0, 1, 1 << 32, u64::MAX] {
                    all.extend(Stream::new(&key, domain, step, position).into_words().take(64));
                }
            }
        }
        // Among 4096 random words a collision has probability below 1e-12.
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_stream_can_be_made_again_and_shows_no_key() {
        let key = Key::from(InsecureSeed(1));
        let stream = || Stream::new(&key, Domain::Sampling, 3, 9);
        assert!(stream().into_words().take(300).eq(stream().into_words().take(300)));
        assert_eq!(format!("{:?}", stream()), "Stream { position: 9, secure: false, .. }");
    }
}
