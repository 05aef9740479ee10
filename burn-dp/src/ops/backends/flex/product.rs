//! Products of matrices, added to memory of the caller.
//!
//! Burn's product fills each output with zeros and copies it on one core before it computes the
//! first term, which takes as long as the product itself where one axis is short. The arithmetic
//! here is as fast as in Burn's: vectors of the right factor, which is packed into panels, are
//! multiplied with one value of the left factor, and the sums of a tile stay in registers.
//!
//! The terms of a sum are added in the order of the inner axis, whatever the number of threads.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Rows of a tile.
const TILE_ROWS: usize = 6;
/// Terms that are added in registers: a panel of this depth stays in the cache of a core.
const DEPTH: usize = 256;
/// Columns of the right factor that are packed at a time.
const COLUMNS: usize = 1 << 11;
/// Multiplications below which other threads would wake up too late.
const FEW_OPERATIONS: usize = 1 << 20;

/// A matrix in the memory of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// Distance between rows, if the columns of a row are next to each other.
    stride: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Takes the values of `[rows, columns]`, one row after another.
    pub(super) fn new(values: &'a [f32], [rows, columns]: [usize; 2]) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix has the values of all its rows");
        Self { values, rows, columns, stride: columns, transposed: false }
    }

    /// Takes a tensor of two axes, whose rows or columns lie apart, or one after another.
    pub(super) fn of(tensor: &'a FloatTensor<Flex>) -> Option<Self> {
        let [rows, columns] = tensor.shape().dims();
        if let Some(values) = tensor.as_slice::<f32>() {
            return Some(Self::new(values, [rows, columns]));
        }
        if tensor.dtype() != DType::F32 || rows * columns == 0 {
            return None;
        }
        let values = &tensor.storage::<f32>()[tensor.layout().start_offset()..];
        let (stride, transposed) = match *tensor.layout().strides() {
            [stride, 1] if stride >= columns as isize => (stride, false),
            [1, stride] if stride >= rows as isize => (stride, true),
            _ => return None,
        };
        let stride = stride.unsigned_abs();
        Some(Self { values, rows, columns, stride, transposed })
    }

    /// Takes the rows of a tensor of several axes; the last axis are the columns.
    pub(super) fn rows_of(tensor: &'a FloatTensor<Flex>) -> Option<Self> {
        let columns = *tensor.shape().last()?;
        let values = tensor.as_slice::<f32>()?;
        (columns > 0).then(|| Self::new(values, [values.len() / columns, columns]))
    }

    /// Returns the number of rows and columns.
    pub(super) fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Exchanges rows and columns.
    pub(super) fn transpose(self) -> Self {
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
pub(super) struct Packed {
    depth: usize,
    columns: usize,
    /// Columns of a panel but the last, which has as many vectors as it needs.
    width: usize,
    values: Vec<f32>,
}

impl Packed {
    /// Packs a matrix.
    pub(super) fn new(matrix: Matrix) -> Self {
        Self::scaled(matrix, None)
    }

    /// Packs a matrix, each row of which is multiplied by its factor.
    fn scaled(matrix: Matrix, factors: Option<Factors>) -> Self {
        let (depth, columns) = (matrix.rows, matrix.columns);
        let lanes = Arch::new().dispatch(Lanes);
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
        if depth * columns < FEW_OPERATIONS {
            values.chunks_mut(panel).enumerate().for_each(pack);
        } else {
            values.par_chunks_mut(panel).enumerate().for_each(pack);
        }
        Self { depth, columns, width, values }
    }

    /// Returns the number of rows of the matrix.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the number of columns of the matrix.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Adds `left · self` to `sums`, `[left rows, columns]`.
    pub(super) fn add_product(&self, left: Matrix, sums: &mut [f32]) {
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
    fn of(&self, row: usize) -> f32 {
        self.factors[(self.start + row) / self.repeat]
    }
}

/// Adds `left · right` to `sums`, `[left rows, right columns]`, on all cores.
pub(super) fn add_product(left: Matrix, right: Matrix, sums: &mut [f32]) {
    add_scaled_product(left, right, None, sums);
}

/// Returns `leftᵀ · diag(factors) · right`, with one factor for each group of consecutive rows.
pub(super) fn weighted_product(left: Matrix, right: Matrix, factors: &[f32]) -> Vec<f32> {
    let repeat = (right.rows / factors.len().max(1)).max(1);
    let mut sums = vec![0.0; left.columns * right.columns];
    let factors = Factors { factors, repeat, start: 0 };
    add_scaled_product(left.transpose(), right, Some(factors), &mut sums);
    sums
}

fn add_scaled_product(left: Matrix, right: Matrix, factors: Option<Factors>, sums: &mut [f32]) {
    let (rows, stride) = (left.rows, right.columns);
    assert_eq!(left.columns, right.rows, "the factors of a product fit");
    assert_eq!(sums.len(), rows * stride, "a product has the rows and columns of its factors");
    if sums.is_empty() {
        return;
    }
    let few = rows * stride * right.rows < FEW_OPERATIONS;
    let task_rows = match few {
        true => rows,
        false => {
            let threads = rayon::current_num_threads();
            rows.div_ceil(4 * threads).next_multiple_of(TILE_ROWS).min(16 * TILE_ROWS)
        }
    };
    for first in (0..right.rows).step_by(DEPTH) {
        let depth = DEPTH.min(right.rows - first);
        let (left, right) = (left.columns(first, depth), right.rows(first, depth));
        let factors = factors.map(|factors| Factors { start: first, ..factors });
        for start in (0..stride).step_by(COLUMNS) {
            let packed = Packed::scaled(right.columns(start, COLUMNS.min(stride - start)), factors);
            let add = |(index, sums): (usize, &mut [f32])| {
                let left = left.rows(index * task_rows, sums.len() / stride);
                packed.add_to_columns(left, sums, start, stride);
            };
            let tasks = task_rows * stride;
            match few {
                true => sums.chunks_mut(tasks).enumerate().for_each(add),
                false => sums.par_chunks_mut(tasks).enumerate().for_each(add),
            }
        }
    }
}

/// The number of values of a vector.
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
const fn panel_vectors(lanes: usize) -> usize {
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
        let panels = right.values.chunks(right.depth * right.width);
        for (panel, first) in panels.zip((0..right.columns).step_by(right.width)) {
            let used = right.width.min(right.columns - first);
            let (panel, _) = S::as_simd_f32s(panel);
            let mut sums = Sums { values: sums, start: start + first, used, stride };
            match panel.len() / right.depth {
                1 => add_panel::<S, 1>(simd, left, panel, &mut sums),
                2 => add_panel::<S, 2>(simd, left, panel, &mut sums),
                3 => add_panel::<S, 3>(simd, left, panel, &mut sums),
                _ => add_panel::<S, 4>(simd, left, panel, &mut sums),
            }
        }
    }
}

/// The columns of the sums that a panel contributes to.
struct Sums<'a> {
    values: &'a mut [f32],
    start: usize,
    used: usize,
    stride: usize,
}

