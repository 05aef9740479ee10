//! The secret from which all randomness of a run is derived.

use std::fmt;

use zeroize::Zeroizing;

use crate::DpError;

/// Version of the byte format of [`NoiseKey`].
const FORMAT: u8 = 1;

/// Fills the key of an insecure source, so that no operating system can hand out the same one.
const INSECURE_LABEL: &[u8; 24] = b"insecure seed of burn-dp";

/// A seed that makes all noise known to everybody who knows the seed.
///
/// # Privacy
///
/// None. For tests and for experiments on public data only. A source made from it says so in
/// [`NoiseSource::is_secure`](super::NoiseSource::is_secure), and what is released with it must
/// not be called private.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InsecureSeed(
    /// The seed.
    pub u64,
);

/// The key of a run, outside of its source: what is stored to continue a run bit for bit.
///
/// Continuing with a new key from the operating system is private as well, and safer; store the
/// key only where the continuation has to be identical.
///
/// # Privacy
///
/// As secret as the training data: who has the key can subtract the noise from every release. Keep
/// it apart from the model and from the ledger, readable by nobody else, and delete it when the run
/// is over. The memory is erased on drop and `Debug` prints no key.
#[derive(Clone)]
pub struct NoiseKey {
    bytes: Zeroizing<[u8; 32]>,
    secure: bool,
}

impl NoiseKey {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 34;

    pub(crate) fn from_os() -> Result<Self, DpError> {
        let mut key = Self { bytes: Zeroizing::new([0; 32]), secure: true };
        getrandom::fill(&mut key.bytes[..]).map_err(|error| DpError::Entropy(error.to_string()))?;
        if *key.bytes == [0; 32] {
            return Err(DpError::Entropy("256 bits that are all zero".into()));
        }
        Ok(key)
    }

    pub(crate) fn insecure(seed: InsecureSeed) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        bytes[..8].copy_from_slice(&seed.0.to_le_bytes());
        bytes[8..].copy_from_slice(INSECURE_LABEL);
        Self { bytes, secure: false }
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Whether the key came from the operating system and not from an [`InsecureSeed`].
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The key as bytes: a format version, whether it is secure, 256 bits.
    ///
    /// # Privacy
    ///
    /// The bytes are the secret itself; see [`NoiseKey`].
    pub fn to_bytes(&self) -> Zeroizing<[u8; Self::LENGTH]> {
        let mut bytes = Zeroizing::new([0; Self::LENGTH]);
        bytes[0] = FORMAT;
        bytes[1] = u8::from(self.secure);
        bytes[2..].copy_from_slice(&self.bytes[..]);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Privacy
    ///
    /// Bytes that were made up here instead of read back make the noise as predictable as they
    /// are.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] for another length or format version, and for a key that is
    /// visibly not one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DpError> {
        let damaged = |reason: String| {
            DpError::state(format!("the noise key {reason}; start with a new key instead"))
        };
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().map_err(|_| {
            damaged(format!("has {} bytes instead of {}", bytes.len(), Self::LENGTH))
        })?;
        if bytes[0] != FORMAT {
            return Err(damaged(format!("has format {}, known is {FORMAT}", bytes[0])));
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
}

impl fmt::Debug for NoiseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoiseKey").field("secure", &self.secure).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn two_keys_of_the_operating_system_differ() {
        let (a, b) = (NoiseKey::from_os().unwrap(), NoiseKey::from_os().unwrap());
        assert_ne!(a.bytes, b.bytes);
        // A bit that is stuck in 64 keys of 256 bits has probability 256 · 2^-63 < 1e-16.
        let (mut ones, mut zeros) = ([0u8; 32], [0u8; 32]);
        for _ in 0..64 {
            let key = NoiseKey::from_os().unwrap();
            for i in 0..32 {
                ones[i] |= key.bytes[i];
                zeros[i] |= !key.bytes[i];
            }
        }
        assert_eq!((ones, zeros), ([0xff; 32], [0xff; 32]));
    }

    #[test]
    fn a_key_survives_the_round_trip_with_its_security() {
        for key in [NoiseKey::from_os().unwrap(), NoiseKey::insecure(InsecureSeed(7))] {
            let read = NoiseKey::from_bytes(&key.to_bytes()[..]).unwrap();
            assert_eq!(read.bytes, key.bytes);
            assert_eq!(read.is_secure(), key.is_secure());
        }
    }

    #[test]
    fn an_insecure_key_cannot_be_marked_secure() {
        let mut bytes = NoiseKey::insecure(InsecureSeed(7)).to_bytes();
        bytes[1] = 1;
        assert!(matches!(NoiseKey::from_bytes(&bytes[..]), Err(DpError::InvalidState { .. })));
    }

    #[test]
    fn damaged_keys_are_refused_with_the_reason() {
        let good = NoiseKey::from_os().unwrap().to_bytes();
        let changed = |at: usize, value: u8| {
            let mut bytes = *good;
            bytes[at] = value;
            NoiseKey::from_bytes(&bytes).unwrap_err().to_string()
        };
        assert!(changed(0, 9).contains("format 9"));
        assert!(changed(1, 2).contains("mark 2"));
        assert!(NoiseKey::from_bytes(&good[..33]).unwrap_err().to_string().contains("33 bytes"));
        let mut zero = [0; NoiseKey::LENGTH];
        (zero[0], zero[1]) = (FORMAT, 1);
        assert!(NoiseKey::from_bytes(&zero).unwrap_err().to_string().contains("all zero"));
    }

    #[test]
    fn debug_output_shows_no_key() {
        let key = NoiseKey::insecure(InsecureSeed(0x1234_5678));
        assert_eq!(format!("{key:?}"), "NoiseKey { secure: false, .. }");
    }
}
