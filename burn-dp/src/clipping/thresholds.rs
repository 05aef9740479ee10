//! What one logical step clips to, and the noise that follows from it.

use std::sync::Arc;

use burn_dp_accountant::{
    AdaptiveClippingSplit, DpEvent, NeighboringRelation, effective_noise_multiplier,
};

use super::{Count, CountNoise, ParameterGroups};
use crate::DpError;

/// Relative amount by which standard deviations are rounded up, so that rounding never makes the noise
/// less than what the ledger is told.
const ROUND_UP: f64 = 1.0 + 1e-12;

/// How the noise of a step is divided among groups that are clipped apart.
///
/// Whatever the split, the release costs what one Gaussian release of the plan's noise multiplier z
/// costs: `(Σ_h (C_h/σ_h)²)^(-1/2) = z`.
///
/// # References
///
/// McMahan et al., A general approach to adding differential privacy to iterative training procedures,
/// 2018, section 2.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum NoiseSplit {
    /// Every group costs the same: `σ_h = z √L C_h`.
    #[default]
    Proportional,
    /// The same noise on every value: `σ_h = z √(Σ C_h²)`.
    Uniform,
    /// Group h may use this share of the cost, after division by their sum: `σ_h = z C_h / √p_h`.
    Shares(Vec<f64>),
}

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

/// The noise of one step and what the accountant is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepNoise {
    /// Standard deviation of the noise on the sum of each group; nothing if the sum is not released.
    pub group_stds: Vec<f64>,
    /// Standard deviation of the noise on each count; nothing if nothing is counted.
    pub count_std: Option<f64>,
    /// What is released from the drawn units.
    pub event: DpEvent,
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

    /// The noise of a step that costs what one Gaussian release of `noise_multiplier` costs, counts
    /// included.
    ///
    /// # Errors
    ///
    /// [`DpError::Accountant`] if the counts alone would cost more.
    pub fn noise(
        &self,
        noise_multiplier: f64,
        expected_batch_size: f64,
    ) -> Result<StepNoise, DpError> {
        let counts = self.inner.counts.len() as u64;
        if !self.inner.releases_sum {
            let each = noise_multiplier * (counts as f64).sqrt() * ROUND_UP;
            return Ok(StepNoise {
                group_stds: Vec::new(),
                count_std: Some(0.5 * each),
                event: DpEvent::JointGaussian { noise_multipliers: vec![each; counts as usize] },
            });
        }
        let (update, count_std, event) = if counts == 0 {
            (noise_multiplier, None, DpEvent::gaussian(noise_multiplier))
        } else {
            let split = match self.inner.count_noise {
                CountNoise::Std(std) => {
                    AdaptiveClippingSplit::from_count_noise(noise_multiplier, std, counts)
                }
                CountNoise::PartOfBatch(part) => AdaptiveClippingSplit::from_count_noise(
                    noise_multiplier,
                    part * expected_batch_size,
                    counts,
                ),
                CountNoise::Share(share) => {
                    AdaptiveClippingSplit::from_share(noise_multiplier, share, counts)
                }
            }?;
            (split.update_noise_multiplier, Some(split.count_noise_std), split.event())
        };
        let noise = StepNoise { group_stds: self.group_stds(update), count_std, event };
        self.check(&noise.group_stds, update)?;
        Ok(noise)
    }

    fn group_stds(&self, update: f64) -> Vec<f64> {
        match &self.inner.bound {
            Bound::Whole { norm, multipliers } => multipliers
                .iter()
                .map(|&multiplier| {
                    let std = update * norm;
                    if multiplier == 1.0 { std } else { std / multiplier * ROUND_UP }
                })
                .collect(),
            Bound::PerGroup { norms, shares } => norms
                .iter()
                .zip(shares)
                .map(|(norm, share)| update * norm / share.sqrt() * ROUND_UP)
                .collect(),
        }
    }

    /// Refuses noise that costs more than what the ledger is told.
    fn check(&self, stds: &[f64], update: f64) -> Result<(), DpError> {
        let effective = match &self.inner.bound {
            // In the multiplied coordinates the noise is the least of the groups' everywhere.
            Bound::Whole { norm, multipliers } => (stds.iter().zip(multipliers))
                .map(|(std, multiplier)| std * multiplier / norm * (1.0 + f64::EPSILON))
                .fold(f64::INFINITY, f64::min),
            Bound::PerGroup { norms, .. } => {
                let groups: Vec<(f64, f64)> =
                    norms.iter().copied().zip(stds.iter().copied()).collect();
                effective_noise_multiplier(&groups)?
            }
        };
        if effective >= update {
            return Ok(());
        }
        Err(DpError::invalid(
            "clipping norms",
            format!(
                "leave an effective noise multiplier of {effective} where {update} is accounted \
                 for; keep the norms and shares within the range of double precision"
            ),
        ))
    }

    pub(super) fn bound(&self) -> &Bound {
        &self.inner.bound
    }

    pub(super) fn scaling(&self) -> Scaling {
        self.inner.scaling
    }
}

