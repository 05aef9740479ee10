//! Standard normal values as integers: the inverse distribution function in fixed point.

#[cfg(target_arch = "x86_64")]
use std::any::Any;

use pulp::Simd;
#[cfg(target_arch = "x86_64")]
use pulp::x86::V4;
use zeroize::Zeroize;

use crate::random::{GROUP_BLOCKS, GROUP_WORDS, Group};

/// Octaves of the tail probability.
const OCTAVES: usize = 64;
/// Polynomials in an octave.
const SEGMENTS: usize = 64;
/// Number of lowest bits of a word that do not affect its own value, in units of 2^-40: near the
/// center, where the values are densest, 2^22 words have one value.
const UNSEEN: u32 = 22;
const POLYNOMIALS: usize = OCTAVES * SEGMENTS;
/// Number of binary places that a polynomial has beyond its result.
const GUARD_PLACES: u32 = 6;

/// The table that `normal_table.py` writes. For each polynomial, in units of 2^-46 and 8 bytes
/// each: the constant coefficient; the linear one and, in the upper 24 bits, the fourth; the second
/// and, in the upper 32 bits, the third.
pub(super) const TABLE: &[u8; POLYNOMIALS * 24] = include_bytes!("normal_table.bin");

/// The coefficients as the loops load them: constant, linear, second and third, fourth.
static COEFFICIENTS: [[u64; 4]; POLYNOMIALS] = {
    let (words, mut rows, mut i) = (TABLE.as_chunks::<8>().0, [[0; 4]; POLYNOMIALS], 0);
    while i < POLYNOMIALS {
        let c1_c4 = u64::from_le_bytes(words[3 * i + 1]);
        rows[i][0] = u64::from_le_bytes(words[3 * i]);
        rows[i][1] = c1_c4 & ((1 << 40) - 1);
        rows[i][2] = u64::from_le_bytes(words[3 * i + 2]);
        rows[i][3] = c1_c4 >> 40;
        i += 1;
    }
    rows
};

/// Memory for the normal values of one group of words, erased on drop.
#[repr(align(64))] // No vector is in two lines of the cache.
pub(super) struct NormalValues {
    values: [i64; GROUP_WORDS],
    /// Which polynomials, and where.
    indices: [u64; GROUP_WORDS],
    places: [u64; GROUP_WORDS],
    coefficients: [[u64; 4]; GROUP_WORDS],
}

impl NormalValues {
    pub(super) const fn new() -> Self {
        Self {
            values: [0; GROUP_WORDS],
            indices: [0; GROUP_WORDS],
            places: [0; GROUP_WORDS],
            coefficients: [[0; 4]; GROUP_WORDS],
        }
    }

