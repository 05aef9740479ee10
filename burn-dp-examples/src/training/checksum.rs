use std::hash::{Hash, Hasher};

/// Returns a checksum of `data`, which is the same in another run on machines with words of the
/// same length.
pub(super) fn checksum(data: &(impl Hash + ?Sized)) -> String {
    let mut checksum = Checksum(blake3::Hasher::new());
    data.hash(&mut checksum);
    checksum.0.finalize().to_string()
}

/// The checksum of what is hashed.
struct Checksum(blake3::Hasher);

impl Hasher for Checksum {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Not used: it has fewer bits than the checksum.
    fn finish(&self) -> u64 {
        0
    }
}
