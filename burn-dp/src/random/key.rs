//! The secret that all randomness of a run is derived from.

use zeroize::{Zeroize, Zeroizing};

use super::keystream::{GROUP_BLOCKS, Group, Keystream};
use super::purpose::Domain;
use crate::DpError;

/// Version of the byte format of [`Key`].
const FORMAT: u8 = 1;

/// Fills the key of an insecure seed. The operating system returns such a key with probability
/// 2^-192.
const INSECURE_LABEL: &[u8; 24] = b"insecure seed of burn-dp";

/// A seed that makes all randomness known to everybody who has the seed.
///
/// # Privacy
///
/// None: known noise can be subtracted, and known draws give no amplification by sampling. For
/// tests and for experiments on public data only. For everything that is derived from it,
/// `is_secure` returns `false`, for example [`Key::is_secure`], and releases that use it must not
/// be called private.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InsecureSeed(
    /// The seed.
    pub u64,
);

/// The key of a run, which determines all of its randomness.
///
/// With a stored key, the run continues bit for bit. Continuing with a new key from the operating
/// system is also private, and safer; store the key only where the continuation has to be
/// identical.
///
/// # Privacy
///
/// As secret as the training data: whoever has the key can subtract the noise from every release
/// and compute the units of every step. Keep it separate from the model and the ledger, readable by
/// nobody else, and delete it when the run is over
/// ([`DpOptimizer::forget_key`](crate::optim::DpOptimizer::forget_key)). The memory is erased on
/// drop, and `Debug` does not print the key.
#[derive(Clone)]
pub struct Key {
    bytes: Zeroizing<[u8; 32]>,
    secure: bool,
}

impl Key {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 34;

    /// Returns a new key from the operating system or, in a browser, from `crypto.getRandomValues`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Entropy`] if the operating system provides no entropy. There is no
    /// substitute.
    pub fn from_os() -> Result<Self, DpError> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut bytes[..]).map_err(|error| DpError::Entropy(error.to_string()))?;
        if *bytes == [0; 32] {
            return Err(DpError::Entropy("256 bits that are all zero".into()));
        }
        Ok(Self { bytes, secure: true })
    }

    /// Returns whether the key came from the operating system and not from an [`InsecureSeed`].
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Returns the key as bytes: a format version, whether it is secure, 256 bits.
    ///
    /// # Privacy
    ///
    /// The bytes are the secret itself; see [`Key`].
    pub fn to_bytes(&self) -> Zeroizing<[u8; Self::LENGTH]> {
        let mut bytes = Zeroizing::new([0; Self::LENGTH]);
        bytes[0] = FORMAT;
        bytes[1] = u8::from(self.secure);
        bytes[2..].copy_from_slice(&self.bytes[..]);
        bytes
    }

    /// Returns the key that [`to_bytes`](Self::to_bytes) stored.
    ///
    /// # Privacy
    ///
    /// The randomness is as predictable as the bytes are: pass only bytes that were stored before.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the length, the format version or the security mark is
    /// not valid, or if the bytes cannot be a key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DpError> {
        let damaged = |reason: String| {
            DpError::saved_state(format!("the key {reason}; start with a new key instead"))
        };
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().map_err(|_| {
            damaged(format!("has {} bytes instead of {}", bytes.len(), Self::LENGTH))
        })?;
        if bytes[0] != FORMAT {
            return Err(damaged(format!("has format {}, expected {FORMAT}", bytes[0])));
        }
        if bytes[1] > 1 {
            return Err(damaged(format!("has the security mark {}, not 0 or 1", bytes[1])));
        }
        let mut key = Self { bytes: Zeroizing::new([0; 32]), secure: bytes[1] == 1 };
        key.bytes.copy_from_slice(&bytes[2..]);
        if *key.bytes == [0; 32] {
            return Err(damaged("is all zero".into()));
        }
        if key.secure == (key.bytes[8..] == INSECURE_LABEL[..]) {
            return Err(damaged("and its security mark contradict each other".into()));
        }
        Ok(key)
    }

    /// Overwrites the key with zeros, which are not a valid key.
    pub(super) fn erase(&mut self) {
        self.bytes.zeroize();
    }

    pub(super) fn is_erased(&self) -> bool {
        *self.bytes == [0; 32]
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Returns the key that consists of the first half of block `index` of stream `tag`. It is as
    /// secure as this one.
    pub(super) fn derive(&self, tag: u64, index: u64) -> Self {
        let mut group = Group::new();
        Keystream::new(&self.bytes, tag).group(index / GROUP_BLOCKS as u64, &mut group);
        let block = (index % GROUP_BLOCKS as u64) as usize;
        let mut bytes = Zeroizing::new([0; 32]);
        for (word, bytes) in bytes.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&group.word(word, block).to_le_bytes());
        }
        Self { bytes, secure: self.secure }
    }

    /// Returns a key of the same security with different bytes.
    pub(super) fn with_bytes(&self, bytes: &[u8; 32]) -> Self {
        Self { bytes: Zeroizing::new(*bytes), secure: self.secure }
    }

    /// Returns a mark that identifies the key and does not reveal it.
    pub(crate) fn fingerprint(&self) -> u64 {
        let derived = self.derive(Domain::Fingerprint.tag(), 0);
        u64::from_le_bytes(std::array::from_fn(|i| derived.bytes[i]))
    }

    /// Returns a mark of a digest, which reveals nothing about it without the key.
    pub(crate) fn mark_of(&self, digest: &[u8; 32]) -> String {
        let derived = self.derive(Domain::Records.tag(), 0);
        blake3::keyed_hash(&derived.bytes, digest).to_hex().to_string()
    }
}

