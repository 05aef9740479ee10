//! Products of matrices, added to the caller's memory.
//!
//! Burn's product fills each output with zeros and copies it on one core before it computes the
//! first term, which takes as long as the product itself where one axis is short. The arithmetic
//! here is as fast as in Burn's: vectors of the right factor, which is packed into panels, are
//! multiplied with one value of the left factor, and the sums of a tile stay in registers.
//!
//! The order of the terms of a sum depends only on the sizes, not on the number of threads.

use rayon::prelude::*;

use crate::matrix::{Matrix, transpose};
use crate::packed::{Factors, Packed};
use crate::tile::{DEPTH, TILE_ROWS};

/// Number of blocks of this many terms, and of columns of the right factor, that are packed at a
/// time.
const BLOCKS: usize = 8;
const COLUMNS: usize = 1 << 11;
/// Number of separately accumulated parts of a long sum with few columns, regardless of the number
/// of cores.
const PARTS: usize = 4;
/// Number of sums above which the terms are not split.
const MANY_SUMS: usize = 1 << 20;
/// Number of multiplications below which other threads would wake up too late.
const FEW_OPERATIONS: usize = 1 << 21;
/// Number of values that are packed in the time that it takes to transpose one sum.
const TRANSPOSE: usize = 2;

/// Adds `left · right` to `sums`, `[left rows, right columns]`, on all cores. The sums of a row do
/// not depend on the other rows, bit for bit.
pub fn add_product(left: Matrix, right: Matrix, sums: &mut [f32]) {
    check(left, right);
    let size = left.rows * right.columns;
    assert_eq!(sums.len(), size, "a product has the rows and columns of its factors");
    add_rows(left, right, None, sums);
}

/// Returns `leftᵀ · diag(factors) · right`, with one factor for each group of consecutive rows, or
/// without factors.
pub fn weighted_product(left: Matrix, right: Matrix, factors: Option<&[f32]>) -> Vec<f32> {
    let (rows, columns, depth) = (left.columns, right.columns, right.rows);
    let factors = factors.map(|factors| Factors {
        factors,
        repeat: (depth / factors.len().max(1)).max(1),
        start: 0,
    });
    // The right factor is packed, so it should be the one with fewer columns.
    if columns.saturating_sub(rows) * depth <= TRANSPOSE * rows * columns {
        return sum_products(left, right, factors);
    }
    let transposed = sum_products(right, left, factors);
    let mut sums = vec![0.0; rows * columns];
    transpose(&transposed, [columns, rows], &mut sums);
    sums
}

/// Returns `leftᵀ · diag(factors) · right`, whose right factor is packed.
fn sum_products(left: Matrix, right: Matrix, factors: Option<Factors>) -> Vec<f32> {
    let left = left.transpose();
    check(left, right);
    let (rows, columns, depth) = (left.rows, right.columns, right.rows);
    if depth < PARTS * DEPTH || rows * columns > MANY_SUMS {
        let mut sums = vec![0.0; rows * columns];
        add_rows(left, right, factors, &mut sums);
        return sums;
    }
    // Many terms and few sums: the cores add up different terms.
    let part = depth.div_ceil(PARTS);
    let starts: Vec<usize> = (0..depth).step_by(part).collect();
    let sum_part = |start: usize| {
        let part = part.min(depth - start);
        let factors = factors.map(|factors| factors.from(start));
        let mut sums = vec![0.0; rows * columns];
        add_blocks(left.columns(start, part), right.rows(start, part), factors, &mut sums, rows);
        sums
    };
    let mut parts: Vec<Vec<f32>> = starts.into_par_iter().map(sum_part).collect();
    let mut sums = parts.remove(0);
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sums
}

fn check(left: Matrix, right: Matrix) {
    assert_eq!(left.columns, right.rows, "the factors of a product fit");
}

