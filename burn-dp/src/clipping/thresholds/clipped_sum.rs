use std::collections::HashMap;

use burn::module::ParamId;
use burn::tensor::{DType, Tensor};

use super::coefficients::Coefficients;
use super::statistics::ClippingStatistics;
use super::thresholds::Thresholds;
use crate::DpError;
use crate::NonPrivate;
use crate::device_read::{blocking, read_together};
use crate::grads::{GroupSum, NormTable, PerExampleGradients};
use crate::ops::coefficients;

/// The sum of clipped per-example gradients, to which noise is added.
///
/// # Privacy
///
/// It is not private yet. Its sensitivity follows from its [`thresholds`](Self::thresholds). Sums
/// over different examples of one logical batch add up with [`accumulate`](Self::accumulate).
#[must_use = "a clipped sum reaches the model through noise"]
pub struct ClippedSum {
    pub(crate) sums: HashMap<ParamId, GroupSum>,
    /// `Σ_i (b_i - ½)` of each count, exact, without the units in `unread`.
    count_sums: Vec<f64>,
    thresholds: Thresholds,
    /// Without the units in `unread`.
    statistics: ClippingStatistics,
    unread: Vec<UnreadNorms>,
}

/// The norms of units that a device clipped. They are read when they are needed for statistics and
/// counts.
struct UnreadNorms {
    /// Squared norms of the groups, `[groups, units]`; infinite for units that were left out.
    squared_norms: Tensor<2>,
    /// `false` for units that only pad the batch.
    real: Option<Vec<bool>>,
}

impl UnreadNorms {
    /// Returns the number of units, padding excluded.
    fn examples(&self) -> usize {
        match &self.real {
            Some(real) => real.iter().filter(|&&real| real).count(),
            None => self.squared_norms.dims()[1],
        }
    }

    /// Returns the statistics and counts that the host computes from the values of the norms.
    fn counted(&self, norms: &[f64], thresholds: &Thresholds) -> Coefficients {
        let [_, units] = self.squared_norms.dims();
        let norms: Vec<Vec<f64>> = norms.chunks_exact(units).map(<[f64]>::to_vec).collect();
        let is_real = |unit: usize| self.real.as_ref().is_none_or(|real| real[unit]);
        thresholds.coefficients(&norms, is_real)
    }
}

opaque_debug!(ClippedSum, |this| clipping_norm: this.thresholds.total_norm());

impl ClippedSum {
    /// Clips the gradient of each example to `thresholds` and returns the sum.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Device`] if the norms cannot be read from the device, and
    /// [`DpError::UnsupportedModel`] if a parameter belongs to no group.
    pub fn from_gradients(
        grads: PerExampleGradients,
        thresholds: &Thresholds,
    ) -> Result<Self, DpError> {
        let sum = Self::from_gradients_async(grads, thresholds);
        blocking(sum, "ClippedSum::from_gradients_async")
    }

    /// Runs [`from_gradients`](Self::from_gradients) without blocking the thread.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_gradients`](Self::from_gradients).
    pub async fn from_gradients_async(
        grads: PerExampleGradients,
        thresholds: &Thresholds,
    ) -> Result<Self, DpError> {
        if grads.has_device_coefficients()
            && thresholds.fits_device()
            && let Some(table) = grads.norm_table(thresholds.groups())?
        {
            return Self::on_device(grads, thresholds.clone(), table);
        }
        let squared_norms = grads.squared_norms(thresholds.groups()).await?;
        let coefficients = thresholds.coefficients(&squared_norms, |unit| grads.is_real(unit));
        Self::weighted(grads, thresholds.clone(), coefficients)
    }

    /// Clips with coefficients that the device computes. Nothing is read.
    fn on_device(
        grads: PerExampleGradients,
        thresholds: Thresholds,
        table: NormTable,
    ) -> Result<Self, DpError> {
        let clipping = thresholds.device_clipping(&table, grads.real());
        let [squared_norms, coefficients] = coefficients(table.table.cast(DType::F32), &clipping);
        let unread = UnreadNorms { squared_norms, real: clipping.real };
        let sums = grads.weighted_sum_on_device(coefficients, thresholds.groups())?;
        let mut sum = Self::empty(thresholds);
        sum.sums.extend(sums);
        sum.unread.push(unread);
        Ok(sum)
    }

    /// Multiplies the gradient of each example by its coefficients and returns the sum.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if a parameter belongs to no group.
    pub(crate) fn weighted(
        grads: PerExampleGradients,
        thresholds: Thresholds,
        coefficients: Coefficients,
    ) -> Result<Self, DpError> {
        let Coefficients { rows, keep, .. } = &coefficients;
        let sums = grads.weighted_sum(rows, keep, thresholds.groups())?;
        Ok(Self::new(sums, thresholds, coefficients))
    }

