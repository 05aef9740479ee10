//! Reading what checkpoints hold as little-endian numbers: nothing for bytes that end too early.

/// What is left to read.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Option<f64> {
        self.u64().map(f64::from_bits)
    }

    pub(crate) fn f64s(&mut self, count: u64) -> Option<Vec<f64>> {
        let bytes = self.take(count.checked_mul(8)?)?;
        let value = |bytes: &[u8]| bytes.try_into().ok().map(f64::from_le_bytes);
        bytes.chunks_exact(8).map(value).collect()
    }

    pub(crate) fn f32s(&mut self, count: u64) -> Option<Vec<f32>> {
        let bytes = self.take(count.checked_mul(4)?)?;
        let value = |bytes: &[u8]| bytes.try_into().ok().map(f32::from_le_bytes);
        bytes.chunks_exact(4).map(value).collect()
    }

    /// A text after its length.
    pub(crate) fn text(&mut self) -> Option<String> {
        let length = self.u64()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}
