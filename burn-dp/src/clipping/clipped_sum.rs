use std::collections::HashMap;

use burn::module::ParamId;
use burn::tensor::Tensor;

use super::{Coefficients, Thresholds};
use crate::DpError;
use crate::NonPrivate;

/// The sum of clipped per-example gradients: the object that noise is added to.
///
/// # Privacy
///
/// Not private yet. Its sensitivity is that of its [`thresholds`](Self::thresholds); several sums
/// of one logical batch add up with [`accumulate`](Self::accumulate) because their examples are
/// different.
#[must_use = "a clipped sum reaches the model through noise"]
pub struct ClippedSum {
    pub(crate) sums: HashMap<ParamId, Tensor<1>>,
    /// `Σ_i (b_i - ½)` of each count.
    pub(crate) balances: Vec<f64>,
    thresholds: Thresholds,
    statistics: ClippingStatistics,
}

/// How many examples a clipping policy saw, scaled down, and left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClippingStatistics {
    /// Examples seen, padding excluded.
    pub examples: usize,
    /// Examples whose norm exceeded the threshold.
    pub clipped: usize,
    /// Examples whose norm was not finite; they contribute nothing.
    pub non_finite: usize,
}

impl ClippingStatistics {
    /// Share of the examples that were clipped; zero when there was none.
    pub fn clipped_share(&self) -> f64 {
        if self.examples == 0 { 0.0 } else { self.clipped as f64 / self.examples as f64 }
    }
}

impl std::ops::AddAssign for ClippingStatistics {
    fn add_assign(&mut self, other: Self) {
        self.examples += other.examples;
        self.clipped += other.clipped;
        self.non_finite += other.non_finite;
    }
}

impl std::fmt::Debug for ClippedSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClippedSum")
            .field("clipping_norm", &self.thresholds.total_norm())
            .finish_non_exhaustive()
    }
}

impl ClippedSum {
    /// The sums of units that were multiplied with these coefficients.
    pub(crate) fn new(
        sums: impl IntoIterator<Item = (ParamId, Tensor<1>)>,
        thresholds: Thresholds,
        coefficients: Coefficients,
    ) -> Self {
        let Coefficients { statistics, balances, .. } = coefficients;
        Self { sums: sums.into_iter().collect(), balances, thresholds, statistics }
    }

    /// The sum of no unit at all.
    pub(crate) fn empty(thresholds: Thresholds) -> Self {
        let none = thresholds.coefficients(&[], |_| true);
        Self::new([], thresholds, none)
    }

    /// What every unit was clipped to.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Largest norm that a unit contributes; see [`Thresholds::total_norm`].
    pub fn clipping_norm(&self) -> f64 {
        self.thresholds.total_norm()
    }

    /// Counts of the examples. They are exact, so they are not private.
    pub fn statistics(&self) -> NonPrivate<ClippingStatistics> {
        NonPrivate::new(self.statistics)
    }

    /// Adds the sum over further examples of the same logical batch.
    ///
    /// # Errors
    ///
    /// Refuses a sum that was clipped to other thresholds: its noise would not fit.
    pub fn accumulate(&mut self, other: Self) -> Result<(), DpError> {
        if self.thresholds != other.thresholds {
            return Err(DpError::invalid(
                "clipping_norm",
                format!(
                    "changed from {:?} to {:?} inside one logical batch; keep it until the step is \
                     made",
                    self.thresholds.norms(),
                    other.thresholds.norms()
                ),
            ));
        }
        for (id, sum) in other.sums {
            let sum = match self.sums.remove(&id) {
                // Another device may have summed them.
                Some(before) => {
                    let device = before.device();
                    before + sum.to_device(&device)
                }
                None => sum,
            };
            self.sums.insert(id, sum);
        }
        self.balances.iter_mut().zip(other.balances).for_each(|(sum, other)| *sum += other);
        self.statistics += other.statistics;
        Ok(())
    }
}
