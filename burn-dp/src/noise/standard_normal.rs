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
        self.group.draw_all(simd, self.keystream, self.first, self.out, |out, normal| {
            out.copy_from_slice(&normal[..out.len()]);
        });
    }
}

/// The words of two groups and the normal values of one; erased on drop.
pub(super) struct NormalGroup {
    words: [Group; 2],
    values: NormalValues,
}

impl NormalGroup {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { words: [Group::new(), Group::new()], values: NormalValues::new() }
    }

    /// Fills `out` with the values of a keystream, from group `first` on, in units of 2^-40.
    ///
    /// Not inlined, so that there is one compiled instance for all calls.
    #[inline(never)]
    pub(super) fn fill(&mut self, keystream: &Keystream, first: u64, out: &mut [i64]) {
        Arch::new().dispatch(StandardNormal { group: self, keystream, first, out });
    }

    /// Calls `take` with each part of `parts`, of the length of a group, and the values of its
    /// group, from group `first` on, in units of 2^-40. The last part may be shorter.
    #[inline(always)]
    pub(super) fn draw_all<S: Simd, T>(
        &mut self,
        simd: S,
        keystream: &Keystream,
        first: u64,
        parts: &mut [T],
        mut take: impl FnMut(&mut [T], &[i64; GROUP_WORDS]),
    ) {
        for (index, parts) in (first..).step_by(2).zip(parts.chunks_mut(2 * GROUP_WORDS)) {
            if parts.len() > GROUP_WORDS {
                keystream.fill_two(simd, index, &mut self.words);
            } else {
                keystream.fill(simd, index, &mut self.words[0]);
            }
            for (words, part) in self.words.iter().zip(parts.chunks_mut(GROUP_WORDS)) {
                take(part, self.values.of(simd, words));
            }
        }
    }

    /// Returns the values of group `index`, in units of 2^-40.
    #[inline(always)]
    pub(super) fn draw<S: Simd>(
        &mut self,
        simd: S,
        keystream: &Keystream,
        index: u64,
    ) -> &[i64; GROUP_WORDS] {
        keystream.fill(simd, index, &mut self.words[0]);
        self.values.of(simd, &self.words[0])
    }
}
