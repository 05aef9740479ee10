//! The sensitivity of a strategy under a pattern of participation.

use super::super::patterns::Patterns;
use super::{Strategy, StrategyMatrix};
use crate::domain::check_count;
use crate::error::AccountantError;
use crate::math::sum::CompensatedSum;

/// Maximum number of steps for which `C^T C` is formed.
const GRAM_STEPS: usize = 2_048;
/// Maximum number of operations for a bound by dynamic programming.
const LARGEST_WORK: usize = 1 << 28;

/// Maximum number of patterns that are enumerated.
const MOST_PATTERNS: f64 = 50_000.0;

/// Rounding of a bound that is attained.
const ATTAINED: f64 = 1.0 + 1e-12;

/// A sensitivity.
pub(crate) struct Sensitivity {
    pub(crate) value: f64,
    /// Whether some contributions attain it.
    pub(crate) is_exact: bool,
}

impl Strategy {
    /// Returns the sensitivity of the whole run: the largest norm of `Σ_i C[:, i] u_iᵀ` over all
    /// contributions `u_i` of norm at most 1 in at most `times` steps that are at least
    /// `separation` apart.
    ///
    /// The value is exact for one participation, for non-negative and non-increasing Toeplitz
    /// coefficients, if the bands of two participations cannot overlap, and for a matrix without
    /// negative entries with at most 2,048 steps and 50,000 patterns of participation. Otherwise it
    /// is an upper bound.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `times` or `separation` is 0.
    pub fn sensitivity(&self, times: u64, separation: u64) -> Result<f64, AccountantError> {
        self.sensitivity_after(self.steps(), times, separation)
    }

    /// Returns the [`sensitivity`](Self::sensitivity) of the first `steps` steps. It does not
    /// decrease with `steps`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `times` or `separation` is 0, or `steps` is
    /// above the number of steps of the strategy.
    pub fn sensitivity_after(
        &self,
        steps: u64,
        times: u64,
        separation: u64,
    ) -> Result<f64, AccountantError> {
        Ok(self.bounded_sensitivity(steps, times, separation)?.value)
    }

    /// Returns the sensitivity of the whole run if a unit takes part exactly every `period` steps:
    /// the data is used in a fixed order.
    ///
    /// In addition to the cases of [`sensitivity`](Self::sensitivity), the value is exact for
    /// matrices without negative entries (Toeplitz, or up to 2,048 steps), and if the columns of a
    /// unit are orthogonal, as in the result of a dense search.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `period` is 0.
    pub fn sensitivity_in_fixed_order(&self, period: u64) -> Result<f64, AccountantError> {
        Ok(self.bounded_sensitivity_in_fixed_order(self.steps(), period)?.value)
    }

    /// Returns the sensitivity of the first `steps` steps, and whether it is exact.
    pub(crate) fn bounded_sensitivity(
        &self,
        steps: u64,
        times: u64,
        separation: u64,
    ) -> Result<Sensitivity, AccountantError> {
        check_count("times", times)?;
        check_count("separation", separation)?;
        self.check_steps(steps)?;
        self.largest_change(Patterns::new(steps as usize, times, separation))
    }

    /// Returns the sensitivity of the first `steps` steps in a fixed order, and whether it is
    /// exact.
    pub(crate) fn bounded_sensitivity_in_fixed_order(
        &self,
        steps: u64,
        period: u64,
    ) -> Result<Sensitivity, AccountantError> {
        check_count("period", period)?;
        self.check_steps(steps)?;
        self.largest_change(Patterns::in_fixed_order(steps as usize, period))
    }

    fn largest_change(&self, patterns: Patterns) -> Result<Sensitivity, AccountantError> {
        if patterns.steps == 0 {
            return Ok(Sensitivity { value: 0.0, is_exact: true });
        }
        let exact = self.exact_squared_sensitivity(patterns);
        let squared = exact.unwrap_or_else(|| self.squared_sensitivity_bound(patterns));
        // Every column has an entry, so a sum of zero is a lost NaN.
        if squared.is_finite() && squared > 0.0 {
            // Contributions in orthogonal directions attain the sum of the squared norms.
            let is_attained = || {
                let norms = self.of_separate_columns(patterns);
                patterns.in_fixed_order && norms.is_ok_and(|sum| squared <= sum * ATTAINED)
            };
            Ok(Sensitivity { value: squared.sqrt(), is_exact: exact.is_some() || is_attained() })
        } else {
            Err(AccountantError::numerical("the sensitivity of the strategy overflows"))
        }
    }

