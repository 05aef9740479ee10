//! The computation of correlated noise from independent noise, step by step.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::triangle::{inverse_of_rows, tree_interval};
use super::{Strategy, StrategyMatrix};

/// The computation of the noise `w_t` of step `t` from independent standard normals `z_0, z_1, …`.
///
/// The noise that is added in step `t` is [`factor(t)`](Self::factor) times `w_t` times the
/// standard deviation of the run. Its matrix is the inverse of the strategy. Steps count from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Noising {
    recipe: NoiseRecipe,
    steps: u64,
    factors: Option<Arc<[f64]>>,
}

/// The recipe of the noise `w_t`, without the factors of normalized columns.
#[derive(Debug, Clone, PartialEq)]
pub enum NoiseRecipe {
    /// `w_t = z_t`.
    Independent,
    /// `w_t = Σ_j d_j z_{t-j}`, where `j` is at most `t`.
    Convolution {
        /// The coefficients `d`.
        coefficients: Vec<f64>,
    },
    /// `w_t = (z_t - Σ_{j≥1} c_j w_{t-j}) / c_0`, where `j` is at most `t`.
    Recursion {
        /// The coefficients `c`.
        coefficients: Vec<f64>,
    },
    /// `w_t = z_t - Σ_i ω_i s_i`, then `s_i ← θ_i s_i + w_t` for each buffer; all `s_i` start at 0.
    Buffers {
        /// The decay θ of each buffer.
        theta: Vec<f64>,
        /// The weight ω of each buffer.
        omega: Vec<f64>,
    },
    /// `w_t = z_t - Σ z_s` over the nodes of the binary tree that end in step `t`, which
    /// [`finished_nodes`](Self::finished_nodes) returns.
    Tree,
    /// `w_t = Σ_s d_{t,s} z_s`.
    Rows {
        /// Row `t` has `t + 1` entries.
        rows: Vec<Vec<f64>>,
    },
}

impl NoiseRecipe {
    /// Returns the earlier steps whose `z` the recipe [`Tree`](Self::Tree) subtracts in `step`, the
    /// latest first.
    ///
    /// At most about `log2(step)` values are needed at any time: `z_s` is needed until the step
    /// `s + 2^v`, where `2^v` is the largest power of two that divides `s + 1`.
    pub fn finished_nodes(step: u64) -> impl Iterator<Item = u64> {
        let levels = (step + 1).trailing_zeros();
        (0..levels).map(move |level| step - (1 << level))
    }
}

impl Noising {
    /// Returns the recipe of `w_t`.
    pub fn recipe(&self) -> &NoiseRecipe {
        &self.recipe
    }

    /// Returns the factor by which `w_t` of `step` is multiplied: the norm of column `step` if the
    /// columns of the strategy are normalized, otherwise 1.
    pub fn factor(&self, step: u64) -> f64 {
        let factors = self.factors.as_ref();
        factors.and_then(|factors| factors.get(step as usize)).copied().unwrap_or(1.0)
    }

    /// Returns the reference implementation for scalars, at step 0.
    pub fn stream(&self) -> NoiseStream<'_> {
        let kept = match &self.recipe {
            NoiseRecipe::Independent | NoiseRecipe::Tree | NoiseRecipe::Rows { .. } => 0,
            NoiseRecipe::Convolution { coefficients } | NoiseRecipe::Recursion { coefficients } => {
                coefficients.len()
            }
            NoiseRecipe::Buffers { theta, .. } => theta.len(),
        };
        let state = match self.recipe {
            NoiseRecipe::Buffers { .. } => VecDeque::from(vec![0.0; kept]),
            _ => VecDeque::new(),
        };
        NoiseStream { noising: self, step: 0, kept, state }
    }
}

/// The noise of consecutive steps from given independent values: the reference for implementations
/// on tensors.
#[derive(Debug, Clone)]
pub struct NoiseStream<'a> {
    noising: &'a Noising,
    step: u64,
    /// Number of values to keep.
    kept: usize,
    /// Earlier values, the latest first; for buffers, their states.
    state: VecDeque<f64>,
}

