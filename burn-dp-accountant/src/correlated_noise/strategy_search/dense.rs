//! The search for the best of all lower-triangular strategies.

use super::super::strategy::Strategy;
use super::minimizer::minimize;
use super::symmetric_root::{SymmetricRoot, cholesky, divided_by_both_sides};
use super::{Objective, StrategySearch};
use crate::error::AccountantError;

/// Maximum number of steps in the search; the time of each evaluation grows with its cube.
const MAX_STEPS: u64 = 128;
/// Maximum number of pairs of steps of one unit; the memory grows with its square.
const MAX_PAIRS: usize = 2_500;
/// Range of the logarithms of weights.
const LARGEST_LOGARITHM: f64 = 60.0;

/// Returns the best strategy found.
///
/// With one participation and in a fixed order, the result is the best of all strategies. With a
/// minimum separation the candidates are the best strategy of as many bands as the separation,
/// whose participations do not overlap, and the best strategy of one participation.
pub(super) fn search(search: &StrategySearch) -> Result<Strategy, AccountantError> {
    let problem = Problem::new(search)?;
    let mut structures = Vec::new();
    if search.times == 1 || !search.in_fixed_order {
        structures.push(Structure::single(problem.n));
    }
    if search.times > 1 {
        structures.push(match search.in_fixed_order {
            true => Structure::fixed_order(problem.n, search.separation as usize),
            false => Structure::separated(problem.n, search.separation as usize),
        });
    }
    structures.iter().try_for_each(Structure::check)?;
    let found = structures.iter().map(|structure| Ok(problem.solve(structure)?.0));
    search.best_of(found.collect::<Result<Vec<_>, AccountantError>>()?)
}

/// Returns a lower bound on the loss of every strategy.
///
/// With a minimum separation it is the bound of the fixed orders that keep the separation and the
/// number of participations.
pub(super) fn lower_bound(search: &StrategySearch) -> Result<f64, AccountantError> {
    let problem = Problem::new(search)?;
    let structure = if search.times == 1 {
        Structure::single(problem.n)
    } else {
        // A period of at least ⌈n / times⌉ steps gives at most `times` participations.
        let period = search.separation.max(search.steps.div_ceil(search.times));
        Structure::fixed_order(problem.n, period as usize)
    };
    Ok(problem.solve(&structure)?.1)
}

/// The common structure of the columns of one unit.
///
/// For a symmetric positive matrix `V` with `tr(V X) <= sens²` for every strategy with `X = CᵀC`,
/// weights `q` of the answers with sum 1 and `W = Aᵀ q A`, the inequality of Cauchy and Schwarz
/// gives `tr(W X^-1) tr(V X) >= (tr (Lᵀ W L)^½)²` with `V = L Lᵀ`: a lower bound of the loss. It is
/// concave in `(V, q)`.
///
/// - One participation: `V` is diagonal with trace 1.
/// - A fixed order: contributions of orthogonal, equal or opposite directions show that `Σ V_ij
///   X_ij <= sens²`, if `V` is a mixture over the classes of correlation matrices of the steps of
///   each class. At the largest bound `X = L^-ᵀ (Lᵀ W L)^½ L^-1` has orthogonal columns within each
///   class, because the derivative in each free entry of `V` is 0. The sensitivity is then the root
///   of the largest trace of a class. The traces are equal and the bound is attained.
/// - A minimum separation: the same derivative makes all columns orthogonal that are at least the
///   separation apart. This is the best strategy with that many bands and equal columns.
struct Structure {
    /// The weight that a step shares with others.
    groups: Vec<usize>,
    /// Steps whose columns become orthogonal: the free entries of `V`.
    pairs: Vec<(usize, usize)>,
}

impl Structure {
    fn single(n: usize) -> Self {
        Self { groups: (0..n).collect(), pairs: Vec::new() }
    }

