//! Right factors in the order in which the loops read them.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::matrix::{Matrix, copy_transposed};
use crate::tile::{Columns, DEPTH, Left, Rows, Sums, Vectors, add_vectors, lanes, panel_vectors};

/// The right factor of a product, in panels of some vectors.
#[derive(Clone, Debug)]
pub struct Packed {
    depth: usize,
    columns: usize,
    /// Columns per panel; the last panel has only the vectors it needs.
    width: usize,
    values: Vec<f32>,
}

impl Packed {
    /// Packs a matrix.
    pub fn new(matrix: Matrix) -> Self {
        Self::scaled(matrix, None)
    }

    /// Packs a matrix, each row of which is multiplied by its factor.
    pub(crate) fn scaled(matrix: Matrix, factors: Option<Factors>) -> Self {
        let (depth, columns) = (matrix.rows, matrix.columns);
        let lanes = lanes();
        let width = panel_vectors(lanes) * lanes;
        let values = match matrix.transposed {
            true => packed_columns(matrix, factors, width, lanes),
            false => Arch::new().dispatch(PackedRows { matrix, factors, width }),
        };
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
    pub(crate) fn add_to_columns(
        &self,
        left: Matrix,
        sums: &mut [f32],
        start: usize,
        stride: usize,
    ) {
        assert_eq!(left.columns, self.depth, "the factors of a product fit");
        if left.rows == 0 || self.depth == 0 || self.columns == 0 {
            return;
        }
        Arch::new().dispatch(AddProduct { left, right: self, sums, start, stride });
    }
}

/// The panels of a matrix whose rows are in memory, compiled for each vector unit.
struct PackedRows<'a> {
    matrix: Matrix<'a>,
    factors: Option<Factors<'a>>,
    width: usize,
}

impl WithSimd for PackedRows<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<f32> {
        let Self { matrix, factors, width } = self;
        let vectors = matrix.columns.div_ceil(S::F32_LANES);
        let mut values = Vec::with_capacity(matrix.rows * vectors * S::F32_LANES);
        for start in (0..matrix.columns).step_by(width) {
            let part = matrix.columns(start, width.min(matrix.columns - start));
            // The last panel has fewer vectors.
            let padding = part.columns.next_multiple_of(S::F32_LANES) - part.columns;
            for row in 0..part.rows {
                match factors {
                    None => values.extend_from_slice(part.row(row)),
                    Some(factors) => {
                        let factor = factors.of(row);
                        values.extend(part.row(row).iter().map(|value| value * factor));
                    }
                }
                values.extend(std::iter::repeat_n(0.0, padding));
            }
        }
        values
    }
}

/// Returns the panels of a matrix whose columns are in memory.
fn packed_columns(
    matrix: Matrix,
    factors: Option<Factors>,
    width: usize,
    lanes: usize,
) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows * matrix.columns.next_multiple_of(lanes)];
    let panels = values.chunks_mut((matrix.rows * width).max(1));
    for (panel, start) in panels.zip((0..matrix.columns).step_by(width)) {
        let part = matrix.columns(start, width.min(matrix.columns - start));
        let width = panel.len() / matrix.rows;
        copy_transposed(part.transpose(), panel, width);
        if let Some(factors) = factors {
            for (row, values) in panel.chunks_exact_mut(width).enumerate() {
                let factor = factors.of(row);
                values.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
    values
}

/// Factors of the rows of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'a> {
    pub(crate) factors: &'a [f32],
    /// Number of consecutive rows with the same factor.
    pub(crate) repeat: usize,
    /// The first row.
    pub(crate) start: usize,
}

impl Factors<'_> {
    /// Returns the factors from row `first` on.
    pub(crate) fn from(self, first: usize) -> Self {
        Self { start: self.start + first, ..self }
    }

    fn of(&self, row: usize) -> f32 {
        self.factors[(self.start + row) / self.repeat]
    }
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
        let (values, terms, place) = (left.values, left.columns, [start, stride]);
        if left.transposed {
            let left = Columns { values, count: left.rows, stride: left.stride };
            return right.add(simd, left, sums, place, 0..terms);
        }
        let starts: Vec<usize> = (0..left.rows).map(|row| row * left.stride).collect();
        let left = Rows { values, starts: &starts, runs: 1, length: terms, pitch: 0 };
        right.add(simd, left, sums, place, 0..terms);
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
        // Longer sums in one register round more.
        let runs = (DEPTH / left.length.max(1)).max(1);
        let mut starts = left.starts.to_vec();
        for first in (0..left.runs).step_by(runs) {
            let part = Rows { starts: &starts, runs: runs.min(left.runs - first), ..left };
            let terms = first * left.length..(first + part.runs) * left.length;
            right.add(simd, part, sums, [0, right.columns], terms);
            starts.iter_mut().for_each(|start| *start += runs * left.pitch);
        }
    }
}

impl Packed {
    /// Adds `left · self` to the sums of rows of runs, `[left rows, columns]`.
    pub(crate) fn add_runs(&self, left: Rows, sums: &mut [f32]) {
        assert_eq!(left.runs * left.length, self.depth, "the factors of a product fit");
        assert_eq!(left.starts.len() * self.columns, sums.len(), "the sums fit their factors");
        Arch::new().dispatch(AddRuns { left, right: self, sums });
    }

    /// Adds the product of `left` with the rows `terms`.
    #[inline(always)]
    fn add<S: Simd>(
        &self,
        simd: S,
        left: impl Left,
        sums: &mut [f32],
        [start, stride]: [usize; 2],
        terms: Range<usize>,
    ) {
        let mut starts = Vec::with_capacity(terms.len());
        for (panel, first) in
            self.values.chunks(self.depth * self.width).zip((0..self.columns).step_by(self.width))
        {
            starts.clear();
            let width = panel.len() / self.depth;
            starts.extend(terms.clone().map(|term| term * width));
            let columns = self.width.min(self.columns - first);
            let mut sums = Sums { values: sums, start: start + first, columns, stride };
            add_vectors(simd, left, Vectors { values: panel, starts: &starts }, &mut sums);
        }
    }
}
