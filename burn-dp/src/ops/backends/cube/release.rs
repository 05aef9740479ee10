//! The release of sums: the noise of a keystream added in integers.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::keystream::{KEY_WORDS, block};
use super::normal::normal;
use super::wide::{Wide, add, copy, leading_zeros, negate_if, product, shift_left, shift_right};

/// Places of the words of a mechanism, after the ten of the stream.
pub(super) const RECIPROCAL: usize = 10;
pub(super) const EXPONENT: usize = 11;
pub(super) const FACTOR: usize = 12;

/// Number of values in one group of blocks on the host: value `16 word + block` of a group comes
/// from 64-bit word `word` of block `block`.
pub(super) const GROUP_VALUES: usize = 128;

/// The grid of a mechanism: three of its words.
#[derive(CubeType)]
pub struct Grid {
    reciprocal: u32,
    exponent: u32,
    factor: u32,
}

/// Returns the grid of a mechanism. Units load it once, because a device may load it again after
/// each store.
#[cube]
pub(super) fn grid(mechanism: &[u32], place: usize) -> Grid {
    Grid {
        reciprocal: mechanism[place + RECIPROCAL],
        exponent: mechanism[place + EXPONENT],
        factor: mechanism[place + FACTOR],
    }
}

/// Replaces `count` sums, given as the bits of floats, with noisy values. One unit computes the
/// eight values of a block.
///
/// - mechanism: the words of the mechanism begin at `place`
#[cube(launch)]
pub fn release_values(
    sums: &[u32],
    mechanism: &[u32],
    table: &[u32],
    released: &mut [f32],
    count: usize,
    place: usize,
) {
    let index = ABSOLUTE_POS;
    let first = (index / 16) * 128 + index % 16;
    if first < count {
        let words = block(mechanism, place, place + KEY_WORDS, u32::cast_from(index));
        let grid = grid(mechanism, place);
        for value in 0..8usize {
            let position = first + 16 * value;
            if position < count {
                let (low, high) = (words[2 * value], words[2 * value + 1]);
                let next = value ^ 1;
                let other = Wide { low: words[2 * next], high: words[2 * next + 1] };
                let noise = normal(Wide { low, high }, other, table);
                released[position] = noisy(sums[position], noise, &grid);
            }
        }
    }
}

/// Returns the sum of a float, given as its bits, on the grid and noise in units of 2^-40, scaled.
#[cube]
pub(super) fn noisy(bits: u32, noise: Wide, grid: &Grid) -> f32 {
    let exponent = (bits >> 23) & 255;
    let mantissa = select(exponent == 0, 0u32, (bits & 0x7f_ffff) | 0x80_0000);
    let product = product(mantissa, grid.reciprocal);
    let shift = i32::cast_from(exponent) + i32::cast_from(grid.exponent) - 150;
    // Down: round to nearest, half away from zero.
    let down = u32::cast_from(clamp(0 - shift, 0, 63));
    let one = Wide { low: 1u32.runtime(), high: 0u32.runtime() };
    let half = shift_right(shift_left(one, down), 1, 0);
    let rounded = shift_right(add(product, half), down, 0);
    // Up: a multiple of 2^up, which saturates at 2^55.
    let up = u32::cast_from(clamp(shift, 0, 60));
    let doubled = shift_left(rounded, select(shift > 60, 1u32, 0u32));
    let beyond = shift >= 60 && doubled.high >= 0x80_0000;
    let rounded = Wide {
        low: select(beyond, 0u32, doubled.low),
        high: select(beyond, 0x80_0000u32, doubled.high),
    };
    let sum = negate_if(rounded, 0 - (bits >> 31));
    let high = shift_right(copy(&noise), up, 0 - (noise.high >> 31));
    let back = shift_left(copy(&high), up);
    let rest = select(back.low == noise.low && back.high == noise.high, 0u32, 1u32);
    let total = add(sum, high);
    let bits = to_float(Wide { low: total.low | rest, high: total.high }, up);
    f32::reinterpret(bits) * f32::reinterpret(grid.factor)
}

/// Returns the bits of `total` 2^(up - 40), rounded to the nearest float, ties to even.
#[cube]
fn to_float(total: Wide, up: u32) -> u32 {
    let sign = total.high >> 31;
    let magnitude = negate_if(total, 0 - sign);
    let zeros = leading_zeros(copy(&magnitude));
    let normalized = shift_left(magnitude, zeros);
    let mantissa = normalized.high >> 8;
    let below = normalized.high & 255;
    let odd = (mantissa & 1) == 1 || normalized.low != 0;
    let round = select(below > 128 || (below == 128 && odd), 1u32, 0u32);
    // A carry into the exponent is correct, because the mantissa is then zero.
    let bits = ((up + 150 - zeros) << 23) + (mantissa - 0x80_0000) + round;
    select(mantissa == 0, 0u32, bits | (sign << 31))
}
