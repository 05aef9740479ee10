use std::sync::Arc;

use burn_dp_accountant::NeighboringRelation;

use super::bound::{Bound, check_one_each};
use super::coefficients::{Coefficients, Scaling};
use super::count::{Count, CountKind, CountNoise};
use super::on_device;
use super::step_noise::{NoiseSplit, StepNoise};
use crate::DpError;
use crate::error::positive;
use crate::grads::NormTable;
use crate::model::ParameterGroups;
use crate::ops::DeviceClipping;

/// The clipping thresholds of one logical step, the same for all its physical batches.
/// Coefficients, sensitivity, noise and event of the step follow from them.
///
/// A value never changes; a policy returns a new one for another step. A
/// [`ClippedSum`](super::ClippedSum) keeps its thresholds, and sums with different thresholds
/// cannot be added.
///
/// # Privacy
///
/// Thresholds are public: they may depend on constants, on public data, and on what was released
/// with noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    groups: ParameterGroups,
    bound: Bound,
    scaling: Scaling,
    counts: Vec<Count>,
    count_noise: CountNoise,
    /// Whether the sum itself is released, or only the counts.
    releases_sum: bool,
}

impl Thresholds {
    /// Clips the whole gradient to norm at most `norm`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `norm` is not positive and finite.
    pub fn whole(norm: f64) -> Result<Self, DpError> {
        Self::multiplied(ParameterGroups::whole(), norm, vec![1.0])
    }

    /// Clips the whole gradient to norm at most `norm`, after each group is multiplied by its
    /// multiplier. The noisy sum is divided by the same multipliers.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a number is not positive and finite, or if there is
    /// not one multiplier for each group.
    pub fn multiplied(
        groups: ParameterGroups,
        norm: f64,
        multipliers: Vec<f64>,
    ) -> Result<Self, DpError> {
        positive("norm", norm)?;
        check_one_each("multipliers", &groups, &multipliers)?;
        Ok(Self::new(groups, Bound::Whole { norm, multipliers }))
    }

    /// Clips each group to its own norm.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a number is not positive and finite, or if there is
    /// not one norm, and one share of `split`, for each group.
    pub fn per_group(
        groups: ParameterGroups,
        norms: Vec<f64>,
        split: &NoiseSplit,
    ) -> Result<Self, DpError> {
        check_one_each("norms", &groups, &norms)?;
        let shares = split.shares(&groups, &norms)?;
        Ok(Self::new(groups, Bound::PerGroup { norms, shares }))
    }

    /// Releases only counts, without a sum: the noise multiplier of the plan is divided among them
    /// equally.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `counts` is empty, and the errors of
    /// [`with_counts`](Self::with_counts).
    pub fn counts_only(groups: ParameterGroups, counts: Vec<Count>) -> Result<Self, DpError> {
        if counts.is_empty() {
            return Err(DpError::invalid("counts", "must hold at least one"));
        }
        // The sum is never released, so its threshold has no effect.
        let multipliers = vec![1.0; groups.len()];
        let thresholds = Self::new(groups, Bound::Whole { norm: 1.0, multipliers });
        let thresholds = thresholds.with_counts(counts, CountNoise::default())?;
        Ok(thresholds.with(|inner| inner.releases_sum = false))
    }

