//! What one logical step clips to.

use std::sync::Arc;

use burn_dp_accountant::NeighboringRelation;

use super::{Count, CountNoise, NoiseSplit};
use crate::DpError;
use crate::error::positive;
use crate::model::ParameterGroups;

/// How a gradient is brought below its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scaling {
    /// `min(1, C/‖g‖)`.
    Clip,
    /// `C/(‖g‖ + stability)`.
    Normalize { stability: f64 },
}

/// Whose norm is bounded.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bound {
    /// The gradient as a whole, after group h was multiplied with `multipliers[h]`.
    Whole { norm: f64, multipliers: Vec<f64> },
    /// Each group apart; `shares` of the cost add up to 1.
    PerGroup { norms: Vec<f64>, shares: Vec<f64> },
}

/// What one logical step clips to: the same for all its physical batches, and the origin of its
/// coefficients, its sensitivity, its noise and its event.
///
/// It is a value that never changes; a policy gives another one for another step. A
/// [`ClippedSum`](super::ClippedSum) remembers its thresholds, and sums with different ones do not
/// add up.
///
/// # Privacy
///
/// Thresholds are public: they may depend on constants, on public data, and on what was released with
/// noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    inner: Arc<Inner>,
}

#[derive(Debug, PartialEq)]
struct Inner {
    groups: ParameterGroups,
    bound: Bound,
    scaling: Scaling,
    counts: Vec<Count>,
    count_noise: CountNoise,
    /// Whether the sum itself is released, or the counts alone.
    releases_sum: bool,
}

impl Thresholds {
    /// The whole gradient to norm at most `norm`.
    ///
    /// # Errors
    ///
    /// Refuses a norm that is not positive and finite.
    pub fn whole(norm: f64) -> Result<Self, DpError> {
        positive("max_grad_norm", norm)?;
        Ok(Self::new(ParameterGroups::whole(), Bound::Whole { norm, multipliers: vec![1.0] }))
    }

    /// The whole gradient to norm at most `norm`, after each group was multiplied; the noisy sum is
    /// divided by the same multipliers.
    ///
    /// # Errors
    ///
    /// Refuses numbers that are not positive and finite, and another number of multipliers than groups.
    pub fn multiplied(
        groups: ParameterGroups,
        norm: f64,
        multipliers: Vec<f64>,
    ) -> Result<Self, DpError> {
        positive("max_grad_norm", norm)?;
        one_each("multipliers", &groups, &multipliers)?;
        Ok(Self::new(groups, Bound::Whole { norm, multipliers }))
    }