    /// Returns an error if the strategy has fewer than `steps` steps.
    pub(crate) fn check_steps(&self, steps: u64) -> Result<(), AccountantError> {
        if steps <= self.steps() {
            return Ok(());
        }
        Err(AccountantError::invalid(
            "steps",
            format!(
                "must be at most the number of steps of the strategy, {}, got {steps}; plan the \
                 strategy for the whole run, or start a new run (which costs its own sensitivity)",
                self.steps()
            ),
        ))
    }

    /// Returns the largest norm of a column of `C`.
    pub fn largest_column_norm(&self) -> f64 {
        self.squared_norms_after(self.len()).into_iter().fold(0.0, f64::max).sqrt()
    }

    /// Returns whether the columns `0, parts, 2 parts, …` of the first `steps` steps have the
    /// largest norm of a column.
    pub(crate) fn has_equal_columns(&self, steps: u64, parts: u64) -> bool {
        let largest = self.largest_column_norm().powi(2);
        let norms = self.squared_norms_after(steps as usize);
        let parts = usize::try_from(parts).unwrap_or(usize::MAX);
        norms.iter().step_by(parts).all(|&norm| norm >= largest * (1.0 - 1e-14))
    }

    /// Returns the squared sensitivity in the cases in which it is known.
    fn exact_squared_sensitivity(&self, patterns: Patterns) -> Option<f64> {
        let Patterns { steps, times, separation, in_fixed_order } = patterns;
        if times == 1 || separation as u64 >= self.bands() {
            return self.of_separate_columns(patterns).ok();
        }
        if in_fixed_order && steps <= GRAM_STEPS && self.is_non_negative(steps) {
            return Some(patterns.largest_quadratic_bound(&self.gram(steps, true)));
        }
        if in_fixed_order && let Some(largest) = self.of_fixed_order(patterns) {
            return Some(largest);
        }
        if !self.has_normalized_columns()
            && let Some(c) = self.toeplitz(steps)
            && c.iter().all(|&c| c >= 0.0)
            && c.is_sorted_by(|a, b| a >= b)
        {
            return Some(of_decreasing_coefficients(&c, patterns));
        }
        // Equal contributions are the worst case without negative entries.
        let is_small = !in_fixed_order && steps <= GRAM_STEPS && patterns.number() <= MOST_PATTERNS;
        (is_small && self.is_non_negative(steps))
            .then(|| patterns.largest_quadratic(&self.gram(steps, true)))
    }

    /// Returns the largest squared norm of the sum of the columns of a unit, for a Toeplitz
    /// strategy without negative entries, or `None` for another one or if it takes too long.
    fn of_fixed_order(&self, patterns: Patterns) -> Option<f64> {
        let Patterns { steps, times, separation: period, .. } = patterns;
        let c = self.toeplitz(steps).filter(|c| c.iter().all(|&c| c >= 0.0))?;
        let units = period.min(steps);
        let work = steps.saturating_mul(c.len().max(units));
        if work > LARGEST_WORK {
            return None;
        }
        let factors = self.column_factors();
        let of_unit = |first: usize| {
            let mut rows = vec![0.0; steps - first];
            for column in (first..steps).step_by(period).take(times) {
                let factor = factors.as_ref().map_or(1.0, |factors| factors[column]);
                for (row, c) in rows[column - first..].iter_mut().zip(&c) {
                    *row += factor * c;
                }
            }
            sum(rows.into_iter().map(|row| row * row))
        };
        // Each row adds up at most `times` terms, and is squared.
        let rounding = 1.0 + 2.0 * (times.min(steps) + 4) as f64 * f64::EPSILON;
        (0..units).map(of_unit).reduce(f64::max).map(|largest| largest * rounding)
    }

