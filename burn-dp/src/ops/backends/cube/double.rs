//! Double precision in 32-bit integers, because WGSL has no 64-bit floats.
//!
//! The results have the bits of IEEE 754 with rounding to nearest, ties to even, as on the host,
//! including subnormal numbers, signed zeros, and infinities from overflow. Operands that are
//! infinite or NaN are not supported, because correlated noise has none: the numbers of a strategy
//! are finite and its inverse is bounded by 1e30.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::wide::{Wide, add, copy, leading_zeros, negate_if, product, shift_left, shift_right};
use super::wide::{shift_right_jam, widened};

/// The sign bit.
const SIGN: u32 = 0x8000_0000;

/// A magnitude `mantissa` · 2^(exponent - 1086), whose mantissa has its highest bit set or is zero.
#[derive(CubeType)]
struct Magnitude {
    mantissa: Wide,
    exponent: i32,
}

/// Returns the exponent of a number, at least 1, as it is stored.
#[cube]
fn exponent_field(a: &Wide) -> u32 {
    let field = (a.high >> 20) & 0x7ff;
    select(field == 0, 1u32, field)
}

/// Returns the 53 bits of the mantissa.
#[cube]
fn mantissa(a: &Wide) -> Wide {
    let leading = select((a.high >> 20) & 0x7ff == 0, 0u32, 0x10_0000u32);
    Wide { low: a.low, high: (a.high & 0xf_ffff) | leading }
}

#[cube]
fn magnitude(a: &Wide) -> Magnitude {
    let mantissa = mantissa(a);
    let zeros = leading_zeros(copy(&mantissa));
    let exponent = i32::cast_from(exponent_field(a)) + 11 - i32::cast_from(zeros);
    Magnitude { mantissa: shift_left(mantissa, zeros), exponent }
}

/// Returns the rounded number with a sign and a magnitude.
#[cube]
fn rounded(sign: u32, a: Magnitude) -> Wide {
    let exponent = a.exponent;
    // The mantissa of a subnormal number has fewer bits.
    let missing = u32::cast_from(clamp(1 - exponent, 0, 63));
    let is_short = exponent < 1 || a.mantissa.high >> 31 == 0;
    let mantissa = shift_right_jam(a.mantissa, missing);
    let below = mantissa.low & 0x7ff;
    let kept = shift_right(mantissa, 11, 0);
    let up = select(below > 0x400 || (below == 0x400 && kept.low & 1 == 1), 1u32, 0u32);
    // The leading bit adds one to the exponent, and so does a carry.
    let field = select(is_short, 0u32, u32::cast_from(clamp(exponent - 1, 0, 2046)));
    let bits = add(Wide { low: kept.low, high: kept.high + (field << 20) }, widened(up));
    let infinite = bits.high >= 0x7ff0_0000;
    Wide {
        low: select(infinite, 0u32, bits.low),
        high: select(infinite, 0x7ff0_0000u32, bits.high) | sign,
    }
}

/// Returns `a * b`.
#[cube]
pub(super) fn multiply(a: Wide, b: Wide) -> Wide {
    let sign = (a.high ^ b.high) & SIGN;
    let x = magnitude(&a);
    let y = magnitude(&b);
    let exponent = x.exponent + y.exponent - 1023;
    let last = product(x.mantissa.low, y.mantissa.low);
    let left = product(x.mantissa.high, y.mantissa.low);
    let right = product(x.mantissa.low, y.mantissa.high);
    let first = product(x.mantissa.high, y.mantissa.high);
    let middle = add(add(widened(left.low), widened(right.low)), widened(last.high));
    let first = add(first, add(add(widened(left.high), widened(right.high)), widened(middle.high)));
    // The lowest bit stands for all bits below.
    let rest = select(last.low == 0 && middle.low == 0, 0u32, 1u32);
    let total = Wide { low: first.low | rest, high: first.high };
    let carry = total.high >> 31;
    let mantissa = shift_left(total, 1 - carry);
    rounded(sign, Magnitude { mantissa, exponent: exponent + i32::cast_from(carry) })
}

