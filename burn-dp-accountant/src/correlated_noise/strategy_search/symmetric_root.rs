//! The root of a symmetric matrix, and triangular factors.

/// The root of a symmetric positive definite matrix: its singular values and vectors.
pub(super) struct SymmetricRoot {
    /// Eigenvalues of the root.
    pub(super) values: Vec<f64>,
    /// Column `k` is the vector of value `k`.
    vectors: Vec<f64>,
    n: usize,
}

impl SymmetricRoot {
    /// Diagonalizes by the cyclic method of Jacobi.
    pub(super) fn new(mut matrix: Vec<f64>, n: usize) -> Self {
        let mut vectors = vec![0.0; n * n];
        (0..n).for_each(|i| vectors[i * n + i] = 1.0);
        for _ in 0..30 {
            let mut rotated = false;
            for p in 0..n {
                for q in p + 1..n {
                    let (app, aqq, apq) = (matrix[p * n + p], matrix[q * n + q], matrix[p * n + q]);
                    if apq.abs() <= 1e-15 * (app * aqq).abs().sqrt() {
                        continue;
                    }
                    rotated = true;
                    let theta = (aqq - app) / (2.0 * apq);
                    let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
                    let c = 1.0 / t.hypot(1.0);
                    let s = t * c;
                    for k in 0..n {
                        let (a, b) = (matrix[k * n + p], matrix[k * n + q]);
                        matrix[k * n + p] = c * a - s * b;
                        matrix[k * n + q] = s * a + c * b;
                    }
                    for k in 0..n {
                        let (a, b) = (matrix[p * n + k], matrix[q * n + k]);
                        matrix[p * n + k] = c * a - s * b;
                        matrix[q * n + k] = s * a + c * b;
                        let (a, b) = (vectors[k * n + p], vectors[k * n + q]);
                        vectors[k * n + p] = c * a - s * b;
                        vectors[k * n + q] = s * a + c * b;
                    }
                }
            }
            if !rotated {
                break;
            }
        }
        let values = (0..n).map(|i| matrix[i * n + i].max(0.0).sqrt()).collect();
        Self { values, vectors, n }
    }

    /// Returns the root, row by row.
    pub(super) fn matrix(&self) -> Vec<f64> {
        let n = self.n;
        let row = |i: usize| &self.vectors[i * n..(i + 1) * n];
        let entry = |i: usize, j: usize| -> f64 {
            self.values.iter().zip(row(i)).zip(row(j)).map(|((value, a), b)| value * a * b).sum()
        };
        (0..n * n).map(|place| entry(place / n, place % n)).collect()
    }

    /// Returns the diagonal of `(B Bᵀ)^½` for `B` with `Bᵀ B` the square of the root: in row `i`,
    /// `Σ_k (B u_k)_i² / value_k`.
    pub(super) fn other_diagonal(&self, b: &[f64]) -> Vec<f64> {
        let n = self.n;
        let of_row = |row: &[f64]| -> f64 {
            let square = |k: usize| {
                let dot: f64 =
                    row.iter().enumerate().map(|(j, b)| b * self.vectors[j * n + k]).sum();
                if self.values[k] > 0.0 { dot * dot / self.values[k] } else { 0.0 }
            };
            (0..n).map(square).sum()
        };
        b.chunks(n).map(of_row).collect()
    }
}

/// Returns the lower triangle `L` with `L Lᵀ = matrix`, or `None` if the matrix is not positive
/// definite.
pub(super) fn cholesky(matrix: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut lower = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let (a, b) = (&lower[i * n..i * n + j], &lower[j * n..j * n + j]);
            let rest = matrix[i * n + j] - a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            if i == j {
                // Written so that NaN also ends the search.
                if rest.is_nan() || rest <= 1e-12 * matrix[i * n + i] {
                    return None;
                }
                lower[i * n + i] = rest.sqrt();
            } else {
                lower[i * n + j] = rest / lower[j * n + j];
            }
        }
    }
    Some(lower)
}

/// Returns `L^-ᵀ matrix L^-1` for a symmetric matrix.
pub(super) fn divided_by_both_sides(lower: &[f64], matrix: &[f64], n: usize) -> Vec<f64> {
    let solved = |mut right: Vec<f64>| {
        // Lᵀ Y = right, from the last row up.
        for i in (0..n).rev() {
            for k in i + 1..n {
                let factor = lower[k * n + i];
                if factor != 0.0 {
                    let (above, below) = right.split_at_mut(k * n);
                    let row = &mut above[i * n..(i + 1) * n];
                    row.iter_mut().zip(&below[..n]).for_each(|(y, known)| *y -= factor * known);
                }
            }
            let diagonal = lower[i * n + i];
            right[i * n..(i + 1) * n].iter_mut().for_each(|y| *y /= diagonal);
        }
        right
    };
    let transposed =
        |matrix: &[f64]| (0..n * n).map(|place| matrix[place % n * n + place / n]).collect();
    solved(transposed(&solved(matrix.to_vec())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn factors_and_roots_multiply_to_the_matrix() {
        let n = 4;
        let entry = |i: usize, j: usize| 1.0 / (1.0 + i.abs_diff(j) as f64).powi(2);
        let matrix: Vec<f64> = (0..n * n).map(|place| entry(place / n, place % n)).collect();
        let product = |a: &[f64], b: &[f64]| -> Vec<f64> {
            let one = |i: usize, j: usize| (0..n).map(|k| a[i * n + k] * b[k * n + j]).sum();
            (0..n * n).map(|place| one(place / n, place % n)).collect()
        };
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-13);
        let root = SymmetricRoot::new(matrix.clone(), n).matrix();
        assert!(close(&product(&root, &root), &matrix), "{root:?}");
        let lower = cholesky(&matrix, n).unwrap();
        let upper: Vec<f64> = (0..n * n).map(|place| lower[place % n * n + place / n]).collect();
        assert!(close(&product(&lower, &upper), &matrix), "{lower:?}");
        let divided = divided_by_both_sides(&lower, &matrix, n);
        assert!(close(&product(&upper, &product(&divided, &lower)), &matrix), "{divided:?}");
        assert!(cholesky(&[1.0, 1.0, 1.0, 1.0], 2).is_none());
    }
}
