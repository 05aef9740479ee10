//! Products of matrices, added to memory of the caller.
//!
//! Burn's product fills each output with zeros and copies it on one core before it computes the
//! first term, which takes as long as the product itself where one axis is short. The arithmetic
//! here is as fast as in Burn's: vectors of the right factor, which is packed into panels, are
//! multiplied with one value of the left factor, and the sums of a tile stay in registers.
//!
//! The order of the terms of a sum follows from the sizes alone, not from the number of threads.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Rows of a tile.
const TILE_ROWS: usize = 6;
/// Terms that are added in registers: a panel of this depth stays in the cache of a core.
const DEPTH: usize = 256;
/// Columns of the right factor that are packed at a time.
const COLUMNS: usize = 1 << 11;
/// Parts of a long sum of few columns that are added up apart, whatever the number of cores.
const PARTS: usize = 4;
/// Multiplications below which other threads would wake up too late.
const FEW_OPERATIONS: usize = 1 << 20;

/// A matrix in the memory of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// Distance between rows, if the columns of a row are next to each other.
    stride: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Takes the values of `[rows, columns]`, one row after another.
    pub fn new(values: &'a [f32], [rows, columns]: [usize; 2]) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix has the values of all its rows");
        Self { values, rows, columns, stride: columns, transposed: false }
    }

    /// Takes rows that start `stride` values apart, or fewer values behind the last one.
    ///
    /// # Panics
    ///
    /// Panics if the values end before the last row does.
    pub fn with_stride(values: &'a [f32], [rows, columns]: [usize; 2], stride: usize) -> Self {
        let end = if rows * columns == 0 { 0 } else { (rows - 1) * stride + columns };
        assert!(values.len() >= end, "a matrix has the values of all its rows");
        Self { values, rows, columns, stride, transposed: false }
    }

    /// Returns the number of rows and columns.
    pub fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Exchanges rows and columns.
    pub fn transpose(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// Returns `count` rows from `start` on.
    fn rows(self, start: usize, count: usize) -> Self {
        let first = if self.transposed { start } else { start * self.stride };
        Self { values: self.values.get(first..).unwrap_or_default(), rows: count, ..self }
    }

    /// Returns `count` columns from `start` on.
    fn columns(self, start: usize, count: usize) -> Self {
        self.transpose().rows(start, count).transpose()
    }

    /// Returns row `index`, whose values are next to each other.
    fn row(&self, index: usize) -> &'a [f32] {
        debug_assert!(!self.transposed);
        &self.values[index * self.stride..][..self.columns]
    }
}

/// The right factor of a product, in panels of some vectors.
#[derive(Clone, Debug)]
pub struct Packed {
    depth: usize,
    columns: usize,
    /// Columns of a panel but the last, which has as many vectors as it needs.
    width: usize,
    values: Vec<f32>,
}

impl Packed {
    /// Packs a matrix.
    pub fn new(matrix: Matrix) -> Self {
        Self::scaled(matrix, None, false)
    }

    /// Packs a matrix, each row of which is multiplied by its factor.
    fn scaled(matrix: Matrix, factors: Option<Factors>, on_all_cores: bool) -> Self {
        let (depth, columns) = (matrix.rows, matrix.columns);
        let lanes = lanes();
        let width = panel_vectors(lanes) * lanes;
        let mut values = vec![0.0; depth * columns.next_multiple_of(lanes)];
        let panel = (depth * width).max(1);
        let pack = |(index, panel): (usize, &mut [f32])| {
            let start = index * width;
            let used = width.min(columns - start);
            // The last panel has fewer vectors.
            let width = panel.len() / depth;
            let part = matrix.columns(start, used);
            match part.transposed {
                true => copy_transposed(part.transpose(), panel, width),
                false => {
                    let to = panel.chunks_exact_mut(width);
                    to.enumerate().for_each(|(row, to)| to[..used].copy_from_slice(part.row(row)));
                }
            }
            if let Some(factors) = factors {
                for (row, values) in panel.chunks_exact_mut(width).enumerate() {
                    let factor = factors.of(row);
                    values.iter_mut().for_each(|value| *value *= factor);
                }
            }
        };
        match on_all_cores {
            true => values.par_chunks_mut(panel).enumerate().for_each(pack),
            false => values.chunks_mut(panel).enumerate().for_each(pack),
        }
        Self { depth, columns, width, values }
    }

    /// Returns the number of rows of the matrix.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the number of columns of the matrix.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Adds `left · self` to `sums`, `[left rows, columns]`.
    pub fn add_product(&self, left: Matrix, sums: &mut [f32]) {
        self.add_to_columns(left, sums, 0, self.columns);
    }