    fn squared_sensitivity_bound(&self, patterns: Patterns) -> f64 {
        let steps = patterns.steps;
        // No term decreases with the number of steps, so neither does their minimum.
        let mut bound = self.of_overlapping_columns(patterns);
        if patterns.in_fixed_order {
            let free = Patterns { in_fixed_order: false, ..patterns };
            bound = bound.min(self.squared_sensitivity_bound(free));
        }
        if !self.has_normalized_columns()
            && let Some(c) = self.toeplitz(steps)
        {
            let majorant = non_increasing_majorant(&c);
            bound = bound.min(of_decreasing_coefficients(&majorant, patterns));
        }
        if let StrategyMatrix::Tree = self.matrix()
            && !self.has_normalized_columns()
        {
            bound = bound.min(of_tree(patterns));
        }
        if work_of_gram(patterns) <= LARGEST_WORK && steps <= GRAM_STEPS {
            bound = bound.min(patterns.largest_quadratic_bound(&self.gram(steps, true)));
        }
        // The signs only help the whole run; a part of a run has at most its sensitivity.
        let whole = patterns.with_steps(self.len());
        if work_of_gram(whole) <= LARGEST_WORK
            && self.len() <= GRAM_STEPS
            && !self.is_non_negative(self.len())
        {
            bound = bound.min(whole.largest_quadratic_bound(&self.gram(self.len(), false)));
        }
        bound
    }

    /// Returns the exact value if no two participations share a row, for example because there is
    /// only one: the largest sum of squared norms. The error variant is an upper bound, if the
    /// exact value takes too long.
    fn of_separate_columns(&self, patterns: Patterns) -> Result<f64, f64> {
        let norms = self.squared_norms_after(patterns.steps);
        if norms.is_sorted_by(|a, b| a >= b) {
            let picked = norms.iter().step_by(patterns.separation).take(patterns.times);
            return Ok(sum(picked.copied()));
        }
        if patterns.work_of_sum() > LARGEST_WORK {
            return Err(norms.into_iter().fold(0.0, f64::max) * patterns.times as f64);
        }
        Ok(patterns.largest_sum(&norms))
    }

    /// A bound by the inequality of Cauchy and Schwarz: in a row with `m` participations the square
    /// of the sum is at most `m` times the sum of the squares.
    fn of_overlapping_columns(&self, patterns: Patterns) -> f64 {
        let bands = usize::try_from(self.bands()).unwrap_or(usize::MAX);
        let overlap = patterns.within(bands.min(patterns.steps));
        let separate = self.of_separate_columns(patterns).unwrap_or_else(|bound| bound);
        separate * overlap as f64
    }
}

fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let mut sum = CompensatedSum::default();
    terms.for_each(|term| sum.add(term));
    sum.value()
}

fn work_of_gram(patterns: Patterns) -> usize {
    patterns.work_of_sum().saturating_mul(2 * patterns.steps)
}

/// Returns the smallest non-increasing sequence above the absolute values: the maximum of each
/// value and all *later* ones. (The minimum with all earlier ones would be below the values, and
/// would report too small a sensitivity.)
fn non_increasing_majorant(coefficients: &[f64]) -> Vec<f64> {
    let mut majorant: Vec<f64> = coefficients.iter().map(|c| c.abs()).collect();
    for i in (1..majorant.len()).rev() {
        majorant[i - 1] = majorant[i - 1].max(majorant[i]);
    }
    majorant
}

/// Returns the squared norm of `Σ_{j<k} C[:, j b]`, which is the squared sensitivity for
/// non-negative and non-increasing coefficients ("Banded Square Root Matrix Factorization for
/// Differentially Private Model Training", Kalinin and Lampert 2024, Theorem 2).
fn of_decreasing_coefficients(c: &[f64], patterns: Patterns) -> f64 {
    let Patterns { steps, times, separation, .. } = patterns;
    let at = |t: usize| c.get(t).copied().unwrap_or(0.0);
    let mut rows = vec![0.0; steps];
    let reach = times.saturating_mul(separation);
    for t in 0..steps {
        rows[t] = if t < separation {
            at(t)
        } else if t < reach {
            // All participations of row t - b contribute, one period later, and one more.
            at(t) + rows[t - separation]
        } else {
            (0..times).map(|j| at(t - j * separation)).sum()
        };
    }
    sum(rows.into_iter().map(|row| row * row))
}

