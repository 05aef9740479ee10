//! Standard normal values of a keystream, with the vector unit of the machine.

use pulp::{Arch, Simd, WithSimd};

use super::integer_normal::NormalValues;
use crate::random::{GROUP_WORDS, Group, Keystream};

/// Fills `out` with the values of a keystream, from group `first` on, in units of 2^-40.
pub(super) fn standard_normal(keystream: &Keystream, first: u64, out: &mut [i64]) {
    NormalGroup::new().fill(keystream, first, out);
}

struct StandardNormal<'a> {
    group: &'a mut NormalGroup,
    keystream: &'a Keystream,
    first: u64,
    out: &'a mut [i64],
}

impl WithSimd for StandardNormal<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (index, out) in (self.first..).zip(self.out.chunks_mut(GROUP_WORDS)) {
            out.copy_from_slice(&self.group.draw(simd, self.keystream, index)[..out.len()]);
        }
    }
}

/// The words of one group and their normal values; erased on drop.
pub(super) struct NormalGroup {
    words: Group,
    values: NormalValues,
}

impl NormalGroup {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { words: Group::new(), values: NormalValues::new() }
    }

    /// Fills `out` with the values of a keystream, from group `first` on, in units of 2^-40.
    ///
    /// Not inlined, so that there is one compiled instance for all calls.
    #[inline(never)]
    pub(super) fn fill(&mut self, keystream: &Keystream, first: u64, out: &mut [i64]) {
        Arch::new().dispatch(StandardNormal { group: self, keystream, first, out });
    }

    /// Returns the values of group `index`, in units of 2^-40.
    #[inline(always)]
    pub(super) fn draw<S: Simd>(
        &mut self,
        simd: S,
        keystream: &Keystream,
        index: u64,
    ) -> &[i64; GROUP_WORDS] {
        keystream.fill(simd, index, &mut self.words);
        self.values.of(simd, &self.words)
    }
}