/// Adds a product; the cores compute different rows.
fn add_rows(left: Matrix, right: Matrix, factors: Option<Factors>, sums: &mut [f32]) {
    let rows = left.rows;
    let task = match rows * right.columns * right.rows < FEW_OPERATIONS {
        true => rows,
        false => {
            let threads = rayon::current_num_threads();
            rows.div_ceil(4 * threads).next_multiple_of(TILE_ROWS).min(16 * TILE_ROWS)
        }
    };
    add_blocks(left, right, factors, sums, task);
}

/// Adds a product, some terms and columns at a time.
///
/// - task: rows of a task; all for a single core
fn add_blocks(
    left: Matrix,
    right: Matrix,
    factors: Option<Factors>,
    sums: &mut [f32],
    task: usize,
) {
    let (rows, stride) = (left.rows, right.columns);
    if rows == 0 {
        return;
    }
    for first in (0..right.rows).step_by(BLOCKS * DEPTH) {
        let depth = (BLOCKS * DEPTH).min(right.rows - first);
        let (left, right) = (left.columns(first, depth), right.rows(first, depth));
        let factors = factors.map(|factors| factors.from(first));
        for start in (0..stride).step_by(COLUMNS) {
            let right = right.columns(start, COLUMNS.min(stride - start));
            let pack = |first: usize| {
                let depth = DEPTH.min(depth - first);
                let factors = factors.map(|factors| factors.from(first));
                (left.columns(first, depth), Packed::scaled(right.rows(first, depth), factors))
            };
            let add = |blocks: &[(Matrix, Packed)], (index, sums): (usize, &mut [f32])| {
                for (left, packed) in blocks {
                    let left = left.rows(index * task, sums.len() / stride);
                    packed.add_to_columns(left, sums, start, stride);
                }
            };
            let firsts: Vec<usize> = (0..depth).step_by(DEPTH).collect();
            if task < rows {
                let blocks: Vec<_> = firsts.into_par_iter().map(pack).collect();
                let tasks = sums.par_chunks_mut(task * stride).enumerate();
                tasks.for_each(|part| add(&blocks, part));
            } else {
                let blocks: Vec<_> = firsts.into_iter().map(pack).collect();
                add(&blocks, (0, &mut *sums));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Arbitrary values.
    fn values(count: usize, phase: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
    }

    /// Returns `Σ_t left[i, t] factors[t / repeat] right[t, j]` and the sums of the magnitudes.
    fn exact(left: Matrix, right: Matrix, factor: impl Fn(usize) -> f32) -> Vec<(f64, f64)> {
        let at = |matrix: &Matrix, row: usize, column: usize| match matrix.transposed {
            true => f64::from(matrix.values[column * matrix.stride + row]),
            false => f64::from(matrix.values[row * matrix.stride + column]),
        };
        let sum = |row: usize, column: usize| {
            (0..left.columns)
                .map(|term| {
                    let factor = f64::from(factor(term));
                    at(&left, row, term) * factor * at(&right, term, column)
                })
                .fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
        };
        (0..left.rows)
            .flat_map(|row| (0..right.columns).map(move |j| (row, j)))
            .map(|(i, j)| sum(i, j))
            .collect()
    }

    fn check(found: &[f32], before: f64, exact: &[(f64, f64)], terms: usize) {
        for (&found, &(sum, size)) in found.iter().zip(exact) {
            let error = (f64::from(found) - (before + sum)).abs();
            let bound = (size + before) * (terms + 2) as f64 * f64::from(f32::EPSILON);
            assert!(error <= bound, "{found} {sum} {size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 60, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn products_equal_sums_in_double_precision(
            rows in 1usize..200,
            inner in prop_oneof![1usize..600, 1024usize..1500],
            columns in 1usize..150,
            left_transposed: bool,
            right_transposed: bool,
        ) {
            let (left, right) = (values(rows * inner, 0.1), values(inner * columns, 0.7));
            let left = match left_transposed {
                true => Matrix::new(&left, [inner, rows]).transpose(),
                false => Matrix::new(&left, [rows, inner]),
            };
            let right = match right_transposed {
                true => Matrix::new(&right, [columns, inner]).transpose(),
                false => Matrix::new(&right, [inner, columns]),
            };
            let expected = exact(left, right, |_| 1.0);
            let mut sums = vec![1.5; rows * columns];
            add_product(left, right, &mut sums);
            check(&sums, 1.5, &expected, inner);

            let mut packed = vec![1.5; rows * columns];
            Packed::new(right).add_product(left, &mut packed);
            check(&packed, 1.5, &expected, inner);
        }

        #[test]
        fn weighted_products_scale_the_rows_of_each_example(
            examples in 1usize..20,
            positions in 1usize..80,
            sizes in [1usize..90, 1usize..90],
        ) {
            let (inner, [rows, columns]) = (examples * positions, sizes);
            let (left, right) = (values(inner * rows, 0.1), values(inner * columns, 0.7));
            let left = Matrix::new(&left, [inner, rows]);
            let right = Matrix::new(&right, [inner, columns]);
            let factors = values(examples, 0.3);
            let expected = exact(left.transpose(), right, |row| factors[row / positions]);
            check(&weighted_product(left, right, Some(&factors)), 0.0, &expected, inner + 1);
        }
    }

    #[test]
    fn weighted_products_of_factors_with_other_numbers_of_rows_are_refused() {
        // Below and above the number of terms that are added in parts.
        for terms in [3, PARTS * DEPTH] {
            let values = values(2 * terms + 2, 0.1);
            let matrix = |rows: usize| Matrix::new(&values[..2 * rows], [rows, 2]);
            for [left, right] in [[terms + 1, terms], [terms, terms + 1]] {
                let product = || weighted_product(matrix(left), matrix(right), None);
                let refused = std::panic::catch_unwind(product).unwrap_err();
                let message = refused.downcast_ref::<String>().unwrap();
                assert!(message.contains("the factors of a product fit"), "{message}");
            }
        }
    }

    #[test]
    fn large_products_are_computed_in_blocks() {
        let (rows, inner, columns) = (13, 300, COLUMNS + 70);
        let (left, right) = (values(rows * inner, 0.1), values(inner * columns, 0.7));
        let left = Matrix::new(&left, [rows, inner]);
        let right = Matrix::new(&right, [inner, columns]);
        let mut sums = vec![0.0; rows * columns];
        add_product(left, right, &mut sums);
        check(&sums, 0.0, &exact(left, right, |_| 1.0), inner);
    }

    #[test]
    fn the_sums_of_a_row_do_not_depend_on_the_other_rows() {
        let (inner, columns) = (1300, 70);
        let (left, right) = (values(300 * inner, 0.1), values(inner * columns, 0.7));
        let product = |rows: usize| {
            let left = Matrix::new(&left[..rows * inner], [rows, inner]);
            let mut sums = vec![0.0; rows * columns];
            add_product(left, Matrix::new(&right, [inner, columns]), &mut sums);
            sums
        };
        let all = product(300);
        for rows in [1, 2, 5, 6, 7, 64, 299] {
            assert!(product(rows) == all[..rows * columns], "{rows}");
        }
    }

    #[test]
    fn a_product_does_not_depend_on_threads() {
        let (rows, inner, columns) = (301, 1700, 130);
        let (left, right) = (values(rows * inner, 0.1), values(inner * columns, 0.7));
        let products = || {
            let right = Matrix::new(&right, [inner, columns]);
            let mut sums = vec![0.0; rows * columns];
            add_product(Matrix::new(&left, [rows, inner]), right, &mut sums);
            (sums, weighted_product(Matrix::new(&left, [inner, rows]), right, None))
        };
        let reference = products();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert!(pool.install(products) == reference, "{threads}");
        }
    }
}