/// Returns a bound for the binary tree: in each level, the squared numbers of participations in its
/// nodes, which are as long as the level.
fn of_tree(patterns: Patterns) -> f64 {
    let largest = |length: usize, nodes: usize| {
        let most = patterns.within(length);
        let full = (patterns.times / most).min(nodes);
        let rest = if full < nodes { patterns.times - full * most } else { 0 };
        (full * most * most + rest * rest) as f64
    };
    let levels = (0..usize::BITS as usize).map(|level| 1usize << level);
    levels
        .take_while(|&length| length <= patterns.steps)
        // The nodes of a level end at its odd multiples.
        .map(|length| largest(length, (patterns.steps / length).div_ceil(2)))
        .sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::patterns::tests::all;
    use super::super::super::triangle::inverse_of_rows;
    use super::*;

    /// Returns the largest norm over all patterns and all signs of the contributions.
    fn by_brute_force(strategy: &Strategy, patterns: Patterns) -> f64 {
        let n = patterns.steps;
        let rows = rows(strategy);
        let mut largest = 0.0f64;
        for pattern in all(patterns) {
            for signs in 0..1u32 << (pattern.len() - 1) {
                let sign = |k: usize| if signs >> k & 1 == 1 { -1.0 } else { 1.0 };
                let squared = rows[..n].iter().map(|row| {
                    let terms = pattern.iter().enumerate().map(|(k, &i)| row[i] * sign(k));
                    terms.sum::<f64>().powi(2)
                });
                largest = largest.max(squared.sum());
            }
        }
        largest.sqrt()
    }

    /// Returns the whole matrix, from its inverse noise.
    fn rows(strategy: &Strategy) -> Vec<Vec<f64>> {
        let n = strategy.len();
        let mut inverse = vec![vec![0.0; n]; n];
        for j in 0..n {
            let noising = strategy.noising();
            let mut stream = noising.stream();
            for (i, row) in inverse.iter_mut().enumerate() {
                row[j] = stream.next(f64::from(u8::from(i == j))).unwrap();
            }
        }
        let triangle: Vec<Vec<f64>> =
            inverse.iter().enumerate().map(|(i, row)| row[..=i].to_vec()).collect();
        let mut rows = inverse_of_rows(&triangle);
        rows.iter_mut().for_each(|row| row.resize(n, 0.0));
        rows
    }

    fn strategies() -> Vec<Strategy> {
        let mixed = [1.0, -0.7, 1.3, 0.8, -0.2];
        let rows =
            (0..9).map(|i| (0..=i).map(move |j| 1.0 / (1.0 + (i - j) as f64 + j as f64 * 0.1)));
        vec![
            Strategy::identity(9).unwrap(),
            Strategy::optimal_toeplitz(9).unwrap(),
            Strategy::banded_toeplitz(9, &[1.0, 0.6, 0.3]).unwrap(),
            Strategy::banded_toeplitz(9, &[0.5, 0.6, 0.1, 0.4]).unwrap(),
            Strategy::banded_toeplitz(9, &mixed).unwrap(),
            Strategy::banded_inverse_square_root(9, 3).unwrap(),
            Strategy::banded_inverse(9, &[1.0, -0.58, -0.06, 0.07]).unwrap(),
            Strategy::buffered(9, &[0.9, 0.4], &[0.2, 0.3]).unwrap(),
            Strategy::tree(9).unwrap(),
            Strategy::dense(rows.map(Iterator::collect).collect()).unwrap(),
            Strategy::optimal_toeplitz(9).unwrap().with_normalized_columns(),
            Strategy::banded_toeplitz(9, &mixed).unwrap().with_normalized_columns(),
            Strategy::tree(9).unwrap().with_normalized_columns(),
        ]
    }

    #[test]
    fn sensitivity_is_never_below_brute_force() {
        for strategy in strategies() {
            for (times, separation) in [(1, 1), (2, 1), (9, 1), (2, 3), (3, 2), (9, 2), (3, 4)] {
                let mut before = 0.0;
                for steps in 1..=9 {
                    let patterns = Patterns::new(steps as usize, times, separation);
                    let truth = by_brute_force(&strategy, patterns);
                    let bound = strategy.sensitivity_after(steps, times, separation).unwrap();
                    let context = format!("{strategy}: {patterns:?}, {bound} for {truth}");
                    assert!(bound >= truth * (1.0 - 1e-12), "{context}");
                    assert!(bound <= truth * 1.7, "{context}");
                    assert!(bound >= before, "{context}, before: {before}");
                    before = bound;
                }
            }
            for period in [1, 2, 4, 9] {
                let mut before = 0.0;
                for steps in 1..=9 {
                    let patterns = Patterns::in_fixed_order(steps as usize, period);
                    let truth = by_brute_force(&strategy, patterns);
                    let found = strategy.bounded_sensitivity_in_fixed_order(steps, period).unwrap();
                    let free = strategy.sensitivity_after(steps, 9, period).unwrap();
                    let context = format!("{strategy}: {patterns:?}, {} for {truth}", found.value);
                    assert!(found.value >= truth * (1.0 - 1e-12), "{context}");
                    assert!(found.value <= free * (1.0 + 1e-12), "{context}, {free}");
                    assert!(!found.is_exact || found.value <= truth * (1.0 + 1e-12), "{context}");
                    assert!(found.value >= before, "{context}, before: {before}");
                    before = found.value;
                }
            }
        }
    }

    #[test]
    fn a_fixed_order_of_many_steps_is_exact_for_toeplitz_strategies() {
        let toeplitz = [
            Strategy::optimal_toeplitz(60),
            Strategy::banded_toeplitz(60, &[0.5, 0.6, 0.7]),
            Strategy::buffered(60, &[0.9, 0.4], &[0.2, 0.3]),
        ];
        for strategy in toeplitz.map(Result::unwrap) {
            for strategy in [strategy.clone(), strategy.with_normalized_columns()] {
                for (steps, period) in [(60, 1), (60, 7), (60, 15), (59, 20), (31, 40), (1, 1)] {
                    let patterns = Patterns::in_fixed_order(steps, period);
                    let gram = patterns.largest_quadratic_bound(&strategy.gram(steps, true));
                    let found = strategy.of_fixed_order(patterns).unwrap();
                    let context = format!("{strategy}: {steps} {period}, {found} {gram}");
                    assert!((found / gram - 1.0).abs() < 1e-12, "{context}");
                }
            }
        }
        // Four epochs: without the exact value, four times the norm of a column.
        let normalized =
            |steps| Strategy::optimal_toeplitz(steps).unwrap().with_normalized_columns();
        let of = |steps| normalized(steps).bounded_sensitivity_in_fixed_order(steps, steps / 4);
        let [short, long] = [2_048, 2_052].map(|steps| of(steps).unwrap());
        assert!(short.is_exact && long.is_exact);
        assert!((long.value / short.value - 1.0).abs() < 1e-3, "{} {}", short.value, long.value);
        assert!(long.value < 2.5, "{}", long.value);
        // Signs, and runs for which it would take too long, are bounded.
        let mixed = Strategy::banded_toeplitz(60, &[1.0, -0.5]).unwrap();
        assert!(mixed.of_fixed_order(Patterns::in_fixed_order(60, 7)).is_none());
        let long = normalized(20_000);
        let bound = long.bounded_sensitivity_in_fixed_order(20_000, 5_000).unwrap();
        assert!(!bound.is_exact && bound.value <= 4.0 * (1.0 + 1e-12), "{}", bound.value);
    }

    #[test]
    fn sensitivity_is_exact_where_it_says_so() {
        for strategy in &strategies()[..3] {
            for (times, separation) in [(1, 1), (2, 1), (2, 3), (9, 2), (3, 4)] {
                let truth = by_brute_force(strategy, Patterns::new(9, times, separation));
                let value = strategy.sensitivity(times, separation).unwrap();
                assert!((value / truth - 1.0).abs() < 1e-14, "{strategy}: {value} {truth}");
            }
        }
        for strategy in strategies() {
            let truth = by_brute_force(&strategy, Patterns::new(9, 1, 1));
            let value = strategy.sensitivity(1, 1).unwrap();
            assert!((value / truth - 1.0).abs() < 1e-14, "{strategy}: {value} {truth}");
        }
    }

    #[test]
    fn few_patterns_without_negative_entries_are_exact() {
        let mut compared = 0;
        for strategy in strategies().iter().filter(|strategy| strategy.is_non_negative(9)) {
            for (times, separation) in [(2, 1), (9, 1), (2, 3), (3, 2), (9, 2), (3, 4)] {
                for steps in 1..=9 {
                    let patterns = Patterns::new(steps as usize, times, separation);
                    let truth = by_brute_force(strategy, patterns);
                    let found = strategy.bounded_sensitivity(steps, times, separation).unwrap();
                    let context = format!("{strategy}: {patterns:?}, {} {truth}", found.value);
                    assert!(found.is_exact, "{context}");
                    assert!((found.value / truth - 1.0).abs() < 1e-13, "{context}");
                    compared += 1;
                }
            }
        }
        assert!(compared >= 9 * 54, "{compared}");
        // With one more participation, there are too many patterns to enumerate.
        let increasing = Strategy::banded_toeplitz(100, &[0.5, 0.6, 0.7]).unwrap();
        let number = |times| Patterns::new(100, times, 1).number();
        assert!(number(2) <= MOST_PATTERNS && number(3) > MOST_PATTERNS);
        assert!(increasing.bounded_sensitivity(100, 2, 1).unwrap().is_exact);
        let (two, three) = (increasing.sensitivity(2, 1), increasing.sensitivity(3, 1));
        assert!(!increasing.bounded_sensitivity(100, 3, 1).unwrap().is_exact);
        assert!(three.unwrap() >= two.unwrap());
    }

    #[test]
    fn fixed_order_costs_less_than_its_separation() {
        // correlated_noise.json, row p066: orthogonal columns at a distance of 2, not of 3.
        let rows = vec![
            vec![0.6668510819946418],
            vec![0.3804740701843965, 0.7050925311186275],
            vec![-0.01659909871432333, 0.27524661438338804, 0.606307622203681],
            vec![0.050232099920341305, 0.0, 0.2003531623835242, 0.6535165061658427],
        ];
        let strategy = Strategy::dense(rows).unwrap();
        let fixed = strategy.bounded_sensitivity_in_fixed_order(4, 2).unwrap();
        assert!((fixed.value - 1.0).abs() < 1e-12 && fixed.is_exact, "{}", fixed.value);
        assert!(strategy.sensitivity(2, 2).unwrap() > 1.01);
        assert!(strategy.sensitivity_in_fixed_order(0).is_err());
    }

    #[test]
    fn majorant_of_coefficients_is_the_maximum_of_later_ones() {
        assert_eq!(non_increasing_majorant(&[0.2, -0.8, 0.5, -0.6]), [0.8, 0.8, 0.6, 0.6]);
        // A run too long for the Gram matrix: the largest coefficient comes late.
        let mut coefficients = vec![0.1; 5_000];
        coefficients[4_000] = 1.0;
        let strategy = Strategy::banded_toeplitz(5_000, &coefficients).unwrap();
        let bound = strategy.sensitivity(2, 500).unwrap();
        // Participations at 0 and 500 share rows, of which two have a 1.
        let truth = (2.0 * 1.1f64.powi(2) + 498.0 * 0.01 + 4_500.0 * 0.04 - 0.08).sqrt();
        assert!(bound >= truth * (1.0 - 1e-3), "{bound} {truth}");
    }

    #[test]
    fn long_runs_have_bounds_in_closed_form() {
        let n = 100_000;
        let tree = Strategy::tree(n).unwrap();
        assert_eq!(tree.sensitivity(1, 1).unwrap().powi(2).round(), 17.0);
        let bound = tree.sensitivity(10, 10_000).unwrap().powi(2);
        assert!((170.0..=400.0).contains(&bound), "{bound}");
        let normalized = Strategy::optimal_toeplitz(n).unwrap().with_normalized_columns();
        assert!((normalized.sensitivity(1, 1).unwrap() - 1.0).abs() < 1e-12);
        assert!(normalized.sensitivity(10, 10_000).unwrap() <= 10.0);
    }

    #[test]
    fn more_steps_than_planned_are_refused() {
        let strategy = Strategy::identity(10).unwrap();
        let error = strategy.sensitivity_after(11, 1, 1).unwrap_err().to_string();
        assert!(error.contains("10, got 11") && error.contains("new run"), "{error}");
        assert!(strategy.sensitivity(0, 1).is_err() && strategy.sensitivity(1, 0).is_err());
    }
}
