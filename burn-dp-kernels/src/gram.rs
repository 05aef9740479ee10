//! Products of all pairs of rows of a matrix.

use pulp::{Arch, Simd, WithSimd};

use crate::matrix::Matrix;
use crate::packed::Packed;
use crate::tile::{DEPTH, lanes};

/// Number of columns of the products that are computed at a time from a packed part; the rows above
/// them are skipped.
const WIDTH: usize = 32;

/// Vectors in a row from which on the sum over a vector takes less time than packing.
const LONG: usize = 8;

/// Number of rows from which on packing takes a small part of the time.
const MANY: usize = 128;

/// Rows that are multiplied at a time with [`COLUMNS`] others: their sums stay in registers.
const ROWS: usize = 4;
const COLUMNS: usize = 3;

/// Computes the Gram matrix of the rows of a matrix, `[rows, rows]`, on one core. Only one half is
/// multiplied; the other one is copied.
///
/// The products of two rows are added in blocks of [`DEPTH`], in some order within a block, and the
/// blocks one after another.
pub fn gram(matrix: Matrix, sums: &mut [f32]) {
    let [rows, columns] = matrix.dims();
    assert_eq!(sums.len(), rows * rows, "every pair of rows has a sum");
    sums.fill(0.0);
    let is_long = columns >= LONG * lanes();
    for start in (0..columns).step_by(DEPTH) {
        let part = matrix.columns(start, DEPTH.min(columns - start));
        match is_long && rows < MANY && !part.transposed {
            true => Arch::new().dispatch(Gram { part, sums }),
            false => add_packed(part, sums),
        }
    }
    for row in 0..rows {
        for column in row + 1..rows {
            sums[row * rows + column] = sums[column * rows + row];
        }
    }
}

/// Adds the products of the rows, with vectors across rows. They have to be transposed unless the
/// matrix is.
fn add_packed(part: Matrix, sums: &mut [f32]) {
    let [rows, _] = part.dims();
    for start in (0..rows).step_by(WIDTH) {
        let panel = part.rows(start, WIDTH.min(rows - start));
        let below = part.rows(start, rows - start);
        let sums = &mut sums[start * rows..];
        Packed::new(panel.transpose()).add_to_columns(below, sums, start, rows);
    }
}

/// Adds the products of the rows, with vectors along rows.
struct Gram<'a> {
    part: Matrix<'a>,
    sums: &'a mut [f32],
}

impl WithSimd for Gram<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { part, sums } = self;
        let [rows, _] = part.dims();
        // A tile beyond the last row has that row several times.
        let row = |index: usize| part.row(index.min(rows - 1));
        for first in (0..rows).step_by(ROWS) {
            let left = std::array::from_fn(|index| row(first + index));
            for other in (0..rows.min(first + ROWS)).step_by(COLUMNS) {
                let right = std::array::from_fn(|index| row(other + index));
                let products = tile(simd, left, right);
                let columns = other..rows.min(other + COLUMNS);
                for (row, products) in (first..rows).zip(products) {
                    let sums = &mut sums[row * rows..][columns.clone()];
                    sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
                }
            }
        }
    }
}

/// Defines the function that multiplies [`ROWS`] rows with [`COLUMNS`] others. One variable for
/// each vector: they stay in registers.
macro_rules! tile {
    ([$($left:ident: $($sum:ident $other:ident),+);+], [$($right:ident),+]) => {
        /// Returns the inner products of some rows with others.
        #[inline(always)]
        fn tile<S: Simd>(
            simd: S,
            left: [&[f32]; ROWS],
            right: [&[f32]; COLUMNS],
        ) -> [[f32; COLUMNS]; ROWS] {
            let whole = left[0].len() - left[0].len() % S::F32_LANES;
            let rest = left[0].len() - whole;
            let [$($left),+] = left.map(|row| row.split_at(whole));
            let [$($right),+] = right.map(|row| row.split_at(whole));
            $($(let mut $sum = simd.splat_f32s(0.0);)+)+
            {
                let count = whole / S::F32_LANES;
                $(let $left = &S::as_simd_f32s($left.0).0[..count];)+
                $(let $right = &S::as_simd_f32s($right.0).0[..count];)+
                for place in 0..count {
                    $(let $right = $right[place];)+
                    $(
                        let value = $left[place];
                        $($sum = simd.mul_add_e_f32s(value, $other, $sum);)+
                    )+
                }
            }
            if rest > 0 {
                $(let $right = simd.partial_load_f32s($right.1);)+
                $(
                    let value = simd.partial_load_f32s($left.1);
                    $($sum = simd.mul_add_e_f32s(value, $other, $sum);)+
                )+
            }
            [$([$(simd.reduce_sum_f32s($sum)),+]),+]
        }
    };
}

tile! {
    [
        left_0: sum_00 right_0, sum_01 right_1, sum_02 right_2;
        left_1: sum_10 right_0, sum_11 right_1, sum_12 right_2;
        left_2: sum_20 right_0, sum_21 right_1, sum_22 right_2;
        left_3: sum_30 right_0, sum_31 right_1, sum_32 right_2
    ],
    [right_0, right_1, right_2]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::matrix::transpose;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 60, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn gram_matrices_equal_products_in_double_precision(
            rows in prop_oneof![1usize..90, 120usize..140],
            columns in prop_oneof![1usize..50, 90usize..110, 200usize..600],
            is_transposed: bool,
        ) {
            let values: Vec<f32> =
                (0..rows * columns).map(|i| (i as f32 * 0.37 + 0.1).sin()).collect();
            let mut sums = vec![1.5; rows * rows];
            let mut transposed = vec![0.0; rows * columns];
            transpose(&values, [rows, columns], &mut transposed);
            let matrix = match is_transposed {
                true => Matrix::new(&transposed, [columns, rows]).transpose(),
                false => Matrix::new(&values, [rows, columns]),
            };
            gram(matrix, &mut sums);
            for (place, sum) in sums.into_iter().enumerate() {
                let [first, second] =
                    [place / rows, place % rows].map(|row| &values[row * columns..][..columns]);
                let products = first.iter().zip(second).map(|(&a, &b)| f64::from(a) * f64::from(b));
                let (exact, size) = products
                    .fold((0.0, 0.0), |(sum, size), value| (sum + value, size + value.abs()));
                let bound = size * (columns + 1) as f64 * f64::from(f32::EPSILON);
                prop_assert!((f64::from(sum) - exact).abs() <= bound);
            }
        }
    }
}
