//! Squared norms of rows: one group of units for each part of a row.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use crate::ops::kernels::{PART, RUN, UNITS};

/// Returns the sum of the squares of part `part` of row `row`, in the first unit.
#[cube]
fn sum_of_squares(
    rows: &[f32],
    shared: &mut Shared<[f32]>,
    row: usize,
    part: usize,
    values: usize,
) -> f32 {
    let unit = UNIT_POS as usize;
    let first = part * PART;
    let end = min(first + PART, values);
    let mut sum = 0.0f32;
    let mut position = first + unit;
    while position < end {
        let mut run = 0.0f32;
        let stop = min(position + RUN * UNITS, end);
        while position < stop {
            let value = rows[row * values + position];
            run += value * value;
            position += UNITS;
        }
        sum += run;
    }
    shared[unit] = sum;
    sync_cube();
    let mut total = 0.0f32;
    if unit == 0 {
        for other in 0..UNITS {
            total += shared[other];
        }
    }
    total
}

/// Computes the sums of squares of all parts of rows, `factor` times, plus `added`.
#[cube(launch)]
pub fn part_norms(
    rows: &[f32],
    norms: &mut [f32],
    values: usize,
    parts: usize,
    groups: usize,
    factor: f32,
    added: f32,
) {
    let group = CUBE_POS;
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    // A group after the last one reads the last part again.
    let index = min(group, groups - 1);
    let total = sum_of_squares(rows, &mut shared, index / parts, index % parts, values);
    if group < groups && UNIT_POS == 0 {
        norms[group] = total * factor + added;
    }
}

/// Computes the products of the sums of squares of two rows, each `factor` times, plus `added`.
#[cube(launch)]
pub fn norm_products(
    left: &[f32],
    right: &[f32],
    norms: &mut [f32],
    left_values: usize,
    right_values: usize,
    groups: usize,
    left_factor: f32,
    left_added: f32,
    right_factor: f32,
    right_added: f32,
) {
    let group = CUBE_POS;
    let mut of_left = Shared::<[f32]>::new_slice(UNITS);
    let mut of_right = Shared::<[f32]>::new_slice(UNITS);
    let row = min(group, groups - 1);
    let left = sum_of_squares(left, &mut of_left, row, 0, left_values);
    let right = sum_of_squares(right, &mut of_right, row, 0, right_values);
    if group < groups && UNIT_POS == 0 {
        norms[group] = (left * left_factor + left_added) * (right * right_factor + right_added);
    }
}
