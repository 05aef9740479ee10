//! Squared norms of rows: one group of units for each part of a row.

use burn_cubecl::cubecl;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::is_processor;
use crate::ops::kernels::{PART, PROCESSOR_UNITS, RUN, UNITS};

/// Returns the number of units in a group.
pub(super) fn units(client: &Client) -> usize {
    if is_processor(client) { PROCESSOR_UNITS } else { UNITS }
}

/// Returns the sum of the squares of part `part` of row `row`, in the first unit.
#[cube]
fn sum_of_squares(
    rows: &[f32],
    shared: &mut Shared<[f32]>,
    row: usize,
    part: usize,
    values: usize,
    #[comptime] units: usize,
) -> f32 {
    let unit = UNIT_POS as usize;
    let first = part * PART;
    let end = min(first + PART, values);
    let mut sum = 0.0f32;
    let mut position = first + unit;
    while position < end {
        let mut run = 0.0f32;
        let stop = min(position + RUN * units, end);
        while position < stop {
            let value = rows[row * values + position];
            run += value * value;
            position += units;
        }
        sum += run;
    }
    shared[unit] = sum;
    sync_cube();
    let mut total = 0.0f32;
    if unit == 0 {
        for other in 0..units {
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
    #[comptime] units: usize,
) {
    let group = CUBE_POS;
    let mut shared = Shared::<[f32]>::new_slice(units);
    // A group after the last one reads the last part again.
    let index = min(group, groups - 1);
    let total = sum_of_squares(rows, &mut shared, index / parts, index % parts, values, units);
    if group < groups && UNIT_POS == 0 {
        norms[group] = total * factor + added;
    }
}

/// Computes the sums of squares of right rows, `factor` times, plus `added`, and their products
/// with the ones of left rows.
#[cube(launch)]
pub fn norm_products(
    left: &[f32],
    right: &[f32],
    products: &mut [f32],
    right_norms: &mut [f32],
    left_values: usize,
    right_values: usize,
    groups: usize,
    left_factor: f32,
    left_added: f32,
    right_factor: f32,
    right_added: f32,
    #[comptime] units: usize,
) {
    let group = CUBE_POS;
    let mut of_left = Shared::<[f32]>::new_slice(units);
    let mut of_right = Shared::<[f32]>::new_slice(units);
    let row = min(group, groups - 1);
    let left = sum_of_squares(left, &mut of_left, row, 0, left_values, units);
    let right = sum_of_squares(right, &mut of_right, row, 0, right_values, units);
    if group < groups && UNIT_POS == 0 {
        let right = right * right_factor + right_added;
        right_norms[group] = right;
        products[group] = (left * left_factor + left_added) * right;
    }
}
