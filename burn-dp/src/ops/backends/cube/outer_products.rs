//! The weighted sum of outer products, without copies that are scaled or that leave out examples.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

use crate::ops::kernels::VECTOR;

/// Number of units in a group, which compute the same rows.
pub(super) const UNITS: usize = 32;

/// Number of rows of the sum that one unit computes, in `VECTOR` columns.
pub(super) const ROWS: usize = 8;

/// Computes `Σ coefficients[i] left[i, t]ᵀ right[i, t]`, `[height, width]`, over examples and
/// positions. Examples with coefficient zero are not read. The second axis of the grid has the
/// rows.
///
/// - left: `[examples, positions, height]`, the last axis in vectors
/// - right: `[examples, positions, width]`, the last axis in vectors
/// - coefficients: their bits
/// - height, width: in vectors
#[cube(launch)]
pub fn selected_outer_products(
    left: &[Vector<f32, Const<VECTOR>>],
    right: &[Vector<f32, Const<VECTOR>>],
    coefficients: &[u32],
    sums: &mut [Vector<f32, Const<VECTOR>>],
    examples: usize,
    positions: usize,
    height: usize,
    width: usize,
) {
    let column = CUBE_POS_X as usize * UNITS + UNIT_POS as usize;
    let first = CUBE_POS_Y as usize * (ROWS / VECTOR);
    if column < width {
        let last = height - 1;
        let mut totals = Array::<Vector<f32, Const<VECTOR>>>::new(ROWS);
        #[unroll]
        for row in 0..ROWS {
            totals[row] = Vector::new(0.0);
        }
        for example in 0..examples {
            let coefficient = coefficients[example];
            if coefficient != 0 {
                let coefficient = Vector::<f32, Const<VECTOR>>::new(f32::reinterpret(coefficient));
                for position in example * positions..(example + 1) * positions {
                    let factors = coefficient * right[position * width + column];
                    #[unroll]
                    for vector in 0..ROWS / VECTOR {
                        // Rows after the last one are not stored.
                        let values = left[position * height + min(first + vector, last)];
                        #[unroll]
                        for place in 0..VECTOR {
                            let value = Vector::new(values.extract(place));
                            totals[vector * VECTOR + place] += value * factors;
                        }
                    }
                }
            }
        }
        #[unroll]
        for vector in 0..ROWS / VECTOR {
            if first + vector < height {
                #[unroll]
                for place in 0..VECTOR {
                    let row = (first + vector) * VECTOR + place;
                    sums[row * width + column] = totals[vector * VECTOR + place];
                }
            }
        }
    }
}