impl NoiseStream<'_> {
    /// Returns the noise of the next step from its independent value `z`; `None` after the last
    /// step of the strategy.
    pub fn next(&mut self, z: f64) -> Option<f64> {
        let step = self.step;
        if step >= self.noising.steps {
            return None;
        }
        self.step += 1;
        let w = match &self.noising.recipe {
            NoiseRecipe::Independent => z,
            NoiseRecipe::Convolution { coefficients } => {
                self.state.push_front(z);
                self.state.truncate(self.kept);
                coefficients.iter().zip(&self.state).map(|(d, z)| d * z).sum()
            }
            NoiseRecipe::Recursion { coefficients } => {
                let known = coefficients[1..].iter().zip(&self.state);
                let w = (z - known.map(|(c, w)| c * w).sum::<f64>()) / coefficients[0];
                self.state.push_front(w);
                self.state.truncate(self.kept);
                w
            }
            NoiseRecipe::Buffers { theta, omega } => {
                let kept = omega.iter().zip(&self.state);
                let w = z - kept.map(|(omega, buffer)| omega * buffer).sum::<f64>();
                let buffers = self.state.iter_mut().zip(theta);
                buffers.for_each(|(buffer, theta)| *buffer = theta * *buffer + w);
                w
            }
            NoiseRecipe::Tree => {
                // The latest values first, so that the value of step s is at `step - 1 - s`.
                let finished = NoiseRecipe::finished_nodes(step);
                let w = z - finished.map(|s| self.state[(step - 1 - s) as usize]).sum::<f64>();
                self.state.push_front(z);
                w
            }
            NoiseRecipe::Rows { rows } => {
                self.state.push_front(z);
                let row = &rows[step as usize];
                row.iter().rev().zip(&self.state).map(|(d, z)| d * z).sum()
            }
        };
        Some(w * self.noising.factor(step))
    }
}

impl Strategy {
    /// Returns the computation of the run's noise.
    pub fn noising(&self) -> Noising {
        let recipe = match self.matrix() {
            StrategyMatrix::Identity => NoiseRecipe::Independent,
            StrategyMatrix::OptimalToeplitz => NoiseRecipe::Convolution {
                coefficients: self.toeplitz_inverse(self.len()).unwrap_or_default(),
            },
            StrategyMatrix::BandedToeplitz { coefficients } => {
                NoiseRecipe::Recursion { coefficients: coefficients.clone() }
            }
            StrategyMatrix::BandedInverse { coefficients } => {
                NoiseRecipe::Convolution { coefficients: coefficients.clone() }
            }
            StrategyMatrix::Buffered { theta, omega } => {
                NoiseRecipe::Buffers { theta: theta.clone(), omega: omega.clone() }
            }
            StrategyMatrix::Tree => NoiseRecipe::Tree,
            StrategyMatrix::Dense { rows } => NoiseRecipe::Rows { rows: inverse_of_rows(rows) },
        };
        let factors = self.column_factors();
        let norms = factors.map(|factors| factors.iter().map(|factor| 1.0 / factor).collect());
        Noising { recipe, steps: self.steps(), factors: norms }
    }

    /// Returns column `j` of `C^-1` from row `j` on, for the whole run.
    pub(super) fn inverse_column(&self, j: usize, parts: &InverseParts) -> Vec<f64> {
        let n = self.len();
        let mut column: Vec<f64> = match parts {
            InverseParts { toeplitz: Some(d), .. } => d[..n - j].to_vec(),
            InverseParts { rows: Some(rows), .. } => rows[j..].iter().map(|row| row[j]).collect(),
            _ => {
                let mut column = vec![0.0; n - j];
                column[0] = 1.0;
                // Exactly one larger node subtracts the node that ends in step j. It ends later by
                // the length of the node.
                let later = tree_interval(j as u64 + 1) as usize;
                if let Some(entry) = column.get_mut(later) {
                    *entry = -1.0;
                }
                column
            }
        };
        if let Some(norms) = &parts.norms {
            column.iter_mut().zip(&norms[j..]).for_each(|(value, norm)| *value *= norm);
        }
        column
    }