    fn new(groups: ParameterGroups, bound: Bound) -> Self {
        let inner = Inner {
            groups,
            bound,
            scaling: Scaling::Clip,
            counts: Vec::new(),
            count_noise: CountNoise::default(),
            releases_sum: true,
        };
        Self { inner: Arc::new(inner) }
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.inner));
        self
    }

    /// Scales every gradient by `C/(‖g‖ + stability)` instead of clipping it.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `stability` is not positive and finite.
    pub fn normalized(self, stability: f64) -> Result<Self, DpError> {
        positive("stability", stability)?;
        if self.inner.count_noise == CountNoise::Free {
            let reason = "has no slack that is known; count without noise for free with clipping";
            return Err(DpError::invalid("stability", reason));
        }
        Ok(self.with(|inner| inner.scaling = Scaling::Normalize { stability }))
    }

    /// Releases noisy counts of units together with the sum.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the group of a count does not exist, or if a
    /// threshold or the noise is out of its range.
    pub fn with_counts(self, counts: Vec<Count>, noise: CountNoise) -> Result<Self, DpError> {
        noise.check()?;
        for count in &counts {
            positive("counts", count.threshold)?;
            if let Some(group) = count.group.filter(|&group| group >= self.groups().len()) {
                let reason =
                    format!("must be of groups below {}, got {group}", self.groups().len());
                return Err(DpError::invalid("counts", reason));
            }
        }
        let slack = |count: &Count| count.kind == CountKind::Slack;
        if noise == CountNoise::Free || counts.iter().any(slack) {
            let fits = match (&self.inner.bound, &counts[..]) {
                (Bound::Whole { norm, .. }, [count]) => {
                    count.group.is_none() && count.threshold == *norm && slack(count)
                }
                _ => false,
            };
            let is_clipped = self.inner.scaling == Scaling::Clip && self.inner.releases_sum;
            if !fits || noise != CountNoise::Free || !is_clipped {
                let reason = "must be free for one count of slack at the threshold of the whole \
                              clipped gradient, which is released with it, and only for that; use \
                              another kind of count, or flat clipping without groups";
                return Err(DpError::invalid("noise", reason));
            }
        }
        Ok(self.with(|inner| {
            inner.counts = counts;
            inner.count_noise = noise;
        }))
    }

    /// Divides the parameters into groups, so that counts can compare the norm of each group. The
    /// whole gradient is clipped as before.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the thresholds already have groups.
    pub fn with_groups(self, groups: ParameterGroups) -> Result<Self, DpError> {
        let Bound::Whole { norm, multipliers } = &self.inner.bound else {
            return Err(DpError::invalid("groups", "are given by the policy already"));
        };
        let [multiplier] = multipliers[..] else {
            return Err(DpError::invalid("groups", "are given by the policy already"));
        };
        let bound = Bound::Whole { norm: *norm, multipliers: vec![multiplier; groups.len()] };
        Ok(self.with(|inner| {
            inner.groups = groups;
            inner.bound = bound;
        }))
    }

    /// Multiplies all norms by `factor`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a product is not positive and finite.
    pub fn scaled(self, factor: f64) -> Result<Self, DpError> {
        let scaled = self.with(|inner| {
            inner.bound.scale(factor);
            // Slack is what the current threshold leaves.
            if let (CountNoise::Free, [count], [norm]) =
                (inner.count_noise, &mut inner.counts[..], inner.bound.norms())
            {
                count.threshold = *norm;
            }
        });
        match scaled.norms().iter().find(|norm| !(**norm > 0.0 && norm.is_finite())) {
            None => Ok(scaled),
            Some(norm) => {
                let reason = format!("must keep norms positive and finite: {factor} gives {norm}");
                Err(DpError::invalid("factor", reason))
            }
        }
    }

    /// Returns the groups of parameters.
    pub fn groups(&self) -> &ParameterGroups {
        &self.inner.groups
    }

    /// Returns the thresholds: one if the whole gradient is clipped, else one for each group.
    pub fn norms(&self) -> &[f64] {
        self.inner.bound.norms()
    }

    /// Returns the counts that are released.
    pub fn counts(&self) -> &[Count] {
        &self.inner.counts
    }

    /// Returns whether the clipped sum is released. If not, only counts are.
    pub fn releases_sum(&self) -> bool {
        self.inner.releases_sum
    }

    /// Returns the largest L2 norm that a unit contributes, all groups together: `√(Σ C_h²)`. With
    /// multipliers, it is the norm of the multiplied contribution.
    pub fn total_norm(&self) -> f64 {
        match self.norms() {
            [norm] => *norm,
            norms => norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt(),
        }
    }

    /// Returns the L2 sensitivity of the sum under `relation`: [`total_norm`](Self::total_norm) if
    /// a unit is added or removed, and twice as much if one is replaced.
    pub fn sensitivity(&self, relation: NeighboringRelation) -> f64 {
        relation.sensitivity() * self.total_norm()
    }

    /// Returns the noise of a step that costs, counts included, as much as one Gaussian release
    /// with `noise_multiplier`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Accountant`] if the counts alone would cost more, and
    /// [`DpError::InvalidArgument`] if rounding would make the noise too small for the event.
    pub fn noise(
        &self,
        noise_multiplier: f64,
        expected_batch_size: f64,
    ) -> Result<StepNoise, DpError> {
        let Inner { bound, counts, count_noise, releases_sum, .. } = &*self.inner;
        match (releases_sum, counts.len()) {
            (false, counts) => Ok(StepNoise::of_counts(noise_multiplier, counts)),
            (true, 0) => StepNoise::of_sum(bound, noise_multiplier),
            (true, counts) => {
                let (noise, batch) = (*count_noise, expected_batch_size);
                StepNoise::of_sum_and_counts(bound, noise_multiplier, counts, noise, batch)
            }
        }
    }

    /// Returns the clipping coefficients of units with these squared norms.
    ///
    /// # Arguments
    ///
    /// - `squared_norms`: for each group, a row with one value per unit, not underestimated
    /// - `is_real`: `false` for units that only pad the batch
    pub(crate) fn coefficients(
        &self,
        squared_norms: &[Vec<f64>],
        is_real: impl Fn(usize) -> bool,
    ) -> Coefficients {
        let Inner { bound, scaling, counts, .. } = &*self.inner;
        Coefficients::new(bound, *scaling, counts, squared_norms, is_real)
    }

    /// Returns whether a device can compute the coefficients, in single precision.
    pub(super) fn fits_device(&self) -> bool {
        on_device::fits(&self.inner.bound, self.inner.scaling)
    }

    /// Returns how a device computes the coefficients, if they [fit](Self::fits_device).
    pub(super) fn device_clipping(
        &self,
        table: &NormTable,
        real: Option<&[bool]>,
    ) -> DeviceClipping {
        let Inner { bound, scaling, groups, .. } = &*self.inner;
        on_device::device_clipping(bound, *scaling, table, groups.len(), real)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::groups::three_groups;

    fn per_group(split: &NoiseSplit) -> Thresholds {
        Thresholds::per_group(three_groups(), vec![0.1, 1.0, 2.0], split).unwrap()
    }

    // Sharp edge: the sensitivity follows from the vector of norms.
    #[test]
    fn sensitivity_of_groups_is_the_root_of_the_sum_of_squares() {
        let thresholds = per_group(&NoiseSplit::Proportional);
        let expected = (0.01f64 + 1.0 + 4.0).sqrt();
        assert!(
            (thresholds.sensitivity(NeighboringRelation::AddOrRemoveOne) - expected).abs() < 1e-15
        );
        // Sharp edge: the relation determines the factor of two.
        assert_eq!(
            thresholds.sensitivity(NeighboringRelation::ReplaceOne),
            2.0 * thresholds.sensitivity(NeighboringRelation::AddOrRemoveOne)
        );
    }

    #[test]
    fn invalid_thresholds_are_refused_by_name() {
        for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Thresholds::whole(norm).unwrap_err().to_string();
            assert!(error.contains("norm must be positive and finite"), "{error}");
            let split = NoiseSplit::Proportional;
            assert!(Thresholds::per_group(three_groups(), vec![1.0, norm, 1.0], &split).is_err());
            assert!(Thresholds::multiplied(three_groups(), 1.0, vec![1.0, norm, 1.0]).is_err());
            assert!(Thresholds::whole(1.0).unwrap().normalized(norm).is_err());
            assert!(Thresholds::whole(1.0).unwrap().scaled(norm).is_err());
        }
        let split = NoiseSplit::Shares(vec![1.0, 1.0]);
        assert!(Thresholds::per_group(three_groups(), vec![1.0; 3], &split).is_err());
        let tiny = NoiseSplit::Shares(vec![1e-200, 1e200, 1.0]);
        assert!(Thresholds::per_group(three_groups(), vec![1.0; 3], &tiny).is_err());
        let whole = Thresholds::whole(1.0).unwrap();
        assert!(whole.with_counts(vec![Count::of_group(1, 1.0)], CountNoise::default()).is_err());
        let grouped = per_group(&NoiseSplit::Uniform).with_groups(three_groups()).unwrap_err();
        assert_eq!(grouped.to_string(), "groups are given by the policy already");
    }

    // Sharp edge: slack costs nothing only next to the sum that leaves it unused.
    #[test]
    fn slack_without_the_clipped_sum_is_refused() {
        let slack = |norm| vec![Count::whole(norm).with_kind(CountKind::Slack)];
        let counts = || Thresholds::counts_only(ParameterGroups::whole(), vec![Count::whole(1.0)]);
        assert!(
            counts().unwrap().with_counts(vec![Count::whole(2.0)], CountNoise::Std(1.0)).is_ok()
        );
        let error = counts().unwrap().with_counts(slack(1.0), CountNoise::Free).unwrap_err();
        assert!(error.to_string().contains("released with it"), "{error}");
        assert!(Thresholds::counts_only(ParameterGroups::whole(), slack(1.0)).is_err());
        assert!(Thresholds::whole(1.0).unwrap().with_counts(slack(1.0), CountNoise::Free).is_ok());
        for refused in [
            Thresholds::whole(2.0).unwrap(),
            Thresholds::whole(1.0).unwrap().normalized(0.1).unwrap(),
            per_group(&NoiseSplit::Uniform),
        ] {
            assert!(refused.with_counts(slack(1.0), CountNoise::Free).is_err());
        }
    }
}