    /// Creates a sum of units that were multiplied by `coefficients`.
    ///
    /// # Arguments
    ///
    /// - `sums`: the clipping group and the sum of each parameter
    pub(crate) fn new(
        sums: impl IntoIterator<Item = (ParamId, GroupSum)>,
        thresholds: Thresholds,
        coefficients: Coefficients,
    ) -> Self {
        let Coefficients { statistics, count_sums, .. } = coefficients;
        let (sums, unread) = (sums.into_iter().collect(), Vec::new());
        Self { sums, count_sums, thresholds, statistics, unread }
    }

    /// Creates the sum of no units.
    pub(crate) fn empty(thresholds: Thresholds) -> Self {
        let none = thresholds.coefficients(&[], |_| true);
        Self::new([], thresholds, none)
    }

    /// Returns the thresholds that every unit was clipped to.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Returns the largest norm that a unit contributes; see [`Thresholds::total_norm`].
    pub fn clipping_norm(&self) -> f64 {
        self.thresholds.total_norm()
    }

    /// Returns how many examples were clipped. The numbers are exact, so they are not private.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Device`] if the norms cannot be read from the device, and
    /// [`DpError::InvalidState`] in a browser, where nothing can wait for them.
    pub fn statistics(&self) -> Result<NonPrivate<ClippingStatistics>, DpError> {
        let read = read_together(self.unread(), None, "the norms of the gradients");
        let (norms, _) = blocking(read, "DpOptimizer::step_async")?;
        Ok(NonPrivate::new(self.counted(&norms).0))
    }

    /// Returns the number of examples, padding excluded.
    pub(crate) fn examples(&self) -> usize {
        let unread = self.unread.iter().map(UnreadNorms::examples);
        self.statistics.examples + unread.sum::<usize>()
    }

    /// Returns the squared norms that are only on a device, `[groups, units]` each.
    pub(crate) fn unread(&self) -> Vec<Tensor<2>> {
        self.unread.iter().map(|unread| unread.squared_norms.clone()).collect()
    }

    /// Returns the statistics, and `Σ_i (b_i - ½)` of each count, exact.
    ///
    /// # Arguments
    ///
    /// - `norms`: the values of [`unread`](Self::unread)
    pub(crate) fn counted(&self, norms: &[Vec<f64>]) -> (ClippingStatistics, Vec<f64>) {
        let (mut statistics, mut count_sums) = (self.statistics, self.count_sums.clone());
        for (unread, norms) in self.unread.iter().zip(norms) {
            let counted = unread.counted(norms, &self.thresholds);
            statistics += counted.statistics;
            count_sums.iter_mut().zip(counted.count_sums).for_each(|(sum, other)| *sum += other);
        }
        (statistics, count_sums)
    }

    /// Adds the sum over further examples of the same logical batch.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `other` was clipped to other thresholds, because the
    /// same noise cannot protect both, and [`DpError::InvalidState`] if a parameter was clipped in
    /// another group.
    pub fn accumulate(&mut self, other: Self) -> Result<(), DpError> {
        if self.thresholds != other.thresholds {
            return Err(DpError::invalid(
                "other",
                format!(
                    "has thresholds that changed from {:?} to {:?} within one logical batch; keep \
                     the thresholds until the step is made",
                    self.thresholds.norms(),
                    other.thresholds.norms()
                ),
            ));
        }
        let moved = |(id, (group, _)): (&ParamId, &GroupSum)| {
            self.sums.get(id).is_some_and(|(before, _)| before != group)
        };
        if other.sums.iter().any(moved) {
            return Err(DpError::state(
                "a parameter changed its clipping group within one logical batch; keep every layer \
                 in its place until the step is made",
            ));
        }
        for (id, (group, sum)) in other.sums {
            let sum = match self.sums.remove(&id) {
                // The sums may be on different devices.
                Some((_, before)) => {
                    let device = before.device();
                    before + sum.to_device(&device)
                }
                None => sum,
            };
            self.sums.insert(id, (group, sum));
        }
        self.count_sums.iter_mut().zip(other.count_sums).for_each(|(sum, other)| *sum += other);
        self.statistics += other.statistics;
        self.unread.extend(other.unread);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clipping::{Count, CountNoise};

    #[test]
    fn counts_of_further_examples_are_added() {
        let thresholds = Thresholds::whole(9.0).unwrap();
        let thresholds =
            thresholds.with_counts(vec![Count::whole(2.0)], CountNoise::default()).unwrap();
        let sum = |squared_norms: Vec<f64>| {
            let coefficients = thresholds.coefficients(&[squared_norms], |_| true);
            ClippedSum::new([], thresholds.clone(), coefficients)
        };
        // Norms of 1 are below the threshold of the count, and 3 is above.
        let mut total = sum(vec![1.0, 1.0, 9.0]);
        total.accumulate(sum(vec![1.0, 1.0])).unwrap();
        let (statistics, count_sums) = total.counted(&[]);
        assert_eq!(count_sums, [4.0 * 0.5 - 0.5]);
        assert_eq!((statistics.examples, total.examples()), (5, 5));
        assert_eq!(total.clipping_norm(), 9.0);
    }
}
