//! The grid that sums are rounded to, and the addition of noise on it.

/// The grid is this many binary places below the standard deviation of the noise.
pub(super) const PLACES: i32 = 40;

/// 2^40 as a double.
const ONE: f64 = (1u64 << PLACES) as f64;

/// Power of two, in units of 2^56 of the grid, up to which a release takes the short way: for sums
/// of at most 2^50 units, which are 1024 standard deviations.
const SHORT_SHIFT: i32 = -6;

/// Maximum power of two by which a sum may exceed the range in which every bit of noise counts.
/// Sums saturate at 2^75 standard deviations.
const MAX_SHIFT: i32 = 60;

/// Adds noise to sums in integers: multiples of the grid, which is 2^-40 times the standard
/// deviation of the noise.
///
/// # Privacy
///
/// A sum is divided by the grid, rounded once to the nearest integer, and saturates far beyond any
/// practical value; saturation moves no two sums further apart. The sum of integers is exact. The
/// result is a function of it: rounded to 24 bits, times two public factors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    /// 1/g = `reciprocal` · 2^`exponent`, with the upper bit set.
    pub(crate) reciprocal: u32,
    pub(crate) exponent: i32,
    /// Standard deviation of the noise times the scale.
    pub(crate) factor: f32,
    /// The value of one integer unit in a result in double precision.
    unit: f64,
}

impl Grid {
    /// The spacing of a grid, as a multiple of the standard deviation of its noise.
    pub(super) const FINENESS: f64 = 1.0 / ONE;

    /// Returns the finest grid whose noise has at least the standard deviation `noise_std`, and at
    /// most a relative 2^-31 more.
    ///
    /// Both numbers are normal, and their product is in the range of [`Grid::FACTORS`].
    pub(super) fn new(noise_std: f64, scale: f64) -> Self {
        // noise_std = mantissa · 2^power with 53 bits.
        let bits = noise_std.to_bits();
        let mantissa = u128::from((bits & ((1 << 52) - 1)) | (1 << 52));
        let power = (bits >> 52) as i32 - 1075;
        // 2^84 / mantissa has 32 bits, or is 2^32 for a power of two.
        let places = if mantissa == 1 << 52 { 83 } else { 84 };
        let reciprocal = ((1u128 << places) / mantissa) as u32;
        let exponent = PLACES - power - places;
        let unit = 2f64.powi(-exponent) / f64::from(reciprocal) * scale;
        Self { reciprocal, exponent, factor: (unit * ONE) as f32, unit }
    }

    /// Products of deviation and scale for which no result is subnormal or infinite. Some devices
    /// do not compute with either.
    pub(super) const FACTORS: std::ops::RangeInclusive<f64> = 1e-25..=1e15;
    /// Deviations whose grid is coarser than all subnormal sums, which therefore count as zero.
    pub(super) const DEVIATIONS: std::ops::RangeInclusive<f64> = 1e-25..=1e25;

    /// Returns the grid, rounded to a double.
    pub(super) fn spacing(&self) -> f64 {
        2f64.powi(-self.exponent) / f64::from(self.reciprocal)
    }

    /// Replaces sums with their noisy, scaled values, given at least as many values of noise, of
    /// any size. Returns whether all sums were finite.
    #[inline(always)]
    pub(super) fn release_any(&self, sums: &mut [f32], noise: &[i64]) -> bool {
        let grid = *self;
        let mut finite = true;
        let noise = &noise[..sums.len()];
        // By index: where debug assertions are on, zipped iterators are not inlined.
        for i in 0..sums.len() {
            finite &= sums[i].is_finite();
            sums[i] = grid.release_one(sums[i], noise[i]);
        }
        finite
    }