    /// Each group to a norm of its own.
    ///
    /// # Errors
    ///
    /// Refuses numbers that are not positive and finite, and another number of them than groups.
    pub fn per_group(
        groups: ParameterGroups,
        norms: Vec<f64>,
        split: &NoiseSplit,
    ) -> Result<Self, DpError> {
        one_each("clipping_norms", &groups, &norms)?;
        let weights = match split {
            NoiseSplit::Proportional => vec![1.0; norms.len()],
            NoiseSplit::Uniform => norms.iter().map(|norm| norm * norm).collect(),
            NoiseSplit::Shares(shares) => {
                one_each("noise_shares", &groups, shares)?;
                shares.clone()
            }
        };
        let total: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        one_each("noise_shares", &groups, &shares)?;
        Ok(Self::new(groups, Bound::PerGroup { norms, shares }))
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

    fn with(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::try_unwrap(self.inner).unwrap_or_else(|inner| Inner {
            groups: inner.groups.clone(),
            bound: inner.bound.clone(),
            scaling: inner.scaling,
            counts: inner.counts.clone(),
            count_noise: inner.count_noise,
            releases_sum: inner.releases_sum,
        });
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    /// Scales every gradient to its threshold instead of clipping the long ones:
    /// `C/(‖g‖ + stability)`.
    ///
    /// # Errors
    ///
    /// Refuses a stability that is not positive and finite.
    pub fn normalized(self, stability: f64) -> Result<Self, DpError> {
        positive("stability", stability)?;
        Ok(self.with(|inner| inner.scaling = Scaling::Normalize { stability }))
    }

    /// Also counts, for each entry of `counts`, the units whose norm is at most a threshold; the
    /// noisy counts are released together with the sum.
    ///
    /// # Errors
    ///
    /// Refuses a count of a group that does not exist, thresholds that are not positive and finite,
    /// and noise that is not.
    pub fn counting(self, counts: Vec<Count>, noise: CountNoise) -> Result<Self, DpError> {
        noise.check()?;
        for count in &counts {
            positive("count threshold", count.at)?;
            if let Some(group) = count.group.filter(|&group| group >= self.groups().len()) {
                let reason = format!("must be below {}, got {group}", self.groups().len());
                return Err(DpError::invalid("group", reason));
            }
        }
        Ok(self.with(|inner| {
            inner.counts = counts;
            inner.count_noise = noise;
        }))
    }

    /// Nothing but counts is released: the noise multiplier of the plan is divided among them equally.
    ///
    /// # Errors
    ///
    /// As [`counting`](Self::counting), and for no count.
    pub fn counts_alone(groups: ParameterGroups, counts: Vec<Count>) -> Result<Self, DpError> {
        if counts.is_empty() {
            return Err(DpError::invalid("counts", "must hold at least one"));
        }
        // The sum is never released, whatever it is clipped to.
        let multipliers = vec![1.0; groups.len()];
        let thresholds = Self::new(groups, Bound::Whole { norm: 1.0, multipliers });
        let thresholds = thresholds.counting(counts, CountNoise::default())?;
        Ok(thresholds.with(|inner| inner.releases_sum = false))
    }

    /// The same with groups of their own, of which a policy that clips the whole gradient looks at
    /// the norms one by one.
    ///
    /// # Errors
    ///
    /// Refuses thresholds that have groups already.
    pub fn looking_at(self, groups: ParameterGroups) -> Result<Self, DpError> {
        match &self.inner.bound {
            Bound::Whole { norm, multipliers } if multipliers.len() == 1 => {
                let bound =
                    Bound::Whole { norm: *norm, multipliers: vec![multipliers[0]; groups.len()] };
                Ok(self.with(|inner| {
                    inner.groups = groups;
                    inner.bound = bound;
                }))
            }
            _ => Err(DpError::invalid("groups", "are given by the policy already")),
        }
    }

    /// The same with all norms multiplied by a factor.
    ///
    /// # Errors
    ///
    /// Refuses a factor that leaves a norm that is not positive and finite.
    pub fn scaled(self, factor: f64) -> Result<Self, DpError> {
        let scaled = self.with(|inner| match &mut inner.bound {
            Bound::Whole { norm, .. } => *norm *= factor,
            Bound::PerGroup { norms, .. } => norms.iter_mut().for_each(|norm| *norm *= factor),
        });
        scaled.norms().iter().try_for_each(|&norm| positive("clipping norm", norm))?;
        Ok(scaled)
    }

    /// The groups of parameters that are told apart.
    pub fn groups(&self) -> &ParameterGroups {
        &self.inner.groups
    }

    /// The thresholds: one if the whole gradient is clipped, else one for each group.
    pub fn norms(&self) -> &[f64] {
        match &self.inner.bound {
            Bound::Whole { norm, .. } => std::slice::from_ref(norm),
            Bound::PerGroup { norms, .. } => norms,
        }
    }

    /// What is counted beside the sum.
    pub fn counts(&self) -> &[Count] {
        &self.inner.counts
    }

    /// Whether the clipped sum is released; if not, the counts alone.
    pub fn releases_sum(&self) -> bool {
        self.inner.releases_sum
    }

    /// Largest L2 norm that a unit contributes, all groups together: `√(Σ C_h²)`. With multipliers, of
    /// the multiplied contribution.
    pub fn total_norm(&self) -> f64 {
        match self.norms() {
            [norm] => *norm,
            norms => norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt(),
        }
    }

    /// L2 sensitivity of the sum for neighbours under `relation`: [`total_norm`](Self::total_norm), or
    /// twice that when a unit is replaced.
    pub fn sensitivity(&self, relation: NeighboringRelation) -> f64 {
        relation.sensitivity() * self.total_norm()
    }

    pub(super) fn bound(&self) -> &Bound {
        &self.inner.bound
    }

    pub(super) fn count_noise(&self) -> CountNoise {
        self.inner.count_noise
    }

    pub(super) fn scaling(&self) -> Scaling {
        self.inner.scaling
    }
}

/// Refuses another number of values than groups, or a value that is not positive and finite.
fn one_each(name: &'static str, groups: &ParameterGroups, values: &[f64]) -> Result<(), DpError> {
    if values.len() != groups.len() {
        let reason =
            format!("must be one for each of {} groups, got {}", groups.len(), values.len());
        return Err(DpError::invalid(name, reason));
    }
    values.iter().try_for_each(|&value| positive(name, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::groups::three_groups;

    fn per_group(split: &NoiseSplit) -> Thresholds {
        Thresholds::per_group(three_groups(), vec![0.1, 1.0, 2.0], split).unwrap()
    }

    // Sharp edge: the sensitivity is that of the vector of norms.
    #[test]
    fn the_sensitivity_of_groups_is_the_root_of_the_sum_of_their_squares() {
        let thresholds = per_group(&NoiseSplit::Proportional);
        let expected = (0.01f64 + 1.0 + 4.0).sqrt();
        assert!(
            (thresholds.sensitivity(NeighboringRelation::AddOrRemoveOne) - expected).abs() < 1e-15
        );
        // Sharp edge: the relation decides about the factor of two.
        assert_eq!(
            thresholds.sensitivity(NeighboringRelation::ReplaceOne),
            2.0 * thresholds.sensitivity(NeighboringRelation::AddOrRemoveOne)
        );
    }

    #[test]
    fn numbers_that_are_no_thresholds_are_refused_by_name() {
        for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Thresholds::whole(norm).unwrap_err().to_string();
            assert!(error.contains("max_grad_norm must be positive and finite"), "{error}");
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
        let counting = Thresholds::whole(1.0).unwrap();
        assert!(counting.counting(vec![Count::of_group(1, 1.0)], CountNoise::default()).is_err());
    }
}
