//! Correlated noise as a linear recurrence over the steps.

use burn_dp_accountant::correlated_noise::{NoiseRecipe, Noising, Strategy, StrategyMatrix};

use crate::DpError;

/// One step: the correlated value is `v = z + Σ factor · slot`, where `z` is the independent
/// standard normal value of the step; [`unit`](Recurrences::unit)` · v` is added to the sum.
///
/// # Privacy
///
/// The factor of `z` is one, so that in units of the grid, which is a multiple of `unit`, the noise
/// is an independent normal integer plus the rounded part of earlier steps. With another factor
/// some integers could not occur.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recurrence {
    /// Slots with their factors, in the order in which they are added.
    pub(super) read: Vec<(usize, f64)>,
    /// The slots that change.
    pub(super) write: Vec<Write>,
}

/// The new value of a slot: `keep · slot + correlated · v + fresh · z`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) slot: usize,
    pub(super) keep: f64,
    pub(super) correlated: f64,
    pub(super) fresh: f64,
}

impl Write {
    /// Keeps `z`.
    fn independent(slot: usize) -> Self {
        Self { slot, keep: 0.0, correlated: 0.0, fresh: 1.0 }
    }

    /// Keeps `v`.
    fn correlated(slot: usize) -> Self {
        Self { slot, keep: 0.0, correlated: 1.0, fresh: 0.0 }
    }
}

impl Recurrence {
    /// Applies the recurrence to the slots of one value. Returns the correlated value.
    fn apply(&self, slots: &mut [f64], z: f64) -> f64 {
        let v = z + self.read.iter().map(|&(slot, factor)| factor * slots[slot]).sum::<f64>();
        for &Write { slot, keep, correlated, fresh } in &self.write {
            let kept = if keep == 0.0 { 0.0 } else { keep * slots[slot] };
            slots[slot] = kept + correlated * v + fresh * z;
        }
        v
    }
}

/// The correlated values of a Toeplitz strategy if `z` is 1 in the first step alone: a row of
/// [`unit`](Recurrences::unit)` · C⁻¹` from right to left.
#[derive(Debug, Default)]
pub(super) struct Impulse {
    step: u64,
    slots: Vec<f64>,
    /// The sum of the squares so far.
    squares: f64,
}

/// The recurrences of all steps of a strategy.
#[derive(Debug)]
pub(super) struct Recurrences {
    noising: Noising,
    slots: usize,
}

impl Recurrences {
    pub(super) fn new(strategy: &Strategy) -> Self {
        let noising = strategy.noising();
        let slots = match noising.recipe() {
            NoiseRecipe::Independent => 0,
            NoiseRecipe::Convolution { coefficients } | NoiseRecipe::Recursion { coefficients } => {
                coefficients.len().saturating_sub(1)
            }
            NoiseRecipe::Buffers { theta, .. } => theta.len(),
            // One value for each size of a node.
            NoiseRecipe::Tree => (u64::BITS - strategy.steps().leading_zeros()) as usize,
            NoiseRecipe::Rows { rows } => rows.len().saturating_sub(1),
        };
        Self { noising, slots }
    }

    /// Returns the number of values that are kept for each value of the model.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns whether every slot is the independent value of one earlier step, which can be drawn
    /// again.
    pub(super) fn only_independent(&self) -> bool {
        !matches!(
            self.noising.recipe(),
            NoiseRecipe::Recursion { .. } | NoiseRecipe::Buffers { .. }
        )
    }

    /// Returns the standard deviation of the independent part of `step`, as a multiple of the run's
    /// deviation.
    pub(super) fn unit(&self, step: u64) -> f64 {
        let factor = self.noising.factor(step);
        match self.noising.recipe() {
            NoiseRecipe::Convolution { coefficients } => coefficients[0] * factor,
            NoiseRecipe::Recursion { coefficients } => factor / coefficients[0],
            NoiseRecipe::Rows { rows } => rows[step as usize][step as usize].abs() * factor,
            NoiseRecipe::Independent | NoiseRecipe::Buffers { .. } | NoiseRecipe::Tree => factor,
        }
    }

