//! Standard normal values from a keystream, with the vector unit of the machine.

use pulp::{Arch, Simd, WithSimd};
use zeroize::Zeroize;

use super::box_muller::box_muller;
use crate::random::{GROUP_BLOCKS, GROUP_WORDS, Group, Keystream};

/// Fills `out` with the values of a keystream, from group `first` on.
///
/// Not inlined, so that there is one compiled instance whatever surrounds the call.
#[inline(never)]
pub(super) fn standard_normal(keystream: &Keystream, first: u64, out: &mut [f64]) {
    Arch::new().dispatch(StandardNormal { keystream, first, out });
}

struct StandardNormal<'a> {
    keystream: &'a Keystream,
    first: u64,
    out: &'a mut [f64],
}

impl WithSimd for StandardNormal<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut normal = NormalGroup::new();
        for (index, out) in (self.first..).zip(self.out.chunks_mut(GROUP_WORDS)) {
            out.copy_from_slice(&normal.draw(simd, self.keystream, index)[..out.len()]);
        }
    }
}

/// The words of one group and the normal values that they give; erased on drop.
///
/// Values 32 j + b and 32 j + 16 + b are the pair that words 2 j (radius) and 2 j + 1 (angle) of
/// block b give.
pub(super) struct NormalGroup {
    words: Group,
    values: [f64; GROUP_WORDS],
}

impl NormalGroup {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { words: Group::new(), values: [0.0; GROUP_WORDS] }
    }

    /// Returns the values of group `index`.
    #[inline(always)]
    pub(super) fn draw<S: Simd>(
        &mut self,
        simd: S,
        keystream: &Keystream,
        index: u64,
    ) -> &[f64; GROUP_WORDS] {
        keystream.fill(simd, index, &mut self.words);
        for (j, values) in self.values.chunks_exact_mut(2 * GROUP_BLOCKS).enumerate() {
            let (first, second) = values.split_at_mut(GROUP_BLOCKS);
            for b in 0..GROUP_BLOCKS {
                let (radius, angle) = (self.words.word(2 * j, b), self.words.word(2 * j + 1, b));
                (first[b], second[b]) = box_muller(radius, angle);
            }
        }
        &self.values
    }
}

impl Drop for NormalGroup {
    fn drop(&mut self) {
        self.values.zeroize();
    }
}
