//! Matrices in the memory of the caller.

/// A matrix in the memory of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Distance between rows, if the columns of a row are next to each other.
    pub(crate) stride: usize,
    pub(crate) transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Creates a matrix from the values of `[rows, columns]`, one row after another.
    pub fn new(values: &'a [f32], [rows, columns]: [usize; 2]) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix has the values of all its rows");
        Self { values, rows, columns, stride: columns, transposed: false }
    }

    /// Creates a matrix from rows that start `stride` values apart; fewer values may follow the
    /// start of the last one.
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

    /// Swaps rows and columns.
    pub fn transpose(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// Returns `count` rows from `start` on.
    pub(crate) fn rows(self, start: usize, count: usize) -> Self {
        let first = if self.transposed { start } else { start * self.stride };
        Self { values: self.values.get(first..).unwrap_or_default(), rows: count, ..self }
    }

    /// Returns `count` columns from `start` on.
    pub(crate) fn columns(self, start: usize, count: usize) -> Self {
        self.transpose().rows(start, count).transpose()
    }

    /// Returns row `index`, whose values are next to each other.
    pub(crate) fn row(&self, index: usize) -> &'a [f32] {
        debug_assert!(!self.transposed);
        &self.values[index * self.stride..][..self.columns]
    }
}

/// Writes the values of `[rows, columns]` in the order of `[columns, rows]`.
pub fn transpose(from: &[f32], shape: [usize; 2], to: &mut [f32]) {
    copy_transposed(Matrix::new(from, shape), to, shape[0]);
}

/// Writes row r of a matrix to the values `to[r]`, `to[r + stride]` and so on.
pub(crate) fn copy_transposed(matrix: Matrix, to: &mut [f32], stride: usize) {
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