    /// Returns the standard deviation of the noise of `step`, as a multiple of the run's deviation:
    /// the norm of the row of `C⁻¹`.
    ///
    /// # Arguments
    ///
    /// - `impulse`: new, or of this or an earlier step; each step is computed once
    pub(super) fn deviation(&self, step: u64, impulse: &mut Impulse) -> f64 {
        // Each slot is another independent value, or the row is one of a Toeplitz matrix.
        let squares = if self.only_independent() {
            let read = self.step(step).read;
            1.0 + read.iter().map(|(_, factor)| factor * factor).sum::<f64>()
        } else {
            impulse.slots.resize(self.slots, 0.0);
            while impulse.step <= step {
                let z = if impulse.step == 0 { 1.0 } else { 0.0 };
                impulse.squares += self.step(impulse.step).apply(&mut impulse.slots, z).powi(2);
                impulse.step += 1;
            }
            impulse.squares
        };
        self.unit(step) * squares.sqrt()
    }

    /// Returns an upper bound on `Σ |factor · slot|` in any of `steps` steps.
    fn largest_sum(&self, steps: u64) -> f64 {
        let factors = |step: u64| self.step(step).read.into_iter().map(|(_, factor)| factor.abs());
        if self.only_independent() {
            let total = |step| factors(step).sum::<f64>();
            return LARGEST_NORMAL
                * match self.noising.recipe() {
                    // The last step reads most.
                    NoiseRecipe::Convolution { .. } => total(steps - 1),
                    NoiseRecipe::Tree => f64::from(u64::BITS),
                    _ => (0..steps).map(total).fold(0.0, f64::max),
                };
        }
        // Bounds each slot: a buffer by its own values, an earlier value by all.
        let (mut slots, mut largest) = (vec![0.0; self.slots], vec![0.0; self.slots]);
        let mut of_values = 0.0;
        for step in 0..steps {
            let z = if step == 0 { 1.0 } else { 0.0 };
            of_values += self.step(step).apply(&mut slots, z).abs();
            largest.iter_mut().zip(&slots).for_each(|(sum, slot): (&mut f64, &f64)| {
                *sum += slot.abs();
            });
        }
        if let NoiseRecipe::Recursion { .. } = self.noising.recipe() {
            largest.fill(of_values);
        }
        let last = self.step(steps - 1).read.into_iter();
        LARGEST_NORMAL * last.map(|(slot, factor)| factor.abs() * largest[slot]).sum::<f64>()
    }

    /// Returns the recurrence of `step`.
    pub(super) fn step(&self, step: u64) -> Recurrence {
        let kept = self.slots as u64;
        // The value of `age` steps ago, while it is kept.
        let slot = |age: u64| ((step - age) % kept) as usize;
        let ages = || (1..=kept.min(step)).zip(1usize..);
        match self.noising.recipe() {
            NoiseRecipe::Independent => Recurrence::default(),
            NoiseRecipe::Convolution { coefficients } => Recurrence {
                read: ages()
                    .map(|(age, index)| (slot(age), coefficients[index] / coefficients[0]))
                    .collect(),
                write: (0..kept.min(1)).map(|_| Write::independent(slot(0))).collect(),
            },
            NoiseRecipe::Recursion { coefficients } => Recurrence {
                read: ages()
                    .map(|(age, index)| (slot(age), -coefficients[index] / coefficients[0]))
                    .collect(),
                write: (0..kept.min(1)).map(|_| Write::correlated(slot(0))).collect(),
            },
            NoiseRecipe::Buffers { theta, omega } => Recurrence {
                read: omega.iter().map(|weight| -weight).enumerate().collect(),
                write: theta
                    .iter()
                    .enumerate()
                    .map(|(slot, &keep)| Write { keep, ..Write::correlated(slot) })
                    .collect(),
            },
            NoiseRecipe::Tree => {
                // Of each size below the node of this step, one node ends.
                let size = |step: u64| (step + 1).trailing_zeros() as usize;
                let finished = NoiseRecipe::finished_nodes(step);
                Recurrence {
                    read: finished.map(|earlier| (size(earlier), -1.0)).collect(),
                    write: vec![Write::independent(size(step))],
                }
            }
            NoiseRecipe::Rows { rows } => {
                let (row, diagonal) = (&rows[step as usize], |step: usize| rows[step][step]);
                // The sign of a column belongs to its `z`, which is symmetric.
                let own = diagonal(step as usize).abs();
                let earlier = row[..row.len() - 1].iter().enumerate();
                let earlier = earlier.map(|(slot, d)| (slot, d * diagonal(slot).signum() / own));
                Recurrence {
                    read: earlier.rev().collect(),
                    write: (step < kept)
                        .then(|| Write::independent(step as usize))
                        .into_iter()
                        .collect(),
                }
            }
        }
    }
}