    /// Adds the product to some columns of `sums`.
    ///
    /// - start: the first column
    /// - stride: columns of `sums`
    fn add_to_columns(&self, left: Matrix, sums: &mut [f32], start: usize, stride: usize) {
        assert_eq!(left.columns, self.depth, "the factors of a product fit");
        if left.rows == 0 || self.depth == 0 || self.columns == 0 {
            return;
        }
        let copied: Vec<f32>;
        let left = match left.transposed {
            false => left,
            true => {
                let mut rows = vec![0.0; left.rows * left.columns];
                copy_transposed(left.transpose(), &mut rows, left.columns);
                copied = rows;
                Matrix::new(&copied, [left.rows, left.columns])
            }
        };
        Arch::new().dispatch(AddProduct { left, right: self, sums, start, stride });
    }
}

/// Writes the values of `[rows, columns]` in the order of `[columns, rows]`.
pub fn transpose(from: &[f32], shape: [usize; 2], to: &mut [f32]) {
    copy_transposed(Matrix::new(from, shape), to, shape[0]);
}

/// Writes row r of a matrix to the values `to[r]`, `to[r + stride]` and so on.
fn copy_transposed(matrix: Matrix, to: &mut [f32], stride: usize) {
    const BLOCK: usize = 8;
    for first in (0..matrix.rows).step_by(BLOCK) {
        let count = BLOCK.min(matrix.rows - first);
        if count < BLOCK {
            for row in first..first + count {
                let to = to[row..].iter_mut().step_by(stride);
                to.zip(matrix.row(row)).for_each(|(to, &value)| *to = value);
            }
            break;
        }
        // Whole blocks are written next to each other.
        let rows: [&[f32]; BLOCK] = std::array::from_fn(|row| matrix.row(first + row));
        for (column, to) in to.chunks_mut(stride).take(matrix.columns).enumerate() {
            for (to, row) in to[first..first + BLOCK].iter_mut().zip(rows) {
                *to = row[column];
            }
        }
    }
}

/// Factors of the rows of a matrix.
#[derive(Clone, Copy)]
struct Factors<'a> {
    factors: &'a [f32],
    /// Rows that have one factor.
    repeat: usize,
    /// The first row.
    start: usize,
}

impl Factors<'_> {
    /// Returns the factors from row `first` on.
    fn from(self, first: usize) -> Self {
        Self { start: self.start + first, ..self }
    }

    fn of(&self, row: usize) -> f32 {
        self.factors[(self.start + row) / self.repeat]
    }
}

/// Adds `left · right` to `sums`, `[left rows, right columns]`, on all cores.
pub fn add_product(left: Matrix, right: Matrix, sums: &mut [f32]) {
    add_scaled_product(left, right, None, sums);
}

/// Returns `leftᵀ · diag(factors) · right`, with one factor for each group of consecutive rows.
pub fn weighted_product(left: Matrix, right: Matrix, factors: &[f32]) -> Vec<f32> {
    let repeat = (right.rows / factors.len().max(1)).max(1);
    let mut sums = vec![0.0; left.columns * right.columns];
    let factors = Factors { factors, repeat, start: 0 };
    add_scaled_product(left.transpose(), right, Some(factors), &mut sums);
    sums
}

fn add_scaled_product(left: Matrix, right: Matrix, factors: Option<Factors>, sums: &mut [f32]) {
    let (rows, columns, depth) = (left.rows, right.columns, right.rows);
    assert_eq!(left.columns, depth, "the factors of a product fit");
    assert_eq!(sums.len(), rows * columns, "a product has the rows and columns of its factors");
    if rows * columns * depth < FEW_OPERATIONS {
        return add_blocks(left, right, factors, sums, rows);
    }
    if depth < PARTS * DEPTH || rows * columns > FEW_OPERATIONS {
        let threads = rayon::current_num_threads();
        let task = rows.div_ceil(4 * threads).next_multiple_of(TILE_ROWS).min(16 * TILE_ROWS);
        return add_blocks(left, right, factors, sums, task);
    }
    // Many terms of few sums: the cores add up different terms.
    let part = depth.div_ceil(PARTS).next_multiple_of(DEPTH);
    let starts: Vec<usize> = (0..depth).step_by(part).collect();
    let sum_part = |start: usize| {
        let part = part.min(depth - start);
        let factors = factors.map(|factors| factors.from(start));
        let mut sums = vec![0.0; rows * columns];
        add_blocks(left.columns(start, part), right.rows(start, part), factors, &mut sums, rows);
        sums
    };
    let parts: Vec<Vec<f32>> = starts.into_par_iter().map(sum_part).collect();
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
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
    for first in (0..right.rows).step_by(DEPTH) {
        let depth = DEPTH.min(right.rows - first);
        let (left, right) = (left.columns(first, depth), right.rows(first, depth));
        let factors = factors.map(|factors| factors.from(first));
        for start in (0..stride).step_by(COLUMNS) {
            let right = right.columns(start, COLUMNS.min(stride - start));
            let packed = Packed::scaled(right, factors, task < rows);
            let add = |(index, sums): (usize, &mut [f32])| {
                let left = left.rows(index * task, sums.len() / stride);
                packed.add_to_columns(left, sums, start, stride);
            };
            match task < rows {
                true => sums.par_chunks_mut(task * stride).enumerate().for_each(add),
                false => add((0, &mut *sums)),
            }
        }
    }
}