    /// Returns the standard normal values of uniform words, in units of 2^-40: word
    /// `index` of block `block` gives value 16 `index` + `block`.
    ///
    /// The upper bit of a word is the sign of its value. The other 63 bits are a probability p
    /// below one half, and the value is the p-quantile of the normal distribution, up to 9.15: the
    /// leading zeros give the octave of p, and the bits after them its place there. A word with
    /// many leading zeros has few bits after them. They are extended by the word next to it (of 0
    /// and 1, of 2 and 3, ...), beginning with its lowest bits, which do not affect the value of
    /// that word.
    ///
    /// A value is at most 0.76 units from the exact quantile. All operations are on integers, so
    /// every machine and device computes the same value.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
    pub(super) fn of<S: Simd>(&mut self, simd: S, words: &Group) -> &[i64; GROUP_WORDS] {
        // Each loop does one kind of work, so that the compiler can vectorize it.
        for index in 0..GROUP_WORDS / GROUP_BLOCKS {
            let range = index * GROUP_BLOCKS..(index + 1) * GROUP_BLOCKS;
            let indices = &mut self.indices[range.clone()];
            let places = &mut self.places[range.clone()];
            let signs = &mut self.values[range];
            for block in 0..GROUP_BLOCKS {
                let (word, other) = (words.word(index, block), words.word(index ^ 1, block));
                let (octave, place) = place::<S>(word, other);
                indices[block] = octave << 6 | place >> 58;
                places[block] = place << 6;
                signs[block] = word.cast_signed() >> 63;
            }
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(&simd) = (&simd as &dyn Any).downcast_ref::<V4>() {
            for i in 0..GROUP_WORDS / 8 {
                let indices = &self.indices.as_chunks::<8>().0[i];
                let places = &self.places.as_chunks::<8>().0[i];
                let values = &mut self.values.as_chunks_mut::<8>().0[i];
                let [c0, c1, c2_c3, c4] = eight_rows(simd, indices);
                for j in 0..8 {
                    let row = [c0[j], c1[j], c2_c3[j], c4[j]];
                    values[j] = signed(polynomial(row, places[j]), values[j]);
                }
            }
            return &self.values;
        }
        // By index: where debug assertions are on, zipped iterators are not inlined.
        for i in 0..GROUP_WORDS {
            self.coefficients[i] = COEFFICIENTS[self.indices[i] as usize % POLYNOMIALS];
        }
        for i in 0..GROUP_WORDS {
            let magnitude = polynomial(self.coefficients[i], self.places[i]);
            self.values[i] = signed(magnitude, self.values[i]);
        }
        &self.values
    }
}

impl Drop for NormalValues {
    fn drop(&mut self) {
        self.values.zeroize();
        self.places.zeroize();
        self.indices.zeroize();
        self.coefficients.as_flattened_mut().zeroize();
    }
}

/// Returns a magnitude with a sign, which is 0 or -1, without a branch.
#[inline(always)]
fn signed(magnitude: u64, sign: i64) -> i64 {
    (magnitude.cast_signed() ^ sign).wrapping_sub(sign)
}

/// Returns the coefficients of eight polynomials, column by column.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn eight_rows(simd: V4, indices: &[u64; 8]) -> [[u64; 8]; 4] {
    use bytemuck::must_cast;
    let row = |i: usize| must_cast(COEFFICIENTS[indices[i] as usize % POLYNOMIALS]);
    let simd = simd.avx512f;
    let rows =
        |low, high| simd._mm512_inserti64x4::<1>(simd._mm512_castsi256_si512(row(low)), row(high));
    let [a, b, c, d] = [rows(0, 2), rows(1, 3), rows(4, 6), rows(5, 7)];
    // Columns 0 and 2, and columns 1 and 3, of the rows 0 to 3 and 4 to 7.
    let (low, next_low) = (simd._mm512_unpacklo_epi64(a, b), simd._mm512_unpackhi_epi64(a, b));
    let (high, next_high) = (simd._mm512_unpacklo_epi64(c, d), simd._mm512_unpackhi_epi64(c, d));
    [
        must_cast(simd._mm512_shuffle_i64x2::<0b10_00_10_00>(low, high)),
        must_cast(simd._mm512_shuffle_i64x2::<0b10_00_10_00>(next_low, next_high)),
        must_cast(simd._mm512_shuffle_i64x2::<0b11_01_11_01>(low, high)),
        must_cast(simd._mm512_shuffle_i64x2::<0b11_01_11_01>(next_low, next_high)),
    ]
}

/// Returns octave e and place y of the probability 2^-(e+1) (1 - y / 2^65) that a word stands for.
#[inline(always)]
fn place<S: Simd>(word: u64, other: u64) -> (u64, u64) {
    let magnitude = word << 1;
    let octave = leading_zeros::<S>(magnitude | 1);
    let other = other.rotate_left(64 - UNSEEN).wrapping_shr(63 - octave as u32);
    // Everything after the leading one.
    (octave, (magnitude.wrapping_shl(octave as u32) | other) << 1)
}