/// Bounds the independent normal values.
const LARGEST_NORMAL: f64 = 9.2;

/// Largest `Σ |factor · slot|` of a strategy that is accepted.
const LARGEST_SUM: f64 = (1 << 12) as f64;

/// Returns an error if noise of earlier steps can grow so large that it would be rounded more than
/// the proof of the [mechanism](super::GaussianMechanism) allows, or cut off, so that it would no
/// longer cancel in later steps.
///
/// # Errors
///
/// Returns [`DpError::InvalidArgument`] with the bound.
pub(crate) fn check_growth(strategy: &Strategy) -> Result<(), DpError> {
    let largest = Recurrences::new(strategy).largest_sum(strategy.steps());
    if largest <= LARGEST_SUM {
        return Ok(());
    }
    Err(DpError::invalid(
        "correlated_noise",
        format!(
            "needs a strategy whose inverse stays small: the noise of earlier steps can add up to \
             {largest:.3e} standard deviations ({strategy}), and {LARGEST_SUM} are allowed; check \
             the order of its coefficients, or use a strategy of `cargo xtask strategy`"
        ),
    ))
}

/// Returns a bound on the movement of all independent values of a run by rounding, over the
/// movement of the values of one step with independent noise, in sensitivities.
///
/// In step t, in units of the grid, neighbors differ in the rounded sum by at most 1 more than in
/// the sum, and in the rounded part of earlier steps by at most 1 more than in that part; 2 more
/// are for its computation in double precision. With M the strategy C after its diagonal is divided
/// out of its columns, the independent values that explain the same results therefore differ by at
/// most `M e` more than in the mechanism without rounding, where each of the d·T entries of e is at
/// most 4. So they differ by at most `4 √(d T) ‖M‖` more; 4 √T ‖M‖ is returned, over the smallest
/// sensitivity that C can have, which is the smallest entry of its diagonal.
pub(super) fn rounding_gain(strategy: &Strategy) -> f64 {
    let norm = match (strategy.coefficients(), strategy.matrix()) {
        // Of a Toeplitz matrix, the sum of its coefficients.
        (Some(c), _) => c.iter().map(|c| c.abs()).sum::<f64>() / c[0],
        (None, StrategyMatrix::Dense { rows }) => {
            let (mut largest_row, mut columns) = (0.0f64, vec![0.0; rows.len()]);
            for row in rows {
                let entries = row.iter().enumerate().map(|(s, entry)| (entry / rows[s][s]).abs());
                let mut total = 0.0;
                for (column, entry) in columns.iter_mut().zip(entries) {
                    *column += entry;
                    total += entry;
                }
                largest_row = largest_row.max(total);
            }
            (largest_row * columns.into_iter().fold(0.0, f64::max)).sqrt()
        }
        // A row of the tree sums one node, and a step is in one node of each size.
        (None, _) => {
            let levels = strategy.steps().ilog2();
            (2f64.powi(levels as i32) * f64::from(levels + 1)).sqrt()
        }
    };
    4.0 * (strategy.steps() as f64).sqrt() * norm / strategy.smallest_diagonal()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::noise::correlated::tests::strategies;

    #[test]
    fn every_recurrence_is_the_noising_of_its_strategy() {
        let independent: Vec<f64> =
            (0..32).map(|i| ((i * 37 + 11) % 29) as f64 / 7.0 - 2.0).collect();
        let mut all = strategies(32);
        all.push(Strategy::banded_inverse(32, &[0.8, -0.4, 0.1]).unwrap());
        let normalized: Vec<_> =
            all.iter().cloned().map(Strategy::with_normalized_columns).collect();
        for strategy in all.into_iter().chain(normalized) {
            let recurrences = Recurrences::new(&strategy);
            let mut slots = vec![f64::NAN; recurrences.slots()];
            if let NoiseRecipe::Buffers { .. } = recurrences.noising.recipe() {
                slots.fill(0.0);
            }
            let noising = strategy.noising();
            let mut stream = noising.stream();
            for (step, &z) in (0..).zip(&independent) {
                let v = recurrences.step(step).apply(&mut slots, z);
                let (found, expected) = (recurrences.unit(step) * v, stream.next(z).unwrap());
                assert!((found - expected).abs() < 1e-12, "{strategy} {step}: {found} {expected}");
            }
        }
    }

    /// Returns the rows of the inverse of a strategy, by its reference implementation.
    fn inverse(strategy: &Strategy) -> Vec<Vec<f64>> {
        let (noising, steps) = (strategy.noising(), strategy.steps());
        let columns: Vec<Vec<f64>> = (0..steps)
            .map(|column| {
                let mut stream = noising.stream();
                let impulse = |step| if step == column { 1.0 } else { 0.0 };
                (0..steps).map(|step| stream.next(impulse(step)).unwrap()).collect()
            })
            .collect();
        (0..steps as usize).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
    }

    #[test]
    fn the_deviation_of_a_step_is_the_norm_of_its_row_of_the_inverse() {
        let all = strategies(20);
        let normalized: Vec<_> =
            all.iter().cloned().map(Strategy::with_normalized_columns).collect();
        for strategy in all.into_iter().chain(normalized) {
            let recurrences = Recurrences::new(&strategy);
            let mut impulse = Impulse::default();
            for (step, row) in (0..).zip(inverse(&strategy)) {
                let expected = row.iter().map(|entry| entry * entry).sum::<f64>().sqrt();
                let found = [
                    recurrences.deviation(step, &mut impulse),
                    // As after a resumption.
                    recurrences.deviation(step, &mut Impulse::default()),
                ];
                for found in found {
                    assert!((found / expected - 1.0).abs() < 1e-12, "{strategy} {step}: {found}");
                }
            }
        }
    }

    #[test]
    fn the_largest_sum_bounds_what_a_step_reads() {
        for strategy in strategies(24) {
            let recurrences = Recurrences::new(&strategy);
            let bound = recurrences.largest_sum(24);
            let mut most = 0.0f64;
            // The signs of a row make its value as large as it can be.
            for row in inverse(&strategy) {
                let mut slots = vec![0.0; recurrences.slots()];
                for (step, entry) in (0..).zip(row) {
                    let recurrence = recurrences.step(step);
                    let read = recurrence.read.iter().map(|&(slot, f)| (f * slots[slot]).abs());
                    most = most.max(read.sum());
                    recurrence.apply(&mut slots, LARGEST_NORMAL.copysign(entry));
                }
            }
            assert!(most <= bound * (1.0 + 1e-12), "{strategy}: {most} {bound}");
            let is_tree = matches!(strategy.matrix(), StrategyMatrix::Tree);
            assert!(is_tree || most >= 0.1 * bound, "{strategy}: {most} {bound}");
            assert!(check_growth(&strategy).is_ok(), "{strategy}: {bound}");
        }
    }

    // Sharp edge: noise that is cut off does not cancel in later steps.
    #[test]
    fn strategies_whose_noise_grows_are_refused() {
        // Poles outside of the unit circle; a square root with its coefficients in reverse; and a
        // dense strategy that doubles.
        let oscillating = [1.0, -3.0 * 0.2f64.cos(), 2.25];
        let mut reversed: Vec<f64> = vec![1.0];
        (1..8).for_each(|k| reversed.push(reversed[k - 1] * (1.0 - 0.5 / k as f64)));
        reversed.reverse();
        let doubling = |i: usize| (0..=i).map(|j| if i == j { 1.0 } else { -1.0 }).collect();
        for strategy in [
            Strategy::banded_toeplitz(60, &oscillating),
            Strategy::banded_toeplitz(200, &reversed),
            // Independent noise of all steps so far.
            Strategy::banded_toeplitz(1_000, &[1.0, -1.0]),
            Strategy::dense((0..30).map(doubling).collect()),
        ] {
            let error = check_growth(&strategy.unwrap()).unwrap_err().to_string();
            assert!(error.contains("standard deviations"), "{error}");
        }
        // Not those that are long or have many bands.
        let mut root = vec![1.0];
        (1..1000).for_each(|k| root.push(root[k - 1] * (1.0 - 0.5 / k as f64)));
        for strategy in [
            Strategy::banded_toeplitz(400, &[1.0, -1.0]),
            Strategy::banded_toeplitz(5_000, &root),
            Strategy::optimal_toeplitz(100_000),
            Strategy::buffered(100_000, &[0.9999, 0.99, 0.5], &[0.02, 0.1, 0.3]),
            Strategy::tree(1 << 20),
        ] {
            let strategy = strategy.unwrap();
            assert!(check_growth(&strategy).is_ok(), "{strategy}");
        }
    }

    #[test]
    fn the_gain_of_rounding_bounds_the_norm_of_the_strategy() {
        const STEPS: usize = 32;
        let mut all = strategies(STEPS as u64);
        let signs = |i: usize| {
            (0..=i).map(|j| if (i + j).is_multiple_of(3) { -0.8 } else { 0.6 }).collect()
        };
        all.push(Strategy::dense((0..STEPS).map(signs).collect()).unwrap());
        for strategy in all {
            let recurrences = Recurrences::new(&strategy);
            // Column s of B: the correlated values if z is 1 in step s alone.
            let columns: Vec<Vec<f64>> = (0..STEPS)
                .map(|s| {
                    let mut slots = vec![0.0; recurrences.slots()];
                    let value = |step: usize| {
                        let z = f64::from(u8::from(step == s));
                        recurrences.step(step as u64).apply(&mut slots, z)
                    };
                    (0..STEPS).map(value).collect()
                })
                .collect();
            // M is the inverse of B: solves B z = e.
            let solve = |e: &[f64]| {
                let mut z = e.to_vec();
                for s in 0..STEPS {
                    let pivot = z[s];
                    (s + 1..STEPS).for_each(|t| z[t] -= columns[s][t] * pivot);
                }
                z
            };
            let solve_transposed = |e: &[f64]| {
                let mut z = e.to_vec();
                for s in (0..STEPS).rev() {
                    z[s] -= (s + 1..STEPS).map(|t| columns[s][t] * z[t]).sum::<f64>();
                }
                z
            };
            // ‖M‖² is at most the largest sum of a row times the largest sum of a column.
            let (mut rows, mut largest_column) = (vec![0.0; STEPS], 0.0f64);
            for s in 0..STEPS {
                let unit: Vec<f64> = (0..STEPS).map(|t| f64::from(u8::from(t == s))).collect();
                let column = solve(&unit);
                largest_column = largest_column.max(column.iter().map(|x| x.abs()).sum());
                rows.iter_mut().zip(column).for_each(|(row, x)| *row += x.abs());
            }
            let bound = (rows.into_iter().fold(0.0, f64::max) * largest_column).sqrt();
            let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let mut x: Vec<f64> = (0..STEPS).map(|i| 1.0 + (i as f64).sin()).collect();
            let mut norm = 0.0;
            for _ in 0..200 {
                let scale = 1.0 / length(&x);
                x.iter_mut().for_each(|x| *x *= scale);
                x = solve_transposed(&solve(&x));
                norm = length(&x).sqrt();
            }
            let factor = 4.0 * (STEPS as f64).sqrt() / strategy.smallest_diagonal();
            let (gain, least) = (rounding_gain(&strategy), factor * norm);
            assert!((gain / (factor * bound) - 1.0).abs() < 1e-9, "{strategy}: {gain} {bound}");
            assert!(gain >= 0.999_999 * least, "{strategy}: {gain} {least}");
            assert!(gain < 4.0 * least, "{strategy}: {gain} {least}");
        }
    }
}
