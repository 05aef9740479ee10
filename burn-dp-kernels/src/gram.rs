//! Products of all pairs of rows of a matrix.

use crate::matrix::Matrix;
use crate::packed::Packed;
use crate::tile::DEPTH;

/// Number of columns of the products that are computed at a time; the rows above them are skipped.
const WIDTH: usize = 32;

/// Computes the Gram matrix of the rows of a matrix, `[rows, rows]`, on one core. Only one half is
/// multiplied; the other one is copied.
pub fn gram(matrix: Matrix, sums: &mut [f32]) {
    let [rows, columns] = matrix.dims();
    assert_eq!(sums.len(), rows * rows, "every pair of rows has a sum");
    sums.fill(0.0);
    for first in (0..columns).step_by(DEPTH) {
        let part = matrix.columns(first, DEPTH.min(columns - first));
        for start in (0..rows).step_by(WIDTH) {
            let panel = part.rows(start, WIDTH.min(rows - start));
            let below = part.rows(start, rows - start);
            let sums = &mut sums[start * rows..];
            Packed::new(panel.transpose()).add_to_columns(below, sums, start, rows);
        }
    }
    for row in 0..rows {
        for column in row + 1..rows {
            sums[row * rows + column] = sums[column * rows + row];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 60, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn gram_matrices_equal_products_in_double_precision(
            rows in 1usize..90,
            columns in prop_oneof![1usize..50, 200usize..600],
        ) {
            let values: Vec<f32> =
                (0..rows * columns).map(|i| (i as f32 * 0.37 + 0.1).sin()).collect();
            let mut sums = vec![1.5; rows * rows];
            gram(Matrix::new(&values, [rows, columns]), &mut sums);
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
