//! Rows of values: sums whose order depends only on the length of a row, and their tasks.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Minimum number of values per task: below it, starting a task costs more than it saves.
pub(crate) const TASK_VALUES: usize = 1 << 14;

/// Number of values that one thread reads in the time it takes to wake the others.
const FEW_VALUES: usize = 1 << 15;

/// Number of values of a row that are accumulated separately.
pub(crate) const LANES: usize = 32;

/// Number of values that a lane adds in f32.
const LANE_DEPTH: usize = 32;

/// Upper bound on the number of times that [`dot`] rounds a product in f32: itself, in its lane,
/// when the lanes are combined, and in the result. Roundings in f64 are not counted.
pub const DOT_ROUNDINGS: usize = 1 + (LANE_DEPTH - 1) + LANES.ilog2() as usize + 1;

/// Combines the lanes in pairs.
#[inline(always)]
pub(crate) fn fold(lanes: [f32; LANES], function: impl Fn(f32, f32) -> f32) -> f32 {
    let half: [f32; 16] = std::array::from_fn(|lane| function(lanes[lane], lanes[lane + 16]));
    let half: [f32; 8] = std::array::from_fn(|lane| function(half[lane], half[lane + 8]));
    let half: [f32; 4] = std::array::from_fn(|lane| function(half[lane], half[lane + 4]));
    function(function(half[0], half[2]), function(half[1], half[3]))
}

/// Returns the sums of terms of two rows: blocks in f32 on independent lanes, the blocks added in
/// f64.
#[inline(always)]
pub(crate) fn sums<const N: usize>(
    first: &[f32],
    second: &[f32],
    term: impl Fn(f32, f32) -> [f32; N],
) -> [f64; N] {
    const BLOCK: usize = LANE_DEPTH * LANES;
    let mut totals = [0.0f64; N];
    for (first, second) in first.chunks(BLOCK).zip(second.chunks(BLOCK)) {
        let mut lanes = [[0.0f32; LANES]; N];
        let (first, first_rest) = first.as_chunks::<LANES>();
        let (second, second_rest) = second.as_chunks::<LANES>();
        for (first, second) in first.iter().zip(second) {
            for lane in 0..LANES {
                let terms = term(first[lane], second[lane]);
                for (lanes, term) in lanes.iter_mut().zip(terms) {
                    lanes[lane] += term;
                }
            }
        }
        for (lane, (&first, &second)) in first_rest.iter().zip(second_rest).enumerate() {
            for (lanes, term) in lanes.iter_mut().zip(term(first, second)) {
                lanes[lane] += term;
            }
        }
        for (total, lanes) in totals.iter_mut().zip(lanes) {
            *total += f64::from(fold(lanes, |first, second| first + second));
        }
    }
    totals
}

/// Returns the sum of terms of one row; see [`sums`].
#[inline(always)]
pub(crate) fn sum(row: &[f32], term: impl Fn(f32) -> f32) -> f64 {
    let [sum] = sums(row, row, |value, _| [term(value)]);
    sum
}

/// Returns `Σ first[i] second[i]`: blocks in f32 on independent lanes, the blocks added in f64.
pub fn dot(first: &[f32], second: &[f32]) -> f32 {
    assert_eq!(first.len(), second.len(), "the factors have the same length");
    Arch::new().dispatch(Dot { first, second })
}

/// Returns `Σ coefficients[i] · rows[i]`, on all cores. The sum is in the order of the rows.
///
/// - rows: `[coefficients, columns]`
pub fn weighted_rows(coefficients: &[f32], rows: &[f32], columns: usize) -> Vec<f32> {
    assert_eq!(rows.len(), coefficients.len() * columns, "every row has a coefficient");
    let mut sums = vec![0.0; columns];
    let add = |(index, sums): (usize, &mut [f32])| {
        Arch::new().dispatch(WeightedRows {
            coefficients,
            rows: &rows[index * WEIGHTED_COLUMNS..],
            columns,
            sums,
        });
    };
    match rows.len() <= FEW_VALUES {
        true => sums.chunks_mut(WEIGHTED_COLUMNS).enumerate().for_each(add),
        false => sums.par_chunks_mut(WEIGHTED_COLUMNS).enumerate().for_each(add),
    }
    sums
}

/// Number of columns in a task of [`weighted_rows`], whose sums stay in the cache of a core.
const WEIGHTED_COLUMNS: usize = 1 << 11;

/// Some columns of [`weighted_rows`], compiled for each vector unit.
struct WeightedRows<'a> {
    coefficients: &'a [f32],
    /// The rows, from the first of the columns on.
    rows: &'a [f32],
    columns: usize,
    sums: &'a mut [f32],
}

impl WithSimd for WeightedRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { coefficients, rows, columns, sums } = self;
        for (&coefficient, row) in coefficients.iter().zip(rows.chunks(columns)) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += coefficient * value;
            }
        }
    }
}

/// [`dot`], compiled for each vector unit.
struct Dot<'a> {
    first: &'a [f32],
    second: &'a [f32],
}

impl WithSimd for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let [sum] = sums(self.first, self.second, |first, second| [first * second]);
        sum as f32
    }
}

/// Returns the number of values of a task of whole rows, or `None` if one thread does all of them.
pub(crate) fn task(values: usize, row: usize) -> Option<usize> {
    (values > FEW_VALUES.max(row)).then(|| TASK_VALUES.div_ceil(row) * row)
}

/// Calls a function for tasks of whole rows, on all cores.
pub(crate) fn for_rows(
    values: &mut [f32],
    row: usize,
    function: impl Fn(&mut [f32]) + Send + Sync,
) {
    match task(values.len(), row) {
        None => function(values),
        Some(task) => values.par_chunks_mut(task).for_each(function),
    }
}

/// Calls a function for the same tasks of two arrays.
pub(crate) fn for_pairs(
    read: &[f32],
    values: &mut [f32],
    row: usize,
    function: impl Fn(&[f32], &mut [f32]) + Sync,
) {
    assert_eq!(read.len(), values.len(), "the arrays have the same rows");
    match task(values.len(), row) {
        None => function(read, values),
        Some(task) => read
            .par_chunks(task)
            .zip(values.par_chunks_mut(task))
            .for_each(|(read, values)| function(read, values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighted_rows_equal_sums_in_double_precision() {
        for (count, columns) in [(0, 5), (3, 1), (2, 5000), (40, WEIGHTED_COLUMNS + 7)] {
            let values = |count: usize, phase: f32| -> Vec<f32> {
                (0..count).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
            };
            let (coefficients, rows) = (values(count, 0.1), values(count * columns, 0.7));
            let sums = weighted_rows(&coefficients, &rows, columns);
            assert_eq!(sums.len(), columns);
            for (column, sum) in sums.into_iter().enumerate() {
                let terms = coefficients.iter().enumerate().map(|(row, &coefficient)| {
                    f64::from(coefficient) * f64::from(rows[row * columns + column])
                });
                assert!((f64::from(sum) - terms.sum::<f64>()).abs() <= 1e-5, "{count} {columns}");
            }
        }
    }

    #[test]
    fn dot_products_equal_sums_in_double_precision() {
        for length in [0, 1, 31, 32, 33, 1023, 1025, 5000] {
            let [first, second] = [0.1, 0.7].map(|phase| -> Vec<f32> {
                (0..length).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
            });
            let exact: f64 =
                first.iter().zip(&second).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let bound = 40.0 * f64::from(f32::EPSILON) * length as f64;
            assert!((f64::from(dot(&first, &second)) - exact).abs() <= bound, "{length}");
        }
    }
}