    /// Prepares [`inverse_column`](Self::inverse_column).
    pub(super) fn inverse_parts(&self) -> InverseParts {
        let rows = match self.matrix() {
            StrategyMatrix::Dense { rows } => Some(inverse_of_rows(rows)),
            _ => None,
        };
        let norms = self.noising().factors;
        InverseParts { toeplitz: self.toeplitz_inverse(self.len()), rows, norms }
    }
}

/// The components of the columns of `C^-1`.
pub(super) struct InverseParts {
    toeplitz: Option<Vec<f64>>,
    rows: Option<Vec<Vec<f64>>>,
    norms: Option<Arc<[f64]>>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn matrix_of_the_stream_is_the_inverse_of_the_strategy() {
        let n = 13;
        let rows = (0..n).map(|i| (0..=i).map(move |j| 1.0 / (1.0 + (i - j) as f64)).collect());
        let strategies = [
            Strategy::identity(13).unwrap(),
            Strategy::optimal_toeplitz(13).unwrap(),
            Strategy::banded_toeplitz(13, &[0.8, -0.4, 0.3]).unwrap(),
            Strategy::banded_inverse_square_root(13, 3).unwrap(),
            Strategy::buffered(13, &[0.95, 0.4], &[0.15, 0.3]).unwrap(),
            Strategy::tree(13).unwrap(),
            Strategy::dense(rows.collect()).unwrap(),
        ];
        let normalized = strategies.clone().map(Strategy::with_normalized_columns);
        for strategy in strategies.iter().chain(&normalized) {
            let (parts, noising) = (strategy.inverse_parts(), strategy.noising());
            let norms = strategy.squared_column_norms(n);
            for j in 0..n {
                // The stream applied to column j of C gives a unit vector.
                let mut stream = noising.stream();
                let mut impulse = noising.stream();
                let column = strategy.inverse_column(j, &parts);
                for i in 0..n {
                    let mut entry = entry(strategy, i, j);
                    if strategy.has_normalized_columns() {
                        entry /= norms[j].sqrt();
                    }
                    let value = stream.next(entry).unwrap();
                    let expected = f64::from(u8::from(i == j));
                    assert!((value - expected).abs() < 1e-14, "{strategy} {i} {j}: {value}");
                    let value = impulse.next(expected).unwrap();
                    let expected = if i < j { 0.0 } else { column[i - j] };
                    assert!((value - expected).abs() < 1e-14, "{strategy} {i} {j}: {value}");
                }
                // No step is left, and none without noise.
                assert_eq!(stream.next(1.0), None, "{strategy}");
            }
        }
    }

    /// Returns an entry of the strategy matrix, from its definition.
    fn entry(strategy: &Strategy, i: usize, j: usize) -> f64 {
        if j > i {
            return 0.0;
        }
        match strategy.matrix() {
            StrategyMatrix::Tree => f64::from(u8::from(i - j < 1 << (i + 1).trailing_zeros())),
            StrategyMatrix::Dense { rows } => rows[i][j],
            _ => strategy.coefficients().unwrap().get(i - j).copied().unwrap_or(0.0),
        }
    }

    #[test]
    fn prefix_sum_of_the_tree_has_one_node_for_each_bit() {
        let strategy = Strategy::tree(64).unwrap();
        let noising = strategy.noising();
        let mut stream = noising.stream();
        let mut sum = 0.0;
        for t in 1u64..=64 {
            // The node that ends in step t has the noise t².
            sum += stream.next((t * t) as f64).unwrap();
            let (mut rest, mut nodes) = (t, 0.0);
            while rest > 0 {
                nodes += (rest * rest) as f64;
                rest &= rest - 1;
            }
            assert_eq!(sum, nodes, "{t}");
        }
    }
}
