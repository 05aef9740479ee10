//! Standard normal values by the method of Box and Muller, in arithmetic that vectorizes.

/// √½, below which a mantissa is doubled.
const SQRT_HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// Bits of 1.0.
const ONE: u64 = 0x3ff0_0000_0000_0000;
/// Bits of 2^52, whose unit in the last place is one.
const TWO_52: u64 = 0x4330_0000_0000_0000;
/// 2^-64.
const ULP_64: f64 = 1.0 / 18_446_744_073_709_551_616.0;

/// Returns two independent standard normal values from 128 uniform bits.
///
/// `radius` gives the radius √(−2 ln U) with U = (radius + ½)/2^64, so that it reaches from
/// 2^-32 to 9.49. The upper 54 bits of `angle` give the direction, on a grid that is symmetric
/// about both axes, so that neither value can be exactly zero and both have mean exactly zero.
/// Only additions, multiplications, fused multiply-adds, a division and a root are used, each
/// rounded as IEEE 754 requires, so the result is the same on every machine and with every vector
/// width. A machine without fused multiply-add computes it in software, slower, with the same
/// result.
#[inline(always)]
pub(super) fn box_muller(radius: u64, angle: u64) -> (f64, f64) {
    let r = (-2.0 * ln_uniform(radius)).sqrt();
    let (cos, sin) = direction(angle);
    (r * cos, r * sin)
}

/// Returns ln((word + ½)/2^64), accurate to a few units in the last place also next to U = 1.
#[inline(always)]
fn ln_uniform(word: u64) -> f64 {
    let u = (word as f64 + 0.5) * ULP_64;
    // 1 - U, without the cancellation.
    let complement = ((!word) as f64 + 0.5) * ULP_64;

    // U = 2^exponent (1 + d) with 1 + d between √½ and √2.
    let shifted = u.to_bits().wrapping_add(ONE - SQRT_HALF.to_bits());
    let biased = shifted >> 52;
    let exponent = f64::from_bits(TWO_52 | biased) - (f64::from_bits(TWO_52) + 1023.0);
    let mantissa = (shifted & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF.to_bits());
    let near_one = biased == 1023;
    let d = if near_one { -complement } else { f64::from_bits(mantissa) - 1.0 };

    // ln(1 + d) = 2 atanh(s) = 2 s + s³ P(s²), P a minimax polynomial for |s| <= 0.1716 with an
    // error below 2^-58.
    let s = d / (2.0 + d);
    let z = s * s;
    let p: f64 = 0.147_962_652_592_130_93;
    let p = p.mul_add(z, 0.153_140_206_882_739_02);
    let p = p.mul_add(z, 0.181_835_654_254_188_1);
    let p = p.mul_add(z, 0.222_221_985_533_941_2);
    let p = p.mul_add(z, 0.285_714_287_425_666_35);
    let p = p.mul_add(z, 0.399_999_999_994_139_4);
    let p = p.mul_add(z, 0.666_666_666_666_673_4);
    exponent.mul_add(std::f64::consts::LN_2, s.mul_add(z * p, 2.0 * s))
}