impl From<InsecureSeed> for Key {
    fn from(seed: InsecureSeed) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        bytes[..8].copy_from_slice(&seed.0.to_le_bytes());
        bytes[8..].copy_from_slice(INSECURE_LABEL);
        Self { bytes, secure: false }
    }
}

opaque_debug!(Key, |this| secure: this.secure);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use chacha20::ChaCha12Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::random::Purpose;

    #[test]
    fn keys_of_the_operating_system_differ_and_have_no_constant_bit() {
        let (a, b) = (Key::from_os().unwrap(), Key::from_os().unwrap());
        assert_ne!(a.bytes, b.bytes);
        // A bit that is constant in 64 keys of 256 bits has probability 256 · 2^-63 < 1e-16.
        let (mut ones, mut zeros) = ([0u8; 32], [0u8; 32]);
        for _ in 0..64 {
            let key = Key::from_os().unwrap();
            for i in 0..32 {
                ones[i] |= key.bytes[i];
                zeros[i] |= !key.bytes[i];
            }
        }
        assert_eq!((ones, zeros), ([0xff; 32], [0xff; 32]));
    }

    #[test]
    fn a_stored_key_keeps_its_bytes_and_its_security() {
        for key in [Key::from_os().unwrap(), Key::from(InsecureSeed(7))] {
            let read = Key::from_bytes(&key.to_bytes()[..]).unwrap();
            assert_eq!(read.bytes, key.bytes);
            assert_eq!(read.is_secure(), key.is_secure());
        }
    }

    #[test]
    fn an_insecure_key_cannot_be_marked_secure() {
        let mut bytes = Key::from(InsecureSeed(7)).to_bytes();
        bytes[1] = 1;
        assert!(matches!(Key::from_bytes(&bytes[..]), Err(DpError::SavedState { .. })));
    }

    #[test]
    fn damaged_keys_are_refused_with_the_reason() {
        let good = Key::from_os().unwrap().to_bytes();
        let changed = |at: usize, value: u8| {
            let mut bytes = *good;
            bytes[at] = value;
            Key::from_bytes(&bytes).unwrap_err().to_string()
        };
        assert!(changed(0, 9).contains("format 9"));
        assert!(changed(1, 2).contains("mark 2"));
        assert!(Key::from_bytes(&good[..33]).unwrap_err().to_string().contains("33 bytes"));
        let mut zero = [0; Key::LENGTH];
        (zero[0], zero[1]) = (FORMAT, 1);
        assert!(Key::from_bytes(&zero).unwrap_err().to_string().contains("all zero"));
    }

    #[test]
    fn a_derived_key_is_half_a_block_of_the_independent_implementation() {
        let key = Key::from(InsecureSeed(5));
        for (tag, index) in [(1, 0), (2, 17), (8, 1 << 40), (1, u64::MAX)] {
            let mut rng = ChaCha12Rng::from_seed(*key.bytes);
            rng.set_stream(tag);
            rng.set_block_pos(index);
            let mut expected = [0; 32];
            rng.fill_bytes(&mut expected);
            assert_eq!(*key.derive(tag, index).bytes, expected, "{tag} {index}");
        }
    }

    #[test]
    fn derived_keys_differ_for_every_use_and_step() {
        let key = Key::from(InsecureSeed(1));
        let purposes = [Purpose::Gradient, Purpose::Count, Purpose::Statistic].map(Purpose::tag);
        let domains = [
            Domain::Sampling,
            Domain::Shuffling,
            Domain::MiniSets,
            Domain::Independence,
            Domain::Fingerprint,
            Domain::Layers,
            Domain::Records,
        ];
        let mut seen = HashSet::new();
        for tag in purposes.into_iter().chain(domains.map(Domain::tag)) {
            for step in (0..40).chain([u64::from(u32::MAX), 1 << 32, 1 << 63, u64::MAX]) {
                let derived = key.derive(tag, step);
                assert!(seen.insert(*derived.bytes) && !derived.is_secure());
            }
        }
        assert!(Key::from_os().unwrap().derive(1, 0).is_secure());
        assert_ne!(key.fingerprint(), Key::from(InsecureSeed(2)).fingerprint());
        assert_eq!(key.fingerprint(), key.clone().fingerprint());
        let digests = [[0; 32], [1; 32]];
        assert_ne!(key.mark_of(&digests[0]), key.mark_of(&digests[1]));
        assert_ne!(key.mark_of(&digests[0]), Key::from(InsecureSeed(2)).mark_of(&digests[0]));
    }

    #[test]
    fn debug_output_shows_no_key() {
        let key = Key::from(InsecureSeed(0x1234_5678));
        assert_eq!(format!("{key:?}"), "Key { secure: false, .. }");
    }
}
