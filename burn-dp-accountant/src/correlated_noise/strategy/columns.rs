//! Columns and products of the strategy matrix.

use super::super::series;
use super::super::triangle::tree_interval;
use super::{Strategy, StrategyMatrix};

impl Strategy {
    /// Returns the factor of each column: 1 over its norm if columns are normalized.
    pub(super) fn column_factors(&self) -> Option<Vec<f64>> {
        self.has_normalized_columns().then(|| {
            let norms = self.squared_column_norms(self.len());
            norms.iter().map(|norm| 1.0 / norm.sqrt()).collect()
        })
    }

    /// Returns the squared norms of the first `t` entries of the first `t` columns of the matrix
    /// before normalization.
    pub(super) fn squared_column_norms(&self, t: usize) -> Vec<f64> {
        if let Some(c) = self.toeplitz(t) {
            let sums = series::sums_of_squares(&c);
            return (0..t).map(|j| sums[(t - j).min(sums.len()) - 1]).collect();
        }
        let mut norms = vec![0.0; t];
        self.for_each_row(t, |first, row| {
            for (norm, entry) in norms[first..].iter_mut().zip(row) {
                *norm += entry * entry;
            }
        });
        norms
    }

    /// Returns the squared norms of the first `t` entries of the first `t` columns of the matrix.
    pub(super) fn squared_norms_after(&self, t: usize) -> Vec<f64> {
        let mut norms = self.squared_column_norms(t);
        if let Some(factors) = self.column_factors() {
            norms.iter_mut().zip(factors).for_each(|(norm, factor)| *norm *= factor * factor);
        }
        norms
    }

    /// Calls `visit` with the first column and the entries of each of the first `t` rows of a tree
    /// or a dense matrix, before normalization.
    fn for_each_row(&self, t: usize, mut visit: impl FnMut(usize, &[f64])) {
        match self.matrix() {
            StrategyMatrix::Dense { rows } => rows[..t].iter().for_each(|row| visit(0, row)),
            _ => {
                let ones = vec![1.0; t];
                for end in 1..=t {
                    let length = tree_interval(end as u64) as usize;
                    visit(end - length, &ones[..length]);
                }
            }
        }
    }

    /// Returns the absolute values of `C^T C` for the first `t` rows and columns, row by row. With
    /// `of_absolute_values`, of the matrix of the absolute values of `C`.
    pub(super) fn gram(&self, t: usize, of_absolute_values: bool) -> Vec<f64> {
        let side = |value: f64| if of_absolute_values { value.abs() } else { value };
        let mut gram = vec![0.0; t * t];
        if let Some(mut c) = self.toeplitz(t) {
            c.resize(t, 0.0);
            // X[i, j] = X[i + 1, j + 1] + c_{t-1-i} c_{t-1-j}.
            for i in (0..t).rev() {
                for j in i..t {
                    let below = if j + 1 < t { gram[(i + 1) * t + j + 1] } else { 0.0 };
                    gram[i * t + j] = below + side(c[t - 1 - i]) * side(c[t - 1 - j]);
                }
            }
        } else {
            self.for_each_row(t, |first, row| {
                for (i, &a) in row.iter().enumerate().filter(|(_, a)| **a != 0.0) {
                    let line = &mut gram[(first + i) * t + first + i..];
                    line.iter_mut().zip(&row[i..]).for_each(|(x, &b)| *x += side(a) * side(b));
                }
            });
        }
        let factors = self.column_factors();
        for i in 0..t {
            for j in i..t {
                let factor = factors.as_ref().map_or(1.0, |factors| factors[i] * factors[j]);
                let value = (gram[i * t + j] * factor).abs();
                gram[i * t + j] = value;
                gram[j * t + i] = value;
            }
        }
        gram
    }

    /// Returns the smallest absolute value on the diagonal of the matrix.
    pub fn smallest_diagonal(&self) -> f64 {
        let entry = |i: usize| match self.matrix() {
            StrategyMatrix::Dense { rows } => rows[i][i].abs(),
            StrategyMatrix::Tree => 1.0,
            _ => self.toeplitz(1).map_or(0.0, |c| c[0].abs()),
        };
        if let Some(factors) = self.column_factors() {
            let entries = factors.iter().enumerate().map(|(i, factor)| entry(i) * factor);
            return entries.fold(f64::INFINITY, f64::min);
        }
        match self.matrix() {
            StrategyMatrix::Dense { rows } => {
                (0..rows.len()).map(entry).fold(f64::INFINITY, f64::min)
            }
            _ => entry(0),
        }
    }

    /// Returns whether no entry of the first `t` rows is negative.
    pub(super) fn is_non_negative(&self, t: usize) -> bool {
        if let Some(c) = self.toeplitz(t) {
            return c.iter().all(|&c| c >= 0.0);
        }
        match self.matrix() {
            StrategyMatrix::Dense { rows } => {
                rows[..t].iter().all(|row| row.iter().all(|&entry| entry >= 0.0))
            }
            _ => true,
        }
    }
}
