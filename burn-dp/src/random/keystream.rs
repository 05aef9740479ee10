//! ChaCha12 in counter mode, many blocks at a time.

use pulp::{Arch, Simd, WithSimd};
use zeroize::Zeroize;

/// Number of blocks that are computed together: one group is the unit in which noise is drawn.
pub(crate) const GROUP_BLOCKS: usize = 16;

/// Number of 64-bit words in a group.
pub(crate) const GROUP_WORDS: usize = GROUP_BLOCKS * 8;

/// "expand 32-byte k", the constant row of the state.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Twelve rounds consist of six column rounds and six diagonal rounds; the [module](super) says why
/// they are enough.
pub(crate) const DOUBLE_ROUNDS: u32 = 6;

/// Sixteen consecutive ChaCha12 blocks: `words[w][b]` is word `w` of block `b`.
///
/// A vector unit computes them in this order, so nothing is transposed.
#[repr(align(64))] // No vector is in two lines of the cache.
pub(crate) struct Group {
    words: [[u32; GROUP_BLOCKS]; 16],
}

impl Group {
    pub(crate) const fn new() -> Self {
        Self { words: [[0; GROUP_BLOCKS]; 16] }
    }

    /// Returns the 64-bit word `index`, in `0..8`, of block `block`, little endian as in the byte
    /// stream.
    #[inline(always)]
    pub(crate) fn word(&self, index: usize, block: usize) -> u64 {
        let (low, high) = (self.words[2 * index][block], self.words[2 * index + 1][block]);
        u64::from(low) | (u64::from(high) << 32)
    }

    /// Sets all 64-bit words, in the order of index and block.
    #[cfg(test)]
    pub(crate) fn set_words(&mut self, mut next: impl FnMut() -> u64) {
        for index in 0..8 {
            for block in 0..GROUP_BLOCKS {
                let word = next();
                self.words[2 * index][block] = word as u32;
                self.words[2 * index + 1][block] = (word >> 32) as u32;
            }
        }
    }

    /// Sets the words of as many blocks as the vectors have lanes, from block `start` on.
    #[inline(always)]
    fn store<S: Simd>(&mut self, start: usize, words: [S::u32s; 16]) {
        // Not zipped: where debug assertions are on, zipped iterators are not inlined.
        for (index, word) in words.iter().enumerate() {
            S::as_mut_simd_u32s(&mut self.words[index][start..]).0[0] = *word;
        }
    }

    /// Returns the 32-bit word `index`, in `0..16`, of block `block`.
    #[inline(always)]
    pub(crate) fn half_word(&self, index: usize, block: usize) -> u32 {
        self.words[index][block]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.words.as_flattened_mut().zeroize();
    }
}

/// The keystream of one (key, stream) pair: 2^64 blocks of 64 bytes, in groups of sixteen.
///
/// The state is the one in Bernstein's original cipher, with a 64-bit block counter and a 64-bit
/// stream number; in the notation of RFC 8439, the upper half of the counter is the first nonce
/// word.
///
/// The `chacha20` crate computes four blocks at a time for random generators, which would take more
/// than half of the time of a release. This implementation is tested word by word against that
/// crate and against a published vector.
///
/// # References
///
/// - D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008.
/// - Y. Nir, A. Langley, "ChaCha20 and Poly1305 for IETF Protocols", RFC 8439, 2018, section 2.3.
pub(crate) struct Keystream {
    key: [u32; 8],
    stream: u64,
}

impl Keystream {
    pub(crate) fn new(key: &[u8; 32], stream: u64) -> Self {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self { key: words, stream }
    }

    /// Returns the eight words of the key and the two of the stream number, for a device.
    pub(crate) fn words(&self) -> [u32; 10] {
        let mut words = [0; 10];
        words[..8].copy_from_slice(&self.key);
        (words[8], words[9]) = (self.stream as u32, (self.stream >> 32) as u32);
        words
    }

    /// Computes blocks `16 index .. 16 index + 16` with the vector unit of this machine.
    pub(crate) fn group(&self, index: u64, group: &mut Group) {
        Arch::new().dispatch(Fill { keystream: self, index, group });
    }

    /// Computes blocks `16 index .. 16 index + 16`, for a caller that has chosen the vector unit.
    #[inline(always)]
    pub(crate) fn fill<S: Simd>(&self, simd: S, index: u64, group: &mut Group) {
        let (lanes, first) = (S::U32_LANES, index.wrapping_mul(GROUP_BLOCKS as u64));
        if lanes == 8 {
            let [low, high] = self.blocks(simd, first);
            group.store::<S>(0, low);
            group.store::<S>(lanes, high);
            return;
        }
        for start in (0..GROUP_BLOCKS).step_by(lanes) {
            let [blocks] = self.blocks(simd, first + start as u64);
            group.store::<S>(start, blocks);
        }
    }

