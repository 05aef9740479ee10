//! Correlated noise as a linear recurrence over the steps.

use burn_dp_accountant::correlated_noise::{NoiseRecipe, Noising, Strategy, StrategyMatrix};

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
                let recurrence = recurrences.step(step);
                let read = recurrence.read.iter().map(|&(slot, factor)| factor * slots[slot]);
                let v = z + read.sum::<f64>();
                for write in recurrence.write {
                    let kept = if write.keep == 0.0 { 0.0 } else { write.keep * slots[write.slot] };
                    slots[write.slot] = kept + write.correlated * v + write.fresh * z;
                }
                let (found, expected) = (recurrences.unit(step) * v, stream.next(z));
                assert!((found - expected).abs() < 1e-12, "{strategy} {step}: {found} {expected}");
            }
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
                        let (recurrence, z) =
                            (recurrences.step(step as u64), f64::from(u8::from(step == s)));
                        let read = recurrence.read.iter().map(|&(slot, f)| f * slots[slot]);
                        let v = z + read.sum::<f64>();
                        for write in recurrence.write {
                            let kept = write.keep * slots[write.slot];
                            slots[write.slot] = kept + write.correlated * v + write.fresh * z;
                        }
                        v
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