/// Returns `a + b`.
#[cube]
pub(super) fn sum(a: Wide, b: Wide) -> Wide {
    let (a_high, b_high) = (a.high & 0x7fff_ffff, b.high & 0x7fff_ffff);
    let swap = a_high < b_high || (a_high == b_high && a.low < b.low);
    let x = Wide { low: select(swap, b.low, a.low), high: select(swap, b.high, a.high) };
    let y = Wide { low: select(swap, a.low, b.low), high: select(swap, a.high, b.high) };
    let x_field = exponent_field(&x);
    let apart = x_field - exponent_field(&y);
    // Ten bits below the last one, the lowest of which stands for all bits that are shifted out: if
    // there are more than ten, at most one leading bit cancels.
    let larger = shift_left(mantissa(&x), 10);
    let smaller = shift_left(mantissa(&y), 10);
    let smaller = shift_right_jam(smaller, select(apart > 63, 63u32, apart));
    let total = add(larger, negate_if(smaller, 0 - ((x.high ^ y.high) >> 31)));
    let is_zero = total.low == 0 && total.high == 0;
    let sign = select(is_zero, x.high & y.high, x.high) & SIGN;
    let zeros = leading_zeros(copy(&total));
    let exponent = i32::cast_from(x_field) + 1 - i32::cast_from(zeros);
    rounded(sign, Magnitude { mantissa: shift_left(total, zeros), exponent })
}

/// Returns a normal integer, in units of 2^-40, in standard deviations.
#[cube]
pub(super) fn to_double(normal: Wide) -> Wide {
    let sign = normal.high & SIGN;
    let mantissa = negate_if(normal, 0 - (sign >> 31));
    let zeros = leading_zeros(copy(&mantissa));
    let exponent = 1046i32 - i32::cast_from(zeros);
    rounded(sign, Magnitude { mantissa: shift_left(mantissa, zeros), exponent })
}

/// Returns noise in standard deviations as an integer in units of 2^-40, rounded to nearest, ties
/// to even. It saturates at 2^62, so that a normal integer can be added.
#[cube]
pub(super) fn from_double(noise: Wide) -> Wide {
    let places = i32::cast_from(exponent_field(&noise)) - 1035;
    // Two bits below the last one: the half, and one for all others.
    let down = u32::cast_from(clamp(0 - places, 0, 63));
    let fine = shift_right_jam(shift_left(mantissa(&noise), 2), down);
    let below = fine.low & 3;
    let whole = shift_right(fine, 2, 0);
    let up = select(below == 3 || (below == 2 && whole.low & 1 == 1), 1u32, 0u32);
    let whole = add(whole, widened(up));
    let whole = shift_left(whole, u32::cast_from(clamp(places, 0, 9)));
    let negative = 0u32 - (noise.high >> 31);
    let whole = negate_if(whole, negative);
    let beyond = places > 9;
    Wide {
        low: select(beyond, 0u32, whole.low),
        high: select(beyond, (negative & SIGN) | 0x4000_0000, whole.high),
    }
}

/// Computes with pairs of doubles, `[low, high, low, high]` each. Results are eight words for each
/// pair: product, sum, the first one as an integer, and this integer as a double.
#[cfg(test)]
#[cube(launch)]
pub fn operations(pairs: &[u32], results: &mut [u32]) {
    let pair = ABSOLUTE_POS;
    if pair < pairs.len() / 4 {
        let a = Wide { low: pairs[4 * pair], high: pairs[4 * pair + 1] };
        let b = Wide { low: pairs[4 * pair + 2], high: pairs[4 * pair + 3] };
        let found = multiply(copy(&a), copy(&b));
        results[8 * pair] = found.low;
        results[8 * pair + 1] = found.high;
        let found = sum(copy(&a), b);
        results[8 * pair + 2] = found.low;
        results[8 * pair + 3] = found.high;
        let found = from_double(copy(&a));
        results[8 * pair + 4] = found.low;
        results[8 * pair + 5] = found.high;
        let found = to_double(a);
        results[8 * pair + 6] = found.low;
        results[8 * pair + 7] = found.high;
    }
}