/// Returns the number of leading zeros of a word that is not zero.
#[inline(always)]
fn leading_zeros<S: Simd>(word: u64) -> u64 {
    const LOW: f64 = (1u64 << 52) as f64;
    const HIGH: f64 = (1u128 << 84) as f64;
    if S::U32_LANES != 8 {
        return word.leading_zeros().into();
    }
    // AVX2 has no instruction for it. Below the leading one comes a zero, so that a double that is
    // rounded from the word has the same power of two.
    let first = word & !(word >> 1);
    // The bits of 2^52 and 2^84, plus an integer of 32 bits.
    let low = f64::from_bits((first & 0xffff_ffff) | LOW.to_bits());
    let high = f64::from_bits((first >> 32) | HIGH.to_bits());
    let power = ((high - (HIGH + LOW)) + low).to_bits() >> 52;
    (1023 + 63) - power
}

/// Returns a polynomial at t 2^-64, rounded to units of 2^-40.
#[inline(always)]
fn polynomial([c0, c1, c2_c3, c4]: [u64; 4], t: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let (c2, c3) = (c2_c3 & LOW, c2_c3 >> 32);
    let (high, low) = (t >> 32, t & LOW);
    // Products of 32 bits by 32 bits. The sums do not overflow: `normal_table.py` checks it. The
    // masks change no value; with them the compiler multiplies 32-bit halves.
    let sum = c3.wrapping_add((c4 & LOW).wrapping_mul(high) >> 32);
    let sum = c2.wrapping_add((sum & LOW).wrapping_mul(high) >> 32);
    let sum = c1.wrapping_add((sum & LOW).wrapping_mul(high) >> 32);
    let (sum_high, sum_low) = (sum >> 32, sum & LOW);
    let value = c0
        .wrapping_add(sum_high.wrapping_mul(high))
        .wrapping_add(sum_high.wrapping_mul(low) >> 32)
        .wrapping_add(sum_low.wrapping_mul(high) >> 32);
    value.wrapping_add(1 << (GUARD_PLACES - 1)) >> GUARD_PLACES
}