#[inline(always)]
fn add_panel<S: Simd, const VECTORS: usize>(
    simd: S,
    left: Matrix,
    panel: &[S::f32s],
    sums: &mut Sums,
) {
    let whole = left.rows - left.rows % TILE_ROWS;
    for row in (0..whole).step_by(TILE_ROWS) {
        add_tile::<S, TILE_ROWS, VECTORS>(simd, left, row, panel, sums);
    }
    for row in whole..left.rows {
        add_tile::<S, 1, VECTORS>(simd, left, row, panel, sums);
    }
}

#[inline(always)]
fn add_tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    left: Matrix,
    first: usize,
    panel: &[S::f32s],
    sums: &mut Sums,
) {
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| left.row(first + row));
    let mut tile = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    // Indices: with iterators the tile is not kept in registers.
    #[allow(clippy::needless_range_loop)]
    for (term, vectors) in panel.chunks_exact(VECTORS).take(left.columns).enumerate() {
        for row in 0..ROWS {
            let value = simd.splat_f32s(rows[row][term]);
            for vector in 0..VECTORS {
                tile[row][vector] = simd.mul_add_e_f32s(value, vectors[vector], tile[row][vector]);
            }
        }
    }
    for (row, tile) in tile.iter().enumerate() {
        let start = (first + row) * sums.stride + sums.start;
        let to = &mut sums.values[start..start + sums.used];
        let (vectors, rest) = S::as_mut_simd_f32s(to);
        for (to, &sum) in vectors.iter_mut().zip(tile) {
            *to = simd.add_f32s(*to, sum);
        }
        if let Some(&sum) = tile.get(vectors.len()).filter(|_| !rest.is_empty()) {
            let sum = simd.add_f32s(simd.partial_load_f32s(rest), sum);
            simd.partial_store_f32s(rest, sum);
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
            inner in 1usize..600,
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
        let (rows, inner, columns) = (301, 700, 130);
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

    #[test]
    fn views_of_tensors_are_read_in_place() {
        let tensor = FloatTensor::<Flex>::from_data(burn::tensor::TensorData::new(
            values(12 * 7, 0.0),
            [12, 7],
        ));
        let views = [
            tensor.clone(),
            tensor.transpose(0, 1),
            tensor.narrow(0, 2, 5),
            tensor.narrow(1, 3, 2),
            tensor.narrow(1, 3, 2).transpose(0, 1),
        ];
        for view in views {
            let [rows, columns]: [usize; 2] = view.shape().dims();
            let matrix = Matrix::of(&view).unwrap();
            let identity: Vec<f32> = (0..columns * columns)
                .map(|i| f32::from(u8::from(i / columns == i % columns)))
                .collect();
            let mut sums = vec![0.0; rows * columns];
            add_product(matrix, Matrix::new(&identity, [columns; 2]), &mut sums);
            assert_eq!(sums, view.into_data().try_into_vec::<f32>().unwrap());
        }
    }
}