    /// Computes the groups `index` and `index + 1`, faster than with two calls of `fill`.
    #[inline(always)]
    pub(crate) fn fill_two<S: Simd>(&self, simd: S, index: u64, groups: &mut [Group; 2]) {
        let [one, other] = groups;
        if S::U32_LANES == GROUP_BLOCKS {
            let [low, high] = self.blocks(simd, index.wrapping_mul(GROUP_BLOCKS as u64));
            one.store::<S>(0, low);
            other.store::<S>(0, high);
        } else {
            self.fill(simd, index, one);
            self.fill(simd, index + 1, other);
        }
    }

    /// Computes `N` times as many blocks as the vectors have lanes, from block `first` on: 16
    /// vectors of words each. `N` is one or two.
    ///
    /// Every operation of a quarter round waits for the one before it, and a processor with wide
    /// vectors can begin more of them than the four quarter rounds of a block have.
    #[inline(always)]
    fn blocks<S: Simd, const N: usize>(&self, simd: S, first: u64) -> [[S::u32s; 16]; N] {
        let mut initial = [self.state(simd, first); N];
        if N == 2 {
            initial[1] = self.state(simd, first.wrapping_add(S::U32_LANES as u64));
        }
        let mut x = initial;
        for _ in 0..DOUBLE_ROUNDS {
            quarter_rounds(simd, &mut x, 0, 4, 8, 12);
            quarter_rounds(simd, &mut x, 1, 5, 9, 13);
            quarter_rounds(simd, &mut x, 2, 6, 10, 14);
            quarter_rounds(simd, &mut x, 3, 7, 11, 15);
            quarter_rounds(simd, &mut x, 0, 5, 10, 15);
            quarter_rounds(simd, &mut x, 1, 6, 11, 12);
            quarter_rounds(simd, &mut x, 2, 7, 8, 13);
            quarter_rounds(simd, &mut x, 3, 4, 9, 14);
        }
        // By index, as in `store`.
        for i in 0..N {
            for word in 0..16 {
                x[i][word] = simd.add_u32s(x[i][word], initial[i][word]);
            }
        }
        x
    }

    /// Returns the states before the first round, of as many blocks as the vectors have lanes.
    #[inline(always)]
    fn state<S: Simd>(&self, simd: S, first: u64) -> [S::u32s; 16] {
        // `first` is a multiple of the number of lanes, so the low half of the counter never
        // carries into the high half within a vector.
        let mut counters = [0u32; GROUP_BLOCKS];
        for (lane, counter) in counters.iter_mut().enumerate() {
            *counter = (first as u32).wrapping_add(lane as u32);
        }
        let all = |word: u32| simd.splat_u32s(word);
        let ([c0, c1, c2, c3], [k0, k1, k2, k3, k4, k5, k6, k7]) = (CONSTANTS, self.key);
        [
            all(c0),
            all(c1),
            all(c2),
            all(c3),
            all(k0),
            all(k1),
            all(k2),
            all(k3),
            all(k4),
            all(k5),
            all(k6),
            all(k7),
            S::as_simd_u32s(&counters).0[0],
            all((first >> 32) as u32),
            all(self.stream as u32),
            all((self.stream >> 32) as u32),
        ]
    }
}

impl Drop for Keystream {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// [`Keystream::fill`] for the vector unit that is dispatched to.
struct Fill<'a> {
    keystream: &'a Keystream,
    index: u64,
    group: &'a mut Group,
}

impl WithSimd for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.keystream.fill(simd, self.index, self.group);
    }
}

/// One quarter round of each state. Their instructions follow in turns.
#[inline(always)]
fn quarter_rounds<S: Simd, const N: usize>(
    simd: S,
    states: &mut [[S::u32s; 16]; N],
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) {
    // Not a loop, which would keep the states in memory.
    quarter_round(simd, &mut states[0], a, b, c, d);
    if N == 2 {
        quarter_round(simd, &mut states[1], a, b, c, d);
    }
}