/// Refuses a number that is not positive and finite.
pub(super) fn positive(name: &'static str, value: f64) -> Result<(), DpError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(DpError::invalid(name, format!("must be positive and finite, got {value}")))
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
    use crate::clipping::groups::three_groups;

    fn per_group(split: &NoiseSplit) -> Thresholds {
        Thresholds::per_group(three_groups(), vec![0.1, 1.0, 2.0], split).unwrap()
    }

    // SHARP_EDGES row 34: the sensitivity is that of the vector of norms.
    #[test]
    fn the_sensitivity_of_groups_is_the_root_of_the_sum_of_their_squares() {
        let thresholds = per_group(&NoiseSplit::Proportional);
        let expected = (0.01f64 + 1.0 + 4.0).sqrt();
        assert!(
            (thresholds.sensitivity(NeighboringRelation::AddOrRemoveOne) - expected).abs() < 1e-15
        );
        // SHARP_EDGES row 15: the relation decides about the factor of two.
        assert_eq!(
            thresholds.sensitivity(NeighboringRelation::ReplaceOne),
            2.0 * thresholds.sensitivity(NeighboringRelation::AddOrRemoveOne)
        );
    }

    // SHARP_EDGES row 34: every split costs the multiplier of the plan, never √L of it.
    #[test]
    fn every_split_of_the_noise_costs_the_noise_multiplier_and_no_more() {
        for split in [
            NoiseSplit::Proportional,
            NoiseSplit::Uniform,
            NoiseSplit::Shares(vec![5.0, 1.0, 0.25]),
        ] {
            let noise = per_group(&split).noise(0.8, 64.0).unwrap();
            let groups: Vec<_> = [0.1, 1.0, 2.0].into_iter().zip(noise.group_stds).collect();
            let effective = effective_noise_multiplier(&groups).unwrap();
            assert!(effective >= 0.8 && effective < 0.8 * (1.0 + 1e-11), "{split:?} {effective}");
            assert_eq!(noise.event, DpEvent::gaussian(0.8));
        }
    }

    #[test]
    fn the_splits_have_their_closed_forms() {
        let close = |found: &[f64], expected: [f64; 3]| {
            for (found, expected) in found.iter().zip(expected) {
                assert!((found / expected - 1.0).abs() < 1e-11, "{found} {expected}");
            }
        };
        let stds = |split| per_group(&split).noise(0.8, 64.0).unwrap().group_stds;
        let root = 3f64.sqrt();
        close(&stds(NoiseSplit::Proportional), [0.08 * root, 0.8 * root, 1.6 * root]);
        close(&stds(NoiseSplit::Uniform), [0.8 * 5.01f64.sqrt(); 3]);
        // Shares 4/5, 1/10 and 1/10.
        let stds = stds(NoiseSplit::Shares(vec![8.0, 1.0, 1.0]));
        close(&stds, [0.08 / 0.8f64.sqrt(), 0.8 / 0.1f64.sqrt(), 1.6 / 0.1f64.sqrt()]);
    }

    #[test]
    fn multipliers_divide_the_noise_and_cost_nothing() {
        let thresholds = Thresholds::multiplied(three_groups(), 2.0, vec![1.0, 3.0, 10.0]).unwrap();
        let noise = thresholds.noise(1.5, 64.0).unwrap();
        for (std, multiplier) in noise.group_stds.iter().zip([1.0, 3.0, 10.0]) {
            assert!((std * multiplier / 3.0 - 1.0).abs() < 1e-11);
            assert!(std * multiplier >= 3.0);
        }
        assert_eq!(noise.event, DpEvent::gaussian(1.5));
        assert_eq!(thresholds.total_norm(), 2.0);
    }

    #[test]
    fn counts_and_sum_together_cost_the_noise_multiplier() {
        let counts = vec![Count::whole(1.0), Count::of_group(2, 0.5)];
        let looking = || Thresholds::whole(1.0).unwrap().looking_at(three_groups()).unwrap();
        for noise in [CountNoise::Std(10.0), CountNoise::PartOfBatch(0.05), CountNoise::Share(0.1)]
        {
            let noise =
                looking().counting(counts.clone(), noise).unwrap().noise(1.1, 200.0).unwrap();
            let update = noise.group_stds[0];
            let count = 2.0 * noise.count_std.unwrap();
            let whole = effective_noise_multiplier(&[(1.0, update), (1.0, count), (1.0, count)]);
            assert!((whole.unwrap() / 1.1 - 1.0).abs() < 1e-14);
            assert!(update > 1.1);
            let expected = DpEvent::JointGaussian { noise_multipliers: vec![update, count, count] };
            assert_eq!(noise.event, expected);
        }
        let too_little = looking().counting(counts, CountNoise::Std(0.1)).unwrap();
        let error = too_little.noise(1.1, 200.0).unwrap_err().to_string();
        assert!(error.contains("use more noise on the counts"), "{error}");
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