/// Returns cosine and sine of 2π times the fraction of a turn in the upper 54 bits of `word`.
#[inline(always)]
fn direction(word: u64) -> (f64, f64) {
    // The two upper bits are the quadrant, the next 52 the place in it, centered: an odd multiple
    // of 2^-53 between -1/2 and 1/2.
    let quadrant = word >> 62;
    let t = (f64::from_bits(ONE | ((word << 2) >> 12)) - 1.5) + 0.5 * f64::EPSILON;

    // Minimax polynomials for |x| <= π/4 with errors below 2^-58.
    let x = t * std::f64::consts::FRAC_PI_2;
    let z = x * x;
    let p: f64 = 1.589_682_673_364_951_7e-10;
    let p = p.mul_add(z, -2.505_075_863_029_573_8e-8);
    let p = p.mul_add(z, 2.755_731_369_505_887e-6);
    let p = p.mul_add(z, -1.984_126_982_981_637_8e-4);
    let p = p.mul_add(z, 8.333_333_333_322_424e-3);
    let p = p.mul_add(z, -1.666_666_666_666_663_2e-1);
    let sin = x.mul_add(z * p, x);
    let p: f64 = -1.135_966_979_215_856_5e-11;
    let p = p.mul_add(z, 2.087_572_368_273_363e-9);
    let p = p.mul_add(z, -2.755_731_435_522_686e-7);
    let p = p.mul_add(z, 2.480_158_728_949_176_3e-5);
    let p = p.mul_add(z, -1.388_888_888_887_413_8e-3);
    let p = p.mul_add(z, 4.166_666_666_666_66e-2);
    let cos = 1.0 - z.mul_add(-(z * p), 0.5 * z);

    // Turn by the quadrant: exchange for odd ones, then the signs.
    let odd = quadrant & 1 != 0;
    let (c, s) = if odd { (sin, cos) } else { (cos, sin) };
    let c_sign = (quadrant.wrapping_add(1) & 2) << 62;
    let s_sign = (quadrant & 2) << 62;
    (f64::from_bits(c.to_bits() ^ c_sign), f64::from_bits(s.to_bits() ^ s_sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words with all exponents and at both ends.
    fn words() -> impl Iterator<Item = u64> {
        let scrambled = (0..200_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let shifted = scrambled.flat_map(|word| {
            let shift = word & 63;
            [word, word >> shift, !(word >> shift)]
        });
        shifted.chain((0..64).flat_map(|i| [1 << i, (1 << i) - 1, u64::MAX - (1 << i)]))
    }

    #[test]
    fn the_logarithm_is_accurate_at_all_words() {
        for word in words() {
            // Next to one, by the complement, whose logarithm libm gives to the last place.
            let exact = if word >> 63 == 1 {
                libm::log1p(-(((!word) as f64 + 0.5) * ULP_64))
            } else {
                libm::log((word as f64 + 0.5) * ULP_64)
            };
            let error = (ln_uniform(word) / exact - 1.0).abs();
            assert!(error <= 4.0 * f64::EPSILON, "{word:#x}: {error:e}");
        }
    }

    #[test]
    fn the_direction_is_accurate_at_all_words() {
        for word in words() {
            let quadrant = (word >> 62) as i32;
            let t = ((word << 2) >> 12) as f64 / 2f64.powi(52) - 0.5 + 2f64.powi(-53);
            let x = t * std::f64::consts::FRAC_PI_2;
            let (mut c, mut s) = (libm::cos(x), libm::sin(x));
            for _ in 0..quadrant {
                (c, s) = (-s, c);
            }
            let (cos, sin) = direction(word);
            assert!((cos / c - 1.0).abs() <= 4.0 * f64::EPSILON, "{word:#x}: {cos} {c}");
            assert!((sin / s - 1.0).abs() <= 4.0 * f64::EPSILON, "{word:#x}: {sin} {s}");
        }
    }

    #[test]
    fn values_agree_with_fifty_digits() {
        // Computed with mpmath at 60 digits from the formulas in the documentation.
        for (radius, angle, first, second) in GOLDEN {
            let (x, y) = box_muller(radius, angle);
            assert!((x / first - 1.0).abs() < 8.0 * f64::EPSILON, "{x} {first}");
            assert!((y / second - 1.0).abs() < 8.0 * f64::EPSILON, "{y} {second}");
        }
    }

    const GOLDEN: [(u64, u64, f64, f64); 6] = [
        (0x0000000000000000, 0x2000000000000000, 9.492583076949755, 1.6554440739411451e-15),
        (0xffffffffffffffff, 0x123456789abcdef0, 2.1961113855885364e-10, -7.733729013328054e-11),
        (0x0123456789abcdef, 0xfedcba9876543210, 2.2613636431497013, -2.3913250046469114),
        (0x8000000000000000, 0x0000000000000000, 0.8325546111576979, -0.8325546111576976),
        (0xb504f333f9de6484, 0x3fffffffffffffff, 0.5887050112577374, 0.5887050112577372),
        (0xdeadbeefcafef00d, 0x9e3779b97f4a7c15, -0.5275994189298089, 0.023107118887067856),
    ];

    #[test]
    fn the_extremes_reach_beyond_eight_deviations_in_all_four_directions() {
        for quadrant in 0..4u64 {
            // The middle of a quadrant is an axis.
            let (x, y) = box_muller(0, (quadrant << 62) | (1 << 61));
            assert!(x.abs().max(y.abs()) > 9.49, "{x} {y}");
        }
        // Also the smallest 2^13 of 2^64 radius words: P(r > 8) = e^-32 = 2^-46.2.
        for radius in [1, 100, 1 << 13, 1 << 17] {
            assert!(box_muller(radius, 1 << 61).0 > 8.0);
        }
    }

    #[test]
    fn values_are_finite_and_never_zero() {
        let (x, y) = box_muller(u64::MAX, 1 << 61);
        assert!((x * 2f64.powi(32) - 1.0).abs() < 1e-15 && y != 0.0);
        for radius in [0, 1, 1 << 63, (1 << 63) - 1, u64::MAX - 1, u64::MAX] {
            for angle in words().take(10_000) {
                let (x, y) = box_muller(radius, angle);
                assert!(x.is_finite() && y.is_finite() && x != 0.0 && y != 0.0);
            }
        }
    }

    #[test]
    fn the_smallest_radii_are_distinct() {
        // With U rounded to a double before the logarithm they would come in runs of 2^11.
        let mut last = 0.0;
        for i in 0..5000 {
            let (x, _) = box_muller(u64::MAX - i, 1 << 61);
            assert!(x > last, "{i}");
            last = x;
        }
    }

    #[test]
    fn directions_are_symmetric_so_the_mean_is_zero() {
        for (radius, angle) in words().zip(words().skip(7)).take(50_000) {
            let (x, y) = box_muller(radius, angle);
            // Half a turn, and the mirror image.
            assert_eq!(box_muller(radius, angle ^ (1 << 63)), (-x, -y));
            let mirrored = (1u64 << 62).wrapping_sub(angle >> 10 << 10).wrapping_sub(1 << 10);
            assert_eq!(box_muller(radius, mirrored), (x, -y));
        }
    }
}