#[inline(always)]
fn quarter_round<S: Simd>(simd: S, x: &mut [S::u32s; 16], a: usize, b: usize, c: usize, d: usize) {
    x[a] = simd.add_u32s(x[a], x[b]);
    x[d] = rotate_left::<S, 16>(simd, simd.xor_u32s(x[d], x[a]));
    x[c] = simd.add_u32s(x[c], x[d]);
    x[b] = rotate_left::<S, 12>(simd, simd.xor_u32s(x[b], x[c]));
    x[a] = simd.add_u32s(x[a], x[b]);
    x[d] = rotate_left::<S, 8>(simd, simd.xor_u32s(x[d], x[a]));
    x[c] = simd.add_u32s(x[c], x[d]);
    x[b] = rotate_left::<S, 7>(simd, simd.xor_u32s(x[b], x[c]));
}

#[inline(always)]
fn rotate_left<S: Simd, const N: u32>(simd: S, x: S::u32s) -> S::u32s {
    simd.or_u32s(
        simd.wrapping_dyn_shl_u32s(x, simd.splat_u32s(N)),
        simd.wrapping_dyn_shr_u32s(x, simd.splat_u32s(32 - N)),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use chacha20::ChaCha12Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    /// Every vector width that this machine has.
    pub(crate) fn architectures() -> Vec<Arch> {
        let mut all = vec![Arch::new(), Arch::Scalar];
        #[cfg(target_arch = "x86_64")]
        all.extend(pulp::x86::V3::try_new().map(Arch::V3));
        all
    }

    fn group(arch: Arch, keystream: &Keystream, index: u64) -> Group {
        let mut group = Group::new();
        arch.dispatch(Fill { keystream, index, group: &mut group });
        group
    }

    /// [`Keystream::fill_two`] for the vector unit that is dispatched to.
    struct FillTwo<'a>(&'a Keystream, u64);

    impl WithSimd for FillTwo<'_> {
        type Output = [Group; 2];

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [Group; 2] {
            let mut groups = [Group::new(), Group::new()];
            self.0.fill_two(simd, self.1, &mut groups);
            groups
        }
    }

    #[test]
    fn the_block_function_gives_the_published_vector_of_chacha12() {
        // J. Strombergson, "Test Vectors for the Stream Cipher ChaCha", draft, 2013: TC1 with 256
        // bits and 12 rounds, block 0. Key and stream are zero.
        let expected = "9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f\
                        0564f879d27ae3c02ce82834acfa8c793a629f2ca0de6919610be82f411326be";
        let keystream = Keystream::new(&[0; 32], 0);
        for arch in architectures() {
            let group = group(arch, &keystream, 0);
            let block = (0..16).flat_map(|word| group.words[word][0].to_le_bytes());
            assert_eq!(block.map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
        }
    }

    #[test]
    fn every_word_equals_the_independent_implementation() {
        for (seed, stream, first) in [
            (1u8, 0u64, 0u64),
            (2, 1, 5),
            (3, u64::MAX, (1 << 28) - 1), // the counter carries into its upper half next
            (3, u64::MAX, 1 << 28),
            (4, 1 << 32, (1 << 60) - 1), // the last group
        ] {
            let key = [seed; 32];
            let keystream = Keystream::new(&key, stream);
            let mut rng = ChaCha12Rng::from_seed(key);
            rng.set_stream(stream);
            rng.set_block_pos(first * GROUP_BLOCKS as u64);
            let mut expected = [[0u64; 8]; GROUP_BLOCKS];
            expected.as_flattened_mut().iter_mut().for_each(|word| *word = rng.next_u64());
            for arch in architectures() {
                // After the last block comes the first one.
                let [group, next] = [first, first + 1].map(|first| group(arch, &keystream, first));
                let [one, other] = arch.dispatch(FillTwo(&keystream, first));
                assert_eq!([one.words, other.words], [group.words, next.words], "{arch:?}");
                for (block, expected) in expected.iter().enumerate() {
                    for (index, &word) in expected.iter().enumerate() {
                        assert_eq!(group.word(index, block), word, "{arch:?} {block} {index}");
                    }
                }
            }
        }
    }

    #[test]
    fn adjacent_keys_and_streams_share_no_word() {
        let base = group(Arch::new(), &Keystream::new(&[0; 32], 0), 0);
        let mut key = [0; 32];
        key[31] = 1;
        for other in [Keystream::new(&key, 0), Keystream::new(&[0; 32], 1)] {
            let other = group(Arch::new(), &other, 0);
            for block in 0..GROUP_BLOCKS {
                for index in 0..8 {
                    assert_ne!(base.word(index, block), other.word(index, block));
                }
            }
        }
    }
}