    /// Does the same as `release_any`, bit for bit, given normal integers.
    #[inline(always)]
    pub(super) fn release(&self, sums: &mut [f32], normal: &[i64]) -> bool {
        let grid = *self;
        let normal = &normal[..sums.len()];
        let mut largest = 0;
        for sum in &*sums {
            largest = largest.max(sum.to_bits() & (u32::MAX >> 1));
        }
        let exponent = (largest >> 23) as i32;
        if exponent.wrapping_add(self.exponent - 150) > SHORT_SHIFT {
            return self.release_any(sums, normal);
        }
        // By index, as above.
        for i in 0..sums.len() {
            sums[i] = grid.release_short(sums[i], normal[i]);
        }
        true
    }

    /// Does the same as `release_one`, bit for bit, with a shift of at most `SHORT_SHIFT` and a
    /// normal integer. Nothing saturates, and a double holds the sum with noise.
    #[inline(always)]
    fn release_short(&self, sum: f32, noise: i64) -> f32 {
        // These bits plus an integer below 2^51 are the bits of this number plus the integer. AVX2
        // has both additions, but no conversion.
        const BIAS: f64 = ((1u64 << 52) + (1 << 51)) as f64;
        let bits = sum.to_bits();
        let exponent = (bits >> 23) & 255;
        // A subnormal sum is smaller than half a unit, also with the bit that it does not have.
        let mantissa = (bits & 0x7f_ffff) | 0x80_0000;
        let product = u64::from(mantissa).wrapping_mul(self.reciprocal.into());
        let down = (150 - self.exponent).cast_unsigned().wrapping_sub(exponent).min(63);
        let half = 1u64.wrapping_shl(down) >> 1;
        let rounded = product.wrapping_add(half).wrapping_shr(down).cast_signed();
        let sign = i64::from(bits.cast_signed() >> 31);
        let total = (rounded ^ sign).wrapping_sub(sign).wrapping_add(noise);
        let total = f64::from_bits(total.cast_unsigned().wrapping_add(BIAS.to_bits())) - BIAS;
        total as f32 * f32::from_bits((127 - PLACES as u32) << 23) * self.factor
    }

    #[inline(always)]
    fn release_one(&self, sum: f32, noise: i64) -> f32 {
        let bits = sum.to_bits();
        let exponent = ((bits >> 23) & 255) as i32;
        let mantissa = if exponent == 0 { 0 } else { (bits & 0x7f_ffff) | 0x80_0000 };
        // |sum| / g = product · 2^shift, exactly; a product that is not zero has 55 or 56 bits.
        let product = u64::from(mantissa).wrapping_mul(self.reciprocal.into());
        let shift = exponent.wrapping_add(self.exponent - 150);
        // Down: round to nearest, half away from zero. There is nothing left after 58 places.
        let down = shift.wrapping_neg().clamp(0, 63) as u32;
        let half = 1u64.wrapping_shl(down) >> 1;
        let rounded = product.wrapping_add(half).wrapping_shr(down);
        // Up: keep the integer as a multiple of 2^up, and saturate at 2^(55 + 60).
        let up = shift.clamp(0, MAX_SHIFT) as u32;
        let beyond = (shift >= MAX_SHIFT) as u32;
        let doubled = (shift > MAX_SHIFT) as u32;
        let limit = if beyond == 0 { u64::MAX } else { 1 << 55 };
        let rounded = rounded.wrapping_shl(doubled).min(limit).cast_signed();
        let sign = i64::from(bits.cast_signed() >> 31);
        let sum = (rounded ^ sign).wrapping_sub(sign);
        // The integer sum / 2^up, rounded down; an odd last bit stands for the bits below, of which
        // one may be set. It is far below the 24 bits of the result, so these are rounded as if all
        // bits were there.
        let high = noise.wrapping_shr(up);
        let rest = (high.wrapping_shl(up) != noise) as i64;
        let total = sum.wrapping_add(high) | rest;
        // Two exact operations and a rounded one.
        total as f32 * f32::from_bits((up + 127 - PLACES as u32) << 23) * self.factor
    }

