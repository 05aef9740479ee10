//! Correlated noise as a linear recurrence over the steps.

use burn_dp_accountant::correlated_noise::{NoiseRecipe, Noising, Strategy};

/// One step: the correlated value is `w = fresh · z + Σ factor · slot`, where `z` is the
/// independent standard normal value of the step; `scale · w` is added to the sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recurrence {
    /// Factor of `z`.
    pub(super) fresh: f64,
    /// Slots with their factors, in the order in which they are added.
    pub(super) read: Vec<(usize, f64)>,
    /// The slots that change.
    pub(super) write: Vec<Write>,
    pub(super) scale: f64,
}

/// The new value of a slot: `keep · slot + correlated · w + fresh · z`.
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

    /// Keeps `w`.
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

    /// Returns the recurrence of `step`.
    pub(super) fn step(&self, step: u64) -> Recurrence {
        let scale = self.noising.factor(step);
        let fresh = Recurrence { fresh: 1.0, read: Vec::new(), write: Vec::new(), scale };
        let kept = self.slots as u64;
        // The value of `age` steps ago, while it is kept.
        let slot = |age: u64| ((step - age) % kept) as usize;
        let ages = || (1..=kept.min(step)).zip(1usize..);
        match self.noising.recipe() {
            NoiseRecipe::Independent => fresh,
            NoiseRecipe::Convolution { coefficients } => Recurrence {
                fresh: coefficients[0],
                read: ages().map(|(age, index)| (slot(age), coefficients[index])).collect(),
                write: (0..kept.min(1)).map(|_| Write::independent(slot(0))).collect(),
                ..fresh
            },
            NoiseRecipe::Recursion { coefficients } => Recurrence {
                fresh: 1.0 / coefficients[0],
                read: ages()
                    .map(|(age, index)| (slot(age), -coefficients[index] / coefficients[0]))
                    .collect(),
                write: (0..kept.min(1)).map(|_| Write::correlated(slot(0))).collect(),
                ..fresh
            },
            NoiseRecipe::Buffers { theta, omega } => Recurrence {
                read: omega.iter().map(|weight| -weight).enumerate().collect(),
                write: theta
                    .iter()
                    .enumerate()
                    .map(|(slot, &keep)| Write { keep, ..Write::correlated(slot) })
                    .collect(),
                ..fresh
            },
            NoiseRecipe::Tree => {
                // Of each size below the node of this step, one node ends.
                let size = |step: u64| (step + 1).trailing_zeros() as usize;
                let finished = NoiseRecipe::finished_nodes(step);
                Recurrence {
                    read: finished.map(|earlier| (size(earlier), -1.0)).collect(),
                    write: vec![Write::independent(size(step))],
                    ..fresh
                }
            }
            NoiseRecipe::Rows { rows } => {
                let row = &rows[step as usize];
                let earlier = row[..row.len() - 1].iter().copied().enumerate();
                Recurrence {
                    fresh: row[row.len() - 1],
                    read: earlier.rev().collect(),
                    write: (step < kept)
                        .then(|| Write::independent(step as usize))
                        .into_iter()
                        .collect(),
                    ..fresh
                }
            }
        }
    }
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
        for strategy in strategies(32) {
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
                let w = recurrence.fresh * z + read.sum::<f64>();
                for write in recurrence.write {
                    let kept = if write.keep == 0.0 { 0.0 } else { write.keep * slots[write.slot] };
                    slots[write.slot] = kept + write.correlated * w + write.fresh * z;
                }
                let (found, expected) = (recurrence.scale * w, stream.next(z));
                assert!((found - expected).abs() < 1e-12, "{strategy} {step}: {found} {expected}");
            }
        }
    }
}