#[cfg(test)]
pub(super) mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::random::architectures;

    fn normal(word: u64, other: u64) -> i64 {
        normal_pair(word, other)[0]
    }

    /// Returns the values of two words of a pair, from each of the places in a group that they may
    /// have.
    fn normal_pair(word: u64, other: u64) -> [i64; 2] {
        let mut words = Group::new();
        let mut position = 0;
        words.set_words(|| {
            position += 1;
            let index: usize = (position - 1) / GROUP_BLOCKS;
            if index.is_multiple_of(2) { word } else { other }
        });
        let mut memory = NormalValues::new();
        let values = memory.of(pulp::Scalar::new(), &words);
        for pair in values.chunks_exact(2 * GROUP_BLOCKS) {
            assert!(pair[..GROUP_BLOCKS].iter().all(|&value| value == values[0]));
            assert!(pair[GROUP_BLOCKS..].iter().all(|&value| value == values[GROUP_BLOCKS]));
        }
        [values[0], values[GROUP_BLOCKS]]
    }

    /// Returns the value at a place of an octave.
    fn quantile(octave: u64, place: u64) -> u64 {
        let index = octave << 6 | place >> 58;
        polynomial(COEFFICIENTS[index as usize], place << 6)
    }

    /// Returns P(Z > z).
    fn tail(z: f64) -> f64 {
        0.5 * libm::erfc(z * std::f64::consts::FRAC_1_SQRT_2)
    }

    #[test]
    fn values_agree_with_sixty_digits() {
        // The quantiles by mpmath's `erfinv`, which was not used to create the table: 60 digits.
        for (word, other, exact) in GOLDEN {
            let error = (normal(word, other) as f64 - exact).abs();
            // The golden numbers have two decimal places.
            assert!(error <= 0.76 + 0.005, "{word:#x}: {error}");
            // Each word of a pair extends the other one.
            assert_eq!(normal_pair(word, other)[1], normal(other, word), "{other:#x}");
        }
    }

    #[test]
    fn values_are_quantiles_in_every_segment() {
        // Tail probabilities by libm, to a few parts in 10^16 times z²; one unit of a value changes
        // them by a relative (z + 1) 2^-40 at most.
        let unit = 2f64.powi(-40);
        for octave in 0..64u64 {
            for segment in 0..64u64 {
                for t in [0, 1 << 32, 1 << 56, 0x0123_4567_89ab_cdef, u64::MAX >> 6] {
                    let place = segment << 58 | t;
                    let p = 2f64.powi(-(octave as i32) - 1) * (1.0 - place as f64 / 2f64.powi(65));
                    let z = quantile(octave, place) as f64 * unit;
                    let error = (tail(z) / p - 1.0).abs();
                    let bound = 0.76 * unit * (z + 1.0) + 1e-15 * (1.0 + z * z);
                    assert!(error <= bound, "{octave} {segment} {t}: {error:e}");
                }
            }
        }
    }

    #[test]
    fn segments_join_within_one_unit() {
        for index in 0..POLYNOMIALS as u64 - 1 {
            let end = quantile(index / 64, (index % 64) << 58 | u64::MAX >> 6);
            let start = quantile((index + 1) / 64, ((index + 1) % 64) << 58);
            assert!(start.abs_diff(end) <= 1, "{index}: {end} {start}");
        }
    }

    #[test]
    fn values_grow_with_their_place() {
        for octave in [0, 1, 5, 20, 63] {
            let mut last = quantile(octave, 0);
            for step in 1..4096u64 {
                let value = quantile(octave, step << 52 | step);
                assert!(value > last, "{octave} {step}");
                last = value;
            }
        }
    }

    #[test]
    fn values_are_symmetric_and_reach_nine_deviations() {
        let other = 0x9e37_79b9_7f4a_7c15u64;
        for shift in 0..64 {
            let word = (other >> 1) >> shift;
            assert_eq!(normal(word, other), -normal(word | 1 << 63, other));
        }
        for other in [0, other, u64::MAX] {
            assert!((9 << 40..10 << 40).contains(&normal(0, other)));
        }
        // Words in the tails beyond eight deviations have different values, not all the same one.
        let tail: std::collections::HashSet<_> =
            (1..4000).map(|word| normal(word, other)).collect();
        assert!(tail.len() == 3999 && tail.iter().all(|&value| value > 8 << 40));
    }

    #[test]
    fn the_bits_of_the_other_word_resolve_the_tail() {
        // Without them the values of neighboring words would be thousands of units apart.
        let word = 1 << 24;
        let (low, high) = (normal(word, 0), normal(word + 1, 0));
        assert!(high - low > 1000, "{low} {high}");
        let mut last = low;
        for other in 0..1 << 12 {
            let value = normal(word, other << (UNSEEN - 12));
            assert!((last..=high).contains(&value), "{other}");
            last = value;
        }
        assert!(high - last <= (high - low) / 2000, "{last}");
    }

    #[test]
    fn values_do_not_depend_on_the_vector_unit() {
        struct Values<'a>(&'a Group);
        impl WithSimd for Values<'_> {
            type Output = [i64; GROUP_WORDS];

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
                *NormalValues::new().of(simd, self.0)
            }
        }
        let mut word = 1u64;
        // A group for each octave: its polynomials in a random order.
        for octave in 0..=63 {
            let mut words = Group::new();
            words.set_words(|| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (word & 1 << 63) | (word.rotate_left(32) >> 1) >> octave
            });
            let expected = Values(&words).with_simd(pulp::Scalar::new());
            for arch in architectures() {
                assert_eq!(arch.dispatch(Values(&words)), expected, "{arch:?} {octave}");
            }
        }
    }

    #[test]
    fn leading_zeros_do_not_depend_on_the_vector_unit() {
        /// For each word, the zeros by the arithmetic of this vector unit.
        struct Zeros<'a>(&'a [u64]);
        impl WithSimd for Zeros<'_> {
            type Output = Vec<u64>;

            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> Vec<u64> {
                self.0.iter().map(|&word| leading_zeros::<S>(word)).collect()
            }
        }
        let mut words = vec![1, u64::MAX];
        for shift in 0..64 {
            let one = 1u64 << shift;
            words.extend([one, one | 1, one | one >> 1, u64::MAX >> shift, (one - 1) | one]);
            words.extend([one | one >> 32, one | 0x9e37_79b9_7f4a_7c15 >> (63 - shift)]);
        }
        let expected: Vec<u64> = words.iter().map(|word| word.leading_zeros().into()).collect();
        for arch in architectures() {
            assert_eq!(arch.dispatch(Zeros(&words)), expected, "{arch:?}");
        }
    }

    /// Words, the words that extend them, and the quantiles in units of 2^-40.
    pub(in super::super) const GOLDEN: [(u64, u64, f64); 32] = [
        (0x0000000000000000, 0x0000000000000000, 9983736141808.38),
        (0x0000000000000000, 0xffffffffffffffff, 10066351958773.54),
        (0xffffffffffffffff, 0xffffffffffffffff, -741609323156.32),
        (0x8000000000000000, 0x0000000000000000, -9983736141808.38),
        (0x7fffffffffffffff, 0x0000000000000000, 741609323156.32),
        (0x4000000000000000, 0x0000000000000005, 0.00),
        (0x3fffffffffffffff, 0xffffffffffffffff, 1264822519728.34),
        (0x0000000000000001, 0x0000000000000000, 9900446867848.30),
        (0x0000000000000001, 0xffffffffffffffff, 9983736141808.38),
        (0x8000000000000001, 0x0000000000000003, -9900446910997.81),
        (0x3ca9d37929735a1c, 0xa6a3a4506513270e, 1197584022987.78),
        (0x825165e643171ff4, 0x1818e811892f902b, -2404279541820.23),
        (0x09531985cbb3b93f, 0x81e74ef5e8e25d94, 1734618404786.20),
        (0x0026654361b7b3ae, 0x6b0d549b6f03675a, 3439649685198.27),
        (0x001ece0b9211e20b, 0x6cad4a268d116ece, 3812877279259.35),
        (0x80034eb252b8790e, 0xf28c105d1fb17c23, -4329851813126.86),
        (0x80000285c2cce1c9, 0xf29d0da9953f48f1, -5565895203521.56),
        (0x80000001277a099c, 0x0cb1e29c658cda14, -6743884941020.51),
        (0x000000003898d191, 0xdbc496cb8e81973e, 7165640829558.17),
        (0x000000002511eacb, 0x8a6a63ec24ede6a4, 7098933318682.72),
        (0x000000002489d996, 0xd0eda82f8f6d0558, 7097438394666.32),
        (0x0000000005c882b1, 0x923a736994e3bf91, 7464347601802.21),
        (0x000000000000c061, 0x8c38fb2918f135d2, 8597237248729.38),
        (0x8000000000000010, 0x9e7769b10f4205b4, -9560335584597.86),
        (0x8000000000000001, 0x6d76b07e881ed162, -9933626161628.63),
        (0x0000000000000000, 0xec66a78795e761d1, 9998392314165.00),
        (0x5c90a9587403e430, 0x3f98e2774cbd87ad, 311651727332.27),
        (0x2e05319acb5c7427, 0xc7a2ea20b2f14c94, 944229440041.19),
        (0x14f4733f3e7d1bfb, 0x4cdd2055930d6eaf, 1374418354745.69),
        (0x7ebff20686734721, 0x57ee05cde00902c7, 724798160994.60),
        (0x72e6cc3ababced20, 0x9be4bcfc49b64a08, 572901054075.34),
        (0x12bd4acefaecbd38, 0x830e07bc1e398f10, 1323787304234.34),
    ];
}