/// Returns the number of values of a vector.
pub(crate) fn lanes() -> usize {
    Arch::new().dispatch(Lanes)
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// Vectors of a panel: with the rows of a tile they fit into the registers, 32 of 16 values or 16
/// of fewer.
pub(crate) const fn panel_vectors(lanes: usize) -> usize {
    if lanes == 16 { 4 } else { 2 }
}

/// A product on one core, compiled for each vector unit.
struct AddProduct<'a> {
    left: Matrix<'a>,
    right: &'a Packed,
    sums: &'a mut [f32],
    start: usize,
    stride: usize,
}

impl WithSimd for AddProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { left, right, sums, start, stride } = self;
        let starts: Vec<usize> = (0..left.rows).map(|row| row * left.stride).collect();
        let (values, length) = (left.values, left.columns);
        let left = Rows { values, starts: &starts, runs: 1, length, pitch: 0 };
        right.add(simd, left, sums, start, stride);
    }
}

/// A product of runs on one core, compiled for each vector unit.
struct AddRuns<'a> {
    left: Rows<'a>,
    right: &'a Packed,
    sums: &'a mut [f32],
}

impl WithSimd for AddRuns<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { left, right, sums } = self;
        right.add(simd, left, sums, 0, right.columns);
    }
}

impl Packed {
    /// Adds `left · self` to the sums of rows of runs, `[left rows, columns]`.
    pub(crate) fn add_runs(&self, left: Rows, sums: &mut [f32]) {
        assert_eq!(left.runs * left.length, self.depth, "the factors of a product fit");
        assert_eq!(left.starts.len() * self.columns, sums.len(), "the sums fit their factors");
        Arch::new().dispatch(AddRuns { left, right: self, sums });
    }

    #[inline(always)]
    fn add<S: Simd>(&self, simd: S, left: Rows, sums: &mut [f32], start: usize, stride: usize) {
        let mut starts = Vec::with_capacity(self.depth);
        for (panel, first) in
            self.values.chunks(self.depth * self.width).zip((0..self.columns).step_by(self.width))
        {
            starts.clear();
            starts.extend((0..panel.len()).step_by(panel.len() / self.depth));
            let columns = self.width.min(self.columns - first);
            let mut sums = Sums { values: sums, start: start + first, columns, stride };
            add_vectors(simd, left, Vectors { values: panel, starts: &starts }, &mut sums);
        }
    }
}

/// The left factor of a product on one core: rows whose values are read one by one.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) values: &'a [f32],
    /// Where each row starts.
    pub(crate) starts: &'a [usize],
    /// A row has this many runs of this many consecutive values.
    pub(crate) runs: usize,
    pub(crate) length: usize,
    /// Values between the starts of two runs.
    pub(crate) pitch: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn run(&self, row: usize, run: usize) -> &'a [f32] {
        &self.values[self.starts[row] + run * self.pitch..][..self.length]
    }
}

/// The right factor of a product on one core: vectors that are read as a whole.
#[derive(Clone, Copy)]
pub(crate) struct Vectors<'a> {
    pub(crate) values: &'a [f32],
    /// Where the vectors of each term start.
    pub(crate) starts: &'a [usize],
}

/// The columns of the sums that a product is added to.
pub(crate) struct Sums<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) start: usize,
    pub(crate) columns: usize,
    /// Columns of all sums.
    pub(crate) stride: usize,
}