    /// Returns one sum with noise, in double precision.
    pub(super) fn release_scalar(&self, sum: f64, noise: i64) -> f64 {
        let total = self.round(sum) + i128::from(noise);
        total as f64 * self.unit
    }

    /// Returns a finite sum as a multiple of the grid, rounded to nearest, half away from zero. It
    /// saturates at 2^120: no distance, and therefore no sensitivity, grows by that.
    fn round(&self, sum: f64) -> i128 {
        let bits = sum.to_bits();
        let exponent = ((bits >> 52) & 2047) as i32;
        let mantissa = (bits & ((1 << 52) - 1)) | if exponent == 0 { 0 } else { 1 << 52 };
        let product = u128::from(mantissa) * u128::from(self.reciprocal);
        let shift = exponent.max(1) - 1075 + self.exponent;
        let magnitude = match shift {
            ..=-120 => 0,
            -119..0 => (product + (1 << (-shift - 1))) >> -shift,
            _ if product == 0 => 0,
            _ if shift as u32 > product.leading_zeros() - 8 => 1 << 120,
            _ => product << shift,
        };
        if sum < 0.0 { -magnitude.cast_signed() } else { magnitude.cast_signed() }
    }
}

/// Returns a normal integer as a double, in standard deviations; exact.
#[inline(always)]
pub(super) fn to_double(normal: i64) -> f64 {
    normal as f64 * Grid::FINENESS
}

