//! The search for the best strategy of one participation.

use super::super::strategy::Strategy;
use super::problem::{Objective, StrategySearch};
use crate::error::AccountantError;

/// Largest number of steps of the search, which takes the cube of it in each round.
const MAX_STEPS: u64 = 128;
/// Largest number of rounds.
const ROUNDS: usize = 20_000;
/// Gap, relative to the loss, at which the search ends.
const GAP: f64 = 1e-7;

/// Returns the best strategy, and a lower bound of the loss of every strategy.
///
/// For weights `q` of the answers and `v` of the steps (each with sum 1), `M = √q A √v` and the
/// singular values of `M`, the squared sum of the singular values is at most the loss of every
/// strategy. (Duality of the factorization norm γ₂; for the mean, `q` is fixed.) At the largest of
/// these bounds the matrix `C^T C = v^-½ (M^T M)^½ v^-½` has equal diagonal entries, and the errors
/// are equal if their maximum is minimized. Each round sets the weights to the diagonals of the
/// current roots.
pub(super) fn search(search: &StrategySearch) -> Result<(Strategy, f64), AccountantError> {
    if search.steps > MAX_STEPS {
        return Err(AccountantError::invalid(
            "steps",
            format!(
                "must be at most {MAX_STEPS} for a dense search, got {}; use a buffered or banded \
                 strategy",
                search.steps
            ),
        ));
    }
    if search.times > 1 {
        return Err(AccountantError::invalid(
            "times",
            format!(
                "must be 1 for a dense search, got {}; use a buffered or banded strategy",
                search.times
            ),
        ));
    }
    let n = search.len();
    let queries = queries(search);
    let mut of_answers = vec![1.0 / n as f64; n];
    let mut of_steps = of_answers.clone();
    let mut best: Option<(f64, Strategy)> = None;
    let mut bound = 0.0f64;
    for round in 0..ROUNDS {
        let product = weighted_product(&queries, &of_answers, &of_steps);
        let root = SymmetricRoot::new(product, n);
        let trace: f64 = root.values.iter().sum();
        bound = bound.max(trace * trace);
        // Candidates cost more than a round.
        if round % 16 == 0 {
            let strategy = root.strategy()?;
            let loss = search.loss_of(&strategy)?;
            if best.as_ref().is_none_or(|(least, _)| loss < *least) {
                best = Some((loss, strategy));
            }
            if best.as_ref().is_some_and(|(least, _)| *least <= bound * (1.0 + GAP)) {
                break;
            }
        }
        let steps = root.diagonal();
        if search.objective == Objective::Max {
            let answers = root.answers(&queries, &of_answers, &of_steps);
            of_answers = normalized(answers);
        }
        of_steps = normalized(steps);
    }
    let (_, strategy) =
        best.ok_or_else(|| AccountantError::numerical("the dense search found no strategy"))?;
    Ok((strategy, bound))
}

fn normalized(weights: Vec<f64>) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    // A weight of 0 would never grow again.
    weights.into_iter().map(|weight| (weight / sum).max(1e-12)).collect()
}

/// Returns the matrix of the workload, row by row.
fn queries(search: &StrategySearch) -> Vec<f64> {
    let n = search.len();
    let mut impulse = vec![0.0; n];
    impulse[0] = 1.0;
    search.workload.apply(0, &mut impulse);
    let entry = |i: usize, j: usize| if j <= i { impulse[i - j] } else { 0.0 };
    (0..n * n).map(|place| entry(place / n, place % n)).collect()
}

/// Returns `√v Aᵀ q A √v`.
fn weighted_product(queries: &[f64], of_answers: &[f64], of_steps: &[f64]) -> Vec<f64> {
    let n = of_steps.len();
    let mut product = vec![0.0; n * n];
    for (row, weight) in queries.chunks(n).zip(of_answers) {
        for (i, a) in row.iter().enumerate().filter(|(_, a)| **a != 0.0) {
            let line = &mut product[i * n..(i + 1) * n];
            line.iter_mut().zip(row).for_each(|(value, b)| *value += weight * a * b);
        }
    }
    for (place, value) in product.iter_mut().enumerate() {
        *value *= (of_steps[place / n] * of_steps[place % n]).sqrt();
    }
    product
}

