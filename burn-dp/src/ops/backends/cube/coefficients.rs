//! Clipping coefficients, and the weighted sum of rows.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use crate::ops::kernels::words::{
    ADDED, FIRST_GROUP, FIRST_PARAMETER, GROUP_THRESHOLD, NORMALIZE, PARAMETER_WORDS, PER_GROUP,
    REAL, ROUNDING, SLACK, SQUARED_MULTIPLIER, STABILITY,
};

/// The bits of infinity.
const INFINITY: u32 = 0x7f80_0000;

/// Computes the squared norms of the groups and the coefficients of one unit.
///
/// A device may assume that no value is infinite or NaN, so that this is decided on the bits of
/// what it loads, and of sums.
///
/// - table: squared norms and magnitudes of the parameters, as their bits, `[any, units]`
/// - norms: bits of the squared norms, `[groups, units]`; infinite for units that are left out
/// - coefficients: `[rows, units]`
#[cube(launch)]
pub fn coefficients(
    table: &[u32],
    clipping: &[u32],
    norms: &mut [u32],
    coefficients: &mut [f32],
    units: usize,
    groups: usize,
    rows: usize,
) {
    let unit = ABSOLUTE_POS;
    if unit < units {
        let mut left_out = 0u32;
        let mut total = 0.0f32;
        let mut whole = 0.0f32;
        let mut place = FIRST_GROUP.runtime();
        for group in 0..groups {
            let mut sum = 0.0f32;
            let parameters = usize::cast_from(clipping[place]);
            for parameter in 0..parameters {
                let at = place + FIRST_PARAMETER + PARAMETER_WORDS * parameter;
                let row = usize::cast_from(clipping[at]);
                let value = table[row * units + unit];
                left_out |= not_finite(value);
                // Rounding can make a ghost norm negative.
                let value = f32::reinterpret(select(value >> 31 == 1, 0u32, value));
                let first = f32::reinterpret(clipping[at + 2]);
                if clipping[at + 1] == 0 {
                    sum += value * first;
                } else {
                    let magnitude = table[(row + 1) * units + unit];
                    left_out |= not_finite(magnitude);
                    let magnitude = f32::reinterpret(magnitude);
                    let second = f32::reinterpret(clipping[at + 3]);
                    let norm = (value + first * magnitude).sqrt() + second * magnitude.sqrt();
                    sum += norm * norm;
                }
            }
            let sum = sum * f32::reinterpret(clipping[place + SLACK])
                + f32::reinterpret(clipping[place + ADDED]);
            norms[group * units + unit] = u32::reinterpret(sum);
            total += sum;
            whole += sum * f32::reinterpret(clipping[place + SQUARED_MULTIPLIER]);
            place += FIRST_PARAMETER + PARAMETER_WORDS * parameters;
        }
        left_out |= not_finite(u32::reinterpret(total));
        left_out |= not_finite(u32::reinterpret(whole));
        if left_out != 0 {
            for group in 0..groups {
                norms[group * units + unit] = INFINITY;
            }
        }
        let real = usize::cast_from(clipping[REAL]);
        if real != 0 && clipping[real + unit] == 0 {
            left_out = 1;
        }
        let mut place = FIRST_GROUP.runtime();
        for row in 0..rows {
            let mut coefficient = 0.0f32;
            if left_out == 0 {
                let mut squared = whole;
                if clipping[PER_GROUP] == 1 {
                    squared = f32::reinterpret(norms[row * units + unit]);
                }
                let threshold = f32::reinterpret(clipping[place + GROUP_THRESHOLD]);
                let norm = squared.sqrt() * f32::reinterpret(clipping[ROUNDING]);
                if clipping[NORMALIZE] == 1 {
                    coefficient = threshold / (norm + f32::reinterpret(clipping[STABILITY]));
                } else if norm <= threshold {
                    coefficient = 1.0;
                } else {
                    coefficient = threshold / norm;
                }
            }
            coefficients[row * units + unit] = coefficient;
            place += FIRST_PARAMETER + PARAMETER_WORDS * usize::cast_from(clipping[place]);
        }
    }
}

/// Returns 1 for the bits of a value that is NaN, infinite, or so close to overflow that a device
/// may have rounded it down from there.
#[cube]
fn not_finite(bits: u32) -> u32 {
    select((bits >> 23) & 255 >= 254, 1u32, 0u32)
}

/// Returns `coefficient * value`, or zero if the coefficient is zero: the value is replaced on its
/// bits, because a product would keep NaN.
#[cube]
fn product(coefficient: u32, value: u32) -> f32 {
    let kept = select(coefficient == 0, 0u32, 0xffff_ffffu32);
    f32::reinterpret(coefficient) * f32::reinterpret(value & kept)
}

/// Multiplies rows by their coefficients, or only replaces those with coefficient zero. Both are
/// given as bits. The second axis of the grid has the rows.
#[cube(launch)]
pub fn selected(
    rows: &[u32],
    coefficients: &[u32],
    selected: &mut [f32],
    values: usize,
    #[comptime] is_scaled: bool,
) {
    let value = usize::cast_from(ABSOLUTE_POS_X);
    if value < values {
        let row = usize::cast_from(CUBE_POS_Y);
        let place = row * values + value;
        let coefficient = coefficients[row];
        if comptime![is_scaled] {
            selected[place] = product(coefficient, rows[place]);
        } else {
            selected[place] = product(one_unless_zero(coefficient), rows[place]);
        }
    }
}

/// Returns the bits of one, or zero for a coefficient of zero.
#[cube]
fn one_unless_zero(coefficient: u32) -> u32 {
    select(coefficient == 0, 0u32, 0x3f80_0000u32)
}

/// Number of rows that are added in one loop.
const BLOCK: usize = 1 << 10;

/// Adds rows that are multiplied by their coefficients, both given as bits.
#[cube(launch)]
pub fn selected_rows(
    coefficients: &[u32],
    rows: &[u32],
    sums: &mut [f32],
    count: usize,
    values: usize,
) {
    let value = ABSOLUTE_POS;
    if value < values {
        let mut sum = 0.0f32;
        for block in 0..count.div_ceil(BLOCK) {
            let mut of_block = 0.0f32;
            for row in block * BLOCK..min((block + 1) * BLOCK, count) {
                of_block += product(coefficients[row], rows[row * values + value]);
            }
            sum += of_block;
        }
        sums[value] = sum;
    }
}
