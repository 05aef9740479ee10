//! The release of sums: the noise of a keystream added in integers.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use super::keystream::{KEY_WORDS, block};
use super::normal::normal;
use super::wide::{Wide, add, copy, leading_zeros, negate_if, product, shift_left, shift_right};
use crate::ops::release_ops::{GROUP_BLOCKS, GROUP_VALUES, PART_WORDS};

/// Places of the words of a mechanism, after the ten of the stream.
pub(super) const RECIPROCAL: usize = 10;
pub(super) const EXPONENT: usize = 11;
pub(super) const FACTOR: usize = 12;

/// Number of words of a mechanism.
const MECHANISM_WORDS: usize = 13;

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

/// Returns the place of the words of the part that a unit works on: the last one whose first word,
/// the number of its first unit, is not larger.
///
/// - words: the words of the parts begin at `place`, `stride` words for each
#[cube]
pub(super) fn place_of_part(
    words: &[u32],
    place: usize,
    parts: usize,
    stride: usize,
    unit: usize,
) -> usize {
    let mut part = 0usize.runtime();
    let mut end = parts;
    while end - part > 1 {
        let middle = (part + end) / 2;
        if usize::cast_from(words[place + middle * stride]) <= unit {
            part = middle;
        } else {
            end = middle;
        }
    }
    place + part * stride
}

/// Computes the noisy values of the parts of sums, which are given as the bits of floats. One unit
/// computes the eight values of a block.
///
/// - words: the words of the parts begin at `place`: the first block, the first value in the sums
///   and in the result, the number of values, and the words of the mechanism
/// - blocks: the number of blocks of all parts
#[cube(launch)]
pub fn release_values(
    sums: &[u32],
    words: &[u32],
    table: &[u32],
    released: &mut [f32],
    blocks: usize,
    parts: usize,
    place: usize,
) {
    let unit = ABSOLUTE_POS;
    if unit < blocks {
        let part = place_of_part(words, place, parts, PART_WORDS + MECHANISM_WORDS, unit);
        let index = unit - usize::cast_from(words[part]);
        let from = usize::cast_from(words[part + 1]);
        let to = usize::cast_from(words[part + 2]);
        let count = usize::cast_from(words[part + 3]);
        let mechanism = part + PART_WORDS;
        let first = (index / GROUP_BLOCKS) * GROUP_VALUES + index % GROUP_BLOCKS;
        if first < count {
            let drawn = block(words, mechanism, mechanism + KEY_WORDS, u32::cast_from(index));
            let grid = grid(words, mechanism);
            for value in 0..8usize {
                let position = first + GROUP_BLOCKS * value;
                if position < count {
                    let (low, high) = (drawn[2 * value], drawn[2 * value + 1]);
                    let next = value ^ 1;
                    let other = Wide { low: drawn[2 * next], high: drawn[2 * next + 1] };
                    let noise = normal(Wide { low, high }, other, table);
                    released[to + position] = noisy(sums[from + position], noise, &grid);
                }
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