/// Adds a product with as many columns as a tile has, or fewer.
#[inline(always)]
pub(crate) fn add_vectors<S: Simd>(simd: S, left: Rows, right: Vectors, sums: &mut Sums) {
    match sums.columns.div_ceil(S::F32_LANES) {
        1 => add_panel::<S, 1>(simd, left, right, sums),
        2 => add_panel::<S, 2>(simd, left, right, sums),
        3 => add_panel::<S, 3>(simd, left, right, sums),
        _ => add_panel::<S, 4>(simd, left, right, sums),
    }
}

#[inline(always)]
fn add_panel<S: Simd, const VECTORS: usize>(simd: S, left: Rows, right: Vectors, sums: &mut Sums) {
    let rows = left.starts.len();
    let whole = rows - rows % TILE_ROWS;
    for row in (0..whole).step_by(TILE_ROWS) {
        add_tile::<S, VECTORS>(simd, left, row, right, sums);
    }
    for row in whole..rows {
        add_row::<S, VECTORS>(simd, left, row, right, sums);
    }
}

/// Defines a function that adds the product of some rows. One variable for the sums of each row:
/// they stay in registers at every level of optimization, which an array of arrays does not.
macro_rules! tile {
    ($(#[$documentation:meta])* $name:ident: $($index:literal $row:ident $sums:ident),+) => {
        $(#[$documentation])*
        #[inline(always)]
        fn $name<S: Simd, const VECTORS: usize>(
            simd: S,
            left: Rows,
            first: usize,
            right: Vectors,
            sums: &mut Sums,
        ) {
            $(let mut $sums = [simd.splat_f32s(0.0); VECTORS];)+
            for run in 0..left.runs {
                $(let $row = left.run(first + $index, run);)+
                let starts = &right.starts[run * left.length..][..left.length];
                for (term, &start) in starts.iter().enumerate() {
                    let values = &right.values[start..][..VECTORS * S::F32_LANES];
                    let vectors = &S::as_simd_f32s(values).0.as_chunks::<VECTORS>().0[0];
                    $($sums = multiply_add(simd, $row[term], vectors, $sums);)+
                }
            }
            $(sums.add(simd, first + $index, $sums);)+
        }
    };
}

tile! {
    /// Adds the product of [`TILE_ROWS`] rows.
    add_tile: 0 row_0 sums_0, 1 row_1 sums_1, 2 row_2 sums_2, 3 row_3 sums_3, 4 row_4 sums_4,
    5 row_5 sums_5
}

tile! {
    /// Adds the product of one row.
    add_row: 0 row sums_of_row
}

#[inline(always)]
fn multiply_add<S: Simd, const VECTORS: usize>(
    simd: S,
    value: f32,
    vectors: &[S::f32s; VECTORS],
    mut sums: [S::f32s; VECTORS],
) -> [S::f32s; VECTORS] {
    let value = simd.splat_f32s(value);
    for (sum, &vector) in sums.iter_mut().zip(vectors) {
        *sum = simd.mul_add_e_f32s(value, vector, *sum);
    }
    sums
}

impl Sums<'_> {
    /// Adds the sums of row `row`.
    #[inline(always)]
    fn add<S: Simd, const VECTORS: usize>(
        &mut self,
        simd: S,
        row: usize,
        sums: [S::f32s; VECTORS],
    ) {
        let start = row * self.stride + self.start;
        let mut to = &mut self.values[start..start + self.columns];
        for sum in sums {
            let lanes = S::F32_LANES.min(to.len());
            let (vector, rest) = to.split_at_mut(lanes);
            let before = simd.partial_load_f32s(vector);
            simd.partial_store_f32s(vector, simd.add_f32s(before, sum));
            to = rest;
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
            examples in 1usize..9,
            positions in 1usize..80,
            sizes in [1usize..90, 1usize..90],
        ) {
            let (inner, [rows, columns]) = (examples * positions, sizes);
            let (left, right) = (values(inner * rows, 0.1), values(inner * columns, 0.7));
            let left = Matrix::new(&left, [inner, rows]);
            let right = Matrix::new(&right, [inner, columns]);
            let factors = values(examples, 0.3);
            let expected = exact(left.transpose(), right, |row| factors[row / positions]);
            check(&weighted_product(left, right, &factors), 0.0, &expected, inner + 1);
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
    fn a_product_does_not_depend_on_threads() {
        let (rows, inner, columns) = (301, 1700, 130);
        let (left, right) = (values(rows * inner, 0.1), values(inner * columns, 0.7));
        let product = || {
            let mut sums = vec![0.0; rows * columns];
            let right = Matrix::new(&right, [inner, columns]);
            add_product(Matrix::new(&left, [rows, inner]), right, &mut sums);
            sums
        };
        let reference = product();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert!(pool.install(product) == reference, "{threads}");
        }
    }
}