/// Returns noise in standard deviations as an integer, rounded to nearest. It saturates at 2^62, so
/// that a normal integer can be added.
#[inline(always)]
pub(super) fn from_double(noise: f64) -> i64 {
    const LIMIT: f64 = (1u64 << 62) as f64;
    (noise * ONE).round_ties_even().clamp(-LIMIT, LIMIT) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grid with integers as multiples, whose results are the integers.
    fn integers() -> Grid {
        Grid::new(ONE, 1.0)
    }

    /// Returns a release, which both ways agree on.
    fn released(grid: &Grid, sum: f32, noise: i64) -> f32 {
        let mut values = [sum; 2];
        assert!(grid.release(&mut values[..1], &[noise]));
        assert!(grid.release_any(&mut values[1..], &[noise]));
        assert_eq!(values[0].to_bits(), values[1].to_bits(), "{sum} {noise}");
        values[0]
    }

    /// Returns a release by the definition, in 128-bit integers.
    fn exact(grid: &Grid, sum: f32, noise: i64) -> f32 {
        let limit = 1 << 115;
        let total = grid.round(sum.into()).clamp(-limit, limit) + i128::from(noise);
        total as f32 * 2f32.powi(-PLACES) * grid.factor
    }

    #[test]
    fn a_release_is_a_function_of_the_sum_of_integers() {
        let mut word = 1u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word >> 11
        };
        for (std, scale) in [(1.0, 1.0), (0.7, 0.01), (1e-25, 1e3), (1e25, 1e-10), (3e-9, 1.0)] {
            let grid = Grid::new(std, scale);
            for _ in 0..200_000 {
                // All exponents of a float, all lengths of noise, both signs.
                let sum = f32::from_bits((next() as u32).rotate_left(next() as u32 & 31));
                let noise = (next() as i64 - (1 << 52)) >> (next() % 53);
                // Of all sizes, and of the size of the noise.
                for sum in [sum, sum % (4096.0 * std as f32)] {
                    if sum.is_finite() {
                        let noise = noise.clamp(-(1 << 44), 1 << 44);
                        let released = released(&grid, sum, noise);
                        assert_eq!(released, exact(&grid, sum, noise), "{sum} {noise} {std}");
                        assert!(released == 0.0 || released.is_normal());
                    }
                }
            }
        }
        // The bit that the sum does not resolve decides between two floats.
        let (grid, sum, noise) = (integers(), 2f32.powi(55), (1 << 31) + 3);
        assert_eq!(released(&grid, sum, noise), exact(&grid, sum, noise));
        // Where the short way begins, with noise that cancels and noise that adds.
        for (sum, noise) in [(2f32.powi(50), -(1 << 44)), (2f32.powi(50).next_up(), 1 << 44)] {
            for (sum, noise) in [(sum, noise), (-sum, noise), (sum.next_down(), -noise + 1)] {
                assert_eq!(released(&grid, sum, noise), exact(&grid, sum, noise), "{sum}");
            }
        }
    }

    #[test]
    fn saturation_is_monotonic_and_far_away() {
        let grid = Grid::new(1e-25, 1.0);
        let mut last = f32::NEG_INFINITY;
        for exponent in -149..128 {
            let sum = 2f32.powi(exponent);
            for sum in [sum, sum.next_up(), 1.5 * sum, (2.0 * sum).min(f32::MAX).next_down()] {
                let released = grid.release_one(sum, 12_345);
                assert!(released >= last, "{sum}");
                assert_eq!(grid.release_one(-sum, -12_345), -released);
                last = released;
            }
        }
        // 2^75 standard deviations.
        assert_eq!(last, 2f32.powi(75) * 1e-25);
        for power in 117..123 {
            assert_eq!(integers().round(2f64.powi(power)), 1 << power.min(120));
        }
    }

    #[test]
    fn a_result_that_resolves_the_grid_depends_on_the_integers_alone() {
        // Where sum and noise nearly cancel, f32 resolves far less than a grid unit.
        let grid = integers();
        for integer in -20i32..=20 {
            for noise in -20i64..=20 {
                for fraction in [-0.49f32, 0.499, 0.25, 0.0] {
                    let sum = integer as f32 + fraction;
                    let expected = (i64::from(integer) + noise) as f32;
                    assert_eq!(grid.release_one(sum, noise), expected, "{sum} {noise}");
                }
            }
        }
    }

    #[test]
    fn zero_has_one_sign() {
        for (sum, noise) in [(-0.0, 0), (0.0, 0), (-1e-40, 0), (-3.0, 3), (3.0, -3)] {
            assert_eq!(integers().release_one(sum, noise).to_bits(), 0, "{sum} {noise}");
            assert_eq!(integers().release_scalar(sum.into(), noise).to_bits(), 0);
        }
    }

    #[test]
    fn the_noise_of_a_grid_is_never_below_the_declared_deviation() {
        let mut stds = vec![1e-25, 1e-6, 0.1, 1.0, 2f64.next_down(), 2.0, 1e6, 1e25];
        stds.extend((0..1000).map(|i| 1.0 + f64::from(i) / 999.0));
        for std in stds {
            let grid = Grid::new(std, 1.0);
            assert!(grid.reciprocal >> 31 == 1);
            // reciprocal · 2^exponent · std <= 2^40, in exact integers.
            let scaled = std * 2f64.powi(grid.exponent + 32 - PLACES + 52);
            assert_eq!(scaled, scaled.trunc());
            let product = u128::from(grid.reciprocal) * scaled as u128;
            let whole = 1u128 << (32 + 52);
            assert!(product <= whole && whole - product < whole >> 31, "{std}");
        }
    }

    #[test]
    fn rounding_separates_two_values_by_at_most_one_spacing_more() {
        // Worst case: one value is rounded up and the other down.
        let grid = Grid::new(1.3, 1.0);
        let (a, b) = (0.500_001 * grid.spacing(), 0.499_999 * grid.spacing());
        assert_eq!((grid.round(a), grid.round(b)), (1, 0));
        assert_eq!((grid.round(-a), grid.round(-b)), (-1, 0));
    }

    #[test]
    fn doubles_hold_the_noise_exactly() {
        for noise in [0, 1, -1, (1 << 44) - 1, -(1 << 44) + 1] {
            assert_eq!(from_double(to_double(noise)), noise);
        }
    }
}