/// The root of a symmetric positive definite matrix: its singular values and vectors.
struct SymmetricRoot {
    /// Eigenvalues of the root.
    values: Vec<f64>,
    /// Column `k` is the vector of value `k`.
    vectors: Vec<f64>,
    n: usize,
}

impl SymmetricRoot {
    /// Diagonalizes by the cyclic method of Jacobi.
    fn new(mut matrix: Vec<f64>, n: usize) -> Self {
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

    /// Returns an entry of the root.
    fn entry(&self, i: usize, j: usize) -> f64 {
        let n = self.n;
        let (a, b) = (&self.vectors[i * n..(i + 1) * n], &self.vectors[j * n..(j + 1) * n]);
        self.values.iter().zip(a).zip(b).map(|((value, a), b)| value * a * b).sum()
    }

    fn diagonal(&self) -> Vec<f64> {
        (0..self.n).map(|i| self.entry(i, i)).collect()
    }

    /// Returns the diagonal of `(M Mᵀ)^½`: for row `i` of `M`, `Σ_k (M v_k)_i² / value_k`.
    fn answers(&self, queries: &[f64], of_answers: &[f64], of_steps: &[f64]) -> Vec<f64> {
        let n = self.n;
        let answer = |(row, weight): (&[f64], &f64)| -> f64 {
            let square = |k: usize| {
                let entries = row.iter().zip(of_steps).enumerate();
                let dot: f64 =
                    entries.map(|(j, (a, v))| a * v.sqrt() * self.vectors[j * n + k]).sum();
                if self.values[k] > 0.0 { weight * dot * dot / self.values[k] } else { 0.0 }
            };
            (0..n).map(square).sum()
        };
        queries.chunks(n).zip(of_answers).map(answer).collect()
    }

    /// Returns the lower-triangular `C` with columns of norm 1 and `C^T C` in proportion to
    /// `v^-½ (M^T M)^½ v^-½`.
    fn strategy(&self) -> Result<Strategy, AccountantError> {
        let n = self.n;
        let diagonal = self.diagonal();
        // Scaled to a diagonal of 1: the weights cancel.
        let gram = |i: usize, j: usize| self.entry(i, j) / (diagonal[i] * diagonal[j]).sqrt();
        // The factorization of Cholesky from the last row up.
        let mut rows: Vec<Vec<f64>> = (0..n).map(|i| vec![0.0; i + 1]).collect();
        for j in (0..n).rev() {
            for i in (0..=j).rev() {
                let known: f64 = (j + 1..n).map(|k| rows[k][i] * rows[k][j]).sum();
                let rest = gram(i, j) - known;
                if i == j {
                    if rest <= 0.0 {
                        return Err(AccountantError::numerical("a dense strategy is singular"));
                    }
                    rows[j][j] = rest.sqrt();
                } else {
                    rows[j][i] = rest / rows[j][j];
                }
            }
        }
        Strategy::dense(rows)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dense_search_reaches_its_lower_bound() {
        // correlated_noise.json, rows p058 to p063.
        for (objective, n, expected) in [
            (Objective::Mean, 2, 1.30901699437495),
            (Objective::Mean, 8, 2.2332721665967266),
            (Objective::Max, 2, 4.0 / 3.0),
            (Objective::Max, 4, 1.758601326558308),
            (Objective::Max, 8, 2.2815605884885692),
        ] {
            let problem = StrategySearch::new(n).unwrap().with_objective(objective);
            let (strategy, bound) = search(&problem).unwrap();
            let loss = problem.loss_of(&strategy).unwrap();
            assert!(loss >= bound * (1.0 - 1e-12), "{n}: {loss} {bound}");
            assert!((loss / expected - 1.0).abs() < 2e-7, "{n}: {loss} {bound} {expected}");
        }
    }

    #[test]
    fn dense_search_refuses_what_it_cannot_do() {
        let error = StrategySearch::new(129).unwrap().dense().unwrap_err().to_string();
        assert!(error.contains("128") && error.contains("got 129"), "{error}");
        let twice = StrategySearch::new(8).unwrap().with_participation(2, 4).unwrap();
        assert!(twice.dense().unwrap_err().to_string().contains("got 2"));
    }
}