    fn fixed_order(n: usize, period: usize) -> Self {
        let pairs = all_pairs(n).filter(|(i, j)| (j - i) % period == 0);
        Self { groups: (0..n).map(|i| i % period).collect(), pairs: pairs.collect() }
    }

    fn separated(n: usize, separation: usize) -> Self {
        let pairs = all_pairs(n).filter(|(i, j)| j - i >= separation);
        Self { pairs: pairs.collect(), ..Self::single(n) }
    }

    fn check(&self) -> Result<(), AccountantError> {
        let count = self.pairs.len();
        if count <= MAX_PAIRS {
            return Ok(());
        }
        Err(AccountantError::invalid(
            "participation",
            format!(
                "must have at most {MAX_PAIRS} pairs of steps in which one unit may take part in a \
                 dense search, got {count}; use a buffered or banded strategy"
            ),
        ))
    }

    fn group_count(&self) -> usize {
        self.groups.iter().max().map_or(0, |last| last + 1)
    }

    /// Returns the strategy of `X`, with the entries of the pairs set to 0 and the traces of all
    /// groups set to 1.
    fn strategy(&self, mut x: Vec<f64>) -> Result<Strategy, AccountantError> {
        let n = self.groups.len();
        let mut traces = vec![0.0; self.group_count()];
        for (i, &group) in self.groups.iter().enumerate() {
            traces[group] += x[i * n + i];
        }
        for &(i, j) in &self.pairs {
            (x[i * n + j], x[j * n + i]) = (0.0, 0.0);
        }
        let trace = |i: usize| traces[self.groups[i]];
        let gram = |i: usize, j: usize| x[i * n + j] / (trace(i) * trace(j)).sqrt();
        // C^T C = X: the factorization of Cholesky from the last row up.
        let mut rows: Vec<Vec<f64>> = (0..n).map(|i| vec![0.0; i + 1]).collect();
        for j in (0..n).rev() {
            for i in (0..=j).rev() {
                let known: f64 = (j + 1..n).map(|k| rows[k][i] * rows[k][j]).sum();
                let rest = gram(i, j) - known;
                if i == j {
                    if rest.is_nan() || rest <= 0.0 {
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

fn all_pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (i + 1..n).map(move |j| (i, j)))
}

/// The workload and the objective of a search.
struct Problem {
    /// The matrix of the workload, row by row.
    queries: Vec<f64>,
    objective: Objective,
    n: usize,
}

impl Problem {
    fn new(search: &StrategySearch) -> Result<Self, AccountantError> {
        if search.steps > MAX_STEPS {
            return Err(AccountantError::invalid(
                "steps",
                format!(
                    "must be at most {MAX_STEPS} for a dense search, got {}; use a buffered or \
                     banded strategy",
                    search.steps
                ),
            ));
        }
        let n = search.len();
        let mut queries = vec![0.0; n * n];
        for j in 0..n {
            let mut column = vec![0.0; n - j];
            column[0] = 1.0;
            search.workload.apply(j, &mut column);
            column.iter().enumerate().for_each(|(i, value)| queries[(i + j) * n + j] = *value);
        }
        Ok(Self { queries, objective: search.objective, n })
    }

    /// Returns the strategy of a structure, and its lower bound.
    fn solve(&self, structure: &Structure) -> Result<(Strategy, f64), AccountantError> {
        structure.check()?;
        let answers = if self.objective == Objective::Max { self.n } else { 0 };
        let start = vec![0.0; structure.group_count() + structure.pairs.len() + answers];
        let (point, _) = minimize(&start, |point| {
            let found = self.evaluate(structure, point)?;
            Some((found.value, found.gradient))
        });
        let found = self
            .evaluate(structure, &point)
            .ok_or_else(|| AccountantError::numerical("the dense search found no strategy"))?;
        Ok((structure.strategy(found.gram)?, (-found.value).exp()))
    }

    /// Evaluates a lower bound at the logarithms of the weights of groups, the correlations of
    /// pairs, and the logarithms of the weights of answers.
    fn evaluate(&self, structure: &Structure, point: &[f64]) -> Option<Evaluation> {
        let n = self.n;
        let (of_groups, rest) = point.split_at(structure.group_count());
        let (of_pairs, of_answers) = rest.split_at(structure.pairs.len());
        let is_extreme = |value: &f64| value.abs() > LARGEST_LOGARITHM;
        if of_groups.iter().chain(of_answers).any(is_extreme) {
            return None;
        }
        let groups = shares(of_groups);
        let answers = match of_answers {
            [] => vec![1.0 / n as f64; n],
            logarithms => shares(logarithms),
        };
        let weight = |i: usize| groups[structure.groups[i]];
        let mut v = vec![0.0; n * n];
        (0..n).for_each(|i| v[i * n + i] = weight(i));
        for (&(i, j), correlation) in structure.pairs.iter().zip(of_pairs) {
            let entry = correlation * (weight(i) * weight(j)).sqrt();
            (v[i * n + j], v[j * n + i]) = (entry, entry);
        }
        let lower = cholesky(&v, n)?;
        let b = self.weighted_queries(&answers, &lower);
        let root = SymmetricRoot::new(gram(&b, n), n);
        let trace: f64 = root.values.iter().sum();
        let x = divided_by_both_sides(&lower, &root.matrix(), n);
        let mut gradient = vec![0.0; point.len()];
        for (i, &group) in structure.groups.iter().enumerate() {
            let line = i * n..(i + 1) * n;
            let product = x[line.clone()].iter().zip(&v[line]).map(|(x, v)| x * v).sum::<f64>();
            gradient[group] -= product / trace;
        }
        gradient.iter_mut().zip(&groups).for_each(|(slope, share)| *slope += share);
        for (k, &(i, j)) in structure.pairs.iter().enumerate() {
            let slope = x[i * n + j] * (weight(i) * weight(j)).sqrt();
            gradient[of_groups.len() + k] = -2.0 * slope / trace;
        }
        if !of_answers.is_empty() {
            let first = of_groups.len() + of_pairs.len();
            let diagonal = root.other_diagonal(&b);
            for ((slope, answer), share) in gradient[first..].iter_mut().zip(diagonal).zip(answers)
            {
                *slope = share - answer / trace;
            }
        }
        Some(Evaluation { value: -2.0 * trace.ln(), gradient, gram: x })
    }

    /// Returns `q^½ A L`.
    fn weighted_queries(&self, answers: &[f64], lower: &[f64]) -> Vec<f64> {
        let n = self.n;
        let mut product = vec![0.0; n * n];
        for (i, weight) in answers.iter().enumerate() {
            let line = &mut product[i * n..(i + 1) * n];
            for k in 0..=i {
                let query = weight.sqrt() * self.queries[i * n + k];
                let row = &lower[k * n..(k + 1) * n];
                line.iter_mut().zip(row).for_each(|(value, b)| *value += query * b);
            }
        }
        product
    }
}

/// A point of the search: minus the logarithm of the bound, its gradient, and `X`.
struct Evaluation {
    value: f64,
    gradient: Vec<f64>,
    gram: Vec<f64>,
}

/// Returns the shares of a sum that have these logarithms, up to a constant.
fn shares(logarithms: &[f64]) -> Vec<f64> {
    let all: Vec<f64> = logarithms.iter().map(|value| value.exp()).collect();
    let sum: f64 = all.iter().sum();
    all.into_iter().map(|value| value / sum).collect()
}

/// Returns `Bᵀ B`.
fn gram(b: &[f64], n: usize) -> Vec<f64> {
    let mut product = vec![0.0; n * n];
    for row in b.chunks(n) {
        for (i, a) in row.iter().enumerate().filter(|(_, a)| **a != 0.0) {
            let line = &mut product[i * n..(i + 1) * n];
            line.iter_mut().zip(row).for_each(|(value, b)| *value += a * b);
        }
    }
    product
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
            let (strategy, bound) =
                (problem.dense().unwrap(), problem.dense_lower_bound().unwrap());
            let loss = problem.loss_of(&strategy).unwrap();
            assert!(loss >= bound * (1.0 - 1e-12), "{n}: {loss} {bound}");
            assert!((loss / expected - 1.0).abs() < 2e-7, "{n}: {loss} {bound} {expected}");
        }
    }

    #[test]
    fn dense_search_in_a_fixed_order_reaches_its_lower_bound() {
        // correlated_noise.json, rows p066 to p068: results of jax_privacy 2.0.0.
        for (n, times, theirs) in
            [(4, 2, 3.648693740918605), (8, 2, 4.609233488822153), (16, 4, 13.47336309884001)]
        {
            let problem = StrategySearch::new(n).unwrap().with_fixed_order(n / times).unwrap();
            let (strategy, bound) =
                (problem.dense().unwrap(), problem.dense_lower_bound().unwrap());
            let loss = problem.loss_of(&strategy).unwrap();
            assert!(
                loss >= bound * (1.0 - 1e-12) && loss <= bound * (1.0 + 1e-7),
                "{loss} {bound}"
            );
            assert!((loss / theirs - 1.0).abs() < 1e-6, "{n}: {loss} {theirs}");
            let run = strategy.bounded_sensitivity_in_fixed_order(n, n / times).unwrap();
            assert!(run.is_exact);
        }
        let problem = StrategySearch::new(12).unwrap().with_objective(Objective::Max);
        let problem = problem.with_fixed_order(4).unwrap();
        let loss = problem.loss_of(&problem.dense().unwrap()).unwrap();
        let bound = problem.dense_lower_bound().unwrap();
        assert!(loss >= bound * (1.0 - 1e-12) && loss <= bound * (1.0 + 1e-6), "{loss} {bound}");
    }

    #[test]
    fn dense_search_with_a_separation_is_no_worse_than_bands() {
        for (n, times, separation) in [(12, 3, 4), (16, 2, 4), (10, 3, 1)] {
            let problem =
                StrategySearch::new(n).unwrap().with_participation(times, separation).unwrap();
            let loss = problem.loss_of(&problem.dense().unwrap()).unwrap();
            let bound = problem.dense_lower_bound().unwrap();
            assert!(loss >= bound * (1.0 - 1e-9), "{loss} {bound}");
            for bands in [1, separation] {
                let banded = problem.loss_of(&problem.banded_toeplitz(bands).unwrap()).unwrap();
                assert!(loss <= banded * (1.0 + 1e-9), "{n} {times}: {loss} {banded}");
            }
        }
    }

    #[test]
    fn gradient_agrees_with_differences() {
        let search = StrategySearch::new(6).unwrap().with_objective(Objective::Max);
        let problem = Problem::new(&search).unwrap();
        for structure in [Structure::fixed_order(6, 2), Structure::separated(6, 3)] {
            let size = structure.group_count() + structure.pairs.len() + 6;
            let point: Vec<f64> = (0..size).map(|i| 0.1 * ((i * 7 % 5) as f64 - 2.0)).collect();
            let gradient = problem.evaluate(&structure, &point).unwrap().gradient;
            for i in 0..size {
                let moved = |by: f64| {
                    let mut moved = point.clone();
                    moved[i] += by;
                    problem.evaluate(&structure, &moved).unwrap().value
                };
                let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((gradient[i] - difference).abs() < 1e-8, "{i} {gradient:?} {difference}");
            }
        }
    }

    #[test]
    fn dense_search_refuses_what_it_cannot_do() {
        let error = StrategySearch::new(129).unwrap().dense().unwrap_err().to_string();
        assert!(error.contains("128") && error.contains("got 129"), "{error}");
        let often = StrategySearch::new(128).unwrap().with_participation(4, 8).unwrap();
        let error = often.dense().unwrap_err().to_string();
        assert!(error.contains("2500 pairs"), "{error}");
    }
}
