//! The noise that follows from thresholds.

use burn_dp_accountant::{DpEvent, effective_noise_multiplier};
use serde::{Deserialize, Serialize};

use super::bound::{Bound, check_one_each};
use super::count::CountNoise;
use crate::DpError;
use crate::model::ParameterGroups;

/// Relative amount by which standard deviations are rounded up, so that rounding never makes the
/// noise smaller than what the ledger records.
const ROUND_UP: f64 = 1.0 + 1e-12;

/// How the noise of a step is divided among groups that are clipped separately.
///
/// With every split, the release costs as much as one Gaussian release with the noise multiplier z
/// of the plan: `(Σ_h (C_h/σ_h)²)^(-1/2) = z`.
///
/// # References
///
/// McMahan et al., A general approach to adding differential privacy to iterative training
/// procedures, 2018, section 2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseSplit {
    /// Every group costs the same: `σ_h = z √L C_h`.
    #[default]
    Proportional,
    /// Every value gets the same noise: `σ_h = z √(Σ C_h²)`.
    Uniform,
    /// Group h uses the share `p_h` of the cost: `σ_h = z C_h / √p_h`. The numbers are divided by
    /// their sum.
    Shares(Vec<f64>),
}

impl NoiseSplit {
    /// Returns the share of each group in the privacy cost. The shares add up to 1.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a share is not positive and finite, or if there is
    /// not one share for each group.
    pub(super) fn shares(
        &self,
        groups: &ParameterGroups,
        norms: &[f64],
    ) -> Result<Vec<f64>, DpError> {
        let weights = match self {
            Self::Proportional => vec![1.0; norms.len()],
            Self::Uniform => norms.iter().map(|norm| norm * norm).collect(),
            Self::Shares(shares) => {
                check_one_each("split", groups, shares)?;
                shares.clone()
            }
        };
        let total: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        check_one_each("split", groups, &shares)?;
        Ok(shares)
    }
}

impl std::fmt::Display for NoiseSplit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Proportional => f.write_str("proportional to the thresholds"),
            Self::Uniform => f.write_str("the same for every value"),
            Self::Shares(shares) => {
                let shares: Vec<_> = shares.iter().map(f64::to_string).collect();
                write!(f, "by shares {} of the cost", shares.join(", "))
            }
        }
    }
}

/// The noise of one step, and the event that the accountant records for it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepNoise {
    /// Standard deviation of the noise on the sum of each group. Empty if the sum is not released.
    pub group_stds: Vec<f64>,
    /// Standard deviation of the noise on each count. `None` if there are no counts.
    pub count_std: Option<f64>,
    /// What is released about the drawn units.
    pub event: DpEvent,
}

impl StepNoise {
    /// Returns the noise of a step that releases counts without the sum, each for the same cost.
    pub(super) fn of_counts(noise_multiplier: f64, counts: usize) -> Self {
        let each = noise_multiplier * (counts as f64).sqrt() * ROUND_UP;
        Self {
            group_stds: Vec::new(),
            count_std: Some(0.5 * each),
            event: DpEvent::JointGaussian { noise_multipliers: vec![each; counts] },
        }
    }

    /// Multiplies all standard deviations by `factor`, which is at least 1. The event is unchanged,
    /// so it overstates the cost of the noise.
    pub(crate) fn enlarged(mut self, factor: f64) -> Self {
        self.group_stds.iter_mut().chain(&mut self.count_std).for_each(|std| *std *= factor);
        self
    }

    /// Multiplies the standard deviations of the sums by `factor`: correlated noise of a step has
    /// another deviation than the independent noise that it is made of, and the same event.
    pub(crate) fn correlated(mut self, factor: f64) -> Self {
        self.group_stds.iter_mut().for_each(|std| *std *= factor);
        self
    }

    /// Returns the noise of a step that releases the sum.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if rounding would make the noise too small for the
    /// event.
    pub(super) fn of_sum(bound: &Bound, noise_multiplier: f64) -> Result<Self, DpError> {
        let group_stds = group_stds(bound, noise_multiplier);
        check(bound, &group_stds, noise_multiplier)?;
        let event = DpEvent::gaussian(noise_multiplier);
        Ok(Self { group_stds, count_std: None, event })
    }

    /// Returns the noise of a step that releases the sum and `counts` counts.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Accountant`] if the counts alone would cost more than the step, and
    /// [`DpError::InvalidArgument`] if rounding would make the noise too small for the event.
    pub(super) fn of_sum_and_counts(
        bound: &Bound,
        noise_multiplier: f64,
        counts: usize,
        count_noise: CountNoise,
        expected_batch_size: f64,
    ) -> Result<Self, DpError> {
        if count_noise == CountNoise::Free {
            // Sum and slack are one vector, with the same noise in units of the threshold.
            let sum = Self::of_sum(bound, noise_multiplier)?;
            return Ok(Self { count_std: Some(noise_multiplier * ROUND_UP), ..sum });
        }
        let split = count_noise.split(noise_multiplier, expected_batch_size, counts as u64)?;
        let sum = Self::of_sum(bound, split.update_noise_multiplier)?;
        Ok(Self { count_std: Some(split.count_noise_std), event: split.event(), ..sum })
    }
}

/// Returns the standard deviation of the noise on the sum of each group.
fn group_stds(bound: &Bound, noise_multiplier: f64) -> Vec<f64> {
    match bound {
        Bound::Whole { norm, multipliers } => {
            let std = noise_multiplier * norm;
            let divided = |&multiplier: &f64| {
                if multiplier == 1.0 { std } else { std / multiplier * ROUND_UP }
            };
            multipliers.iter().map(divided).collect()
        }
        Bound::PerGroup { norms, shares } => norms
            .iter()
            .zip(shares)
            .map(|(norm, share)| noise_multiplier * norm / share.sqrt() * ROUND_UP)
            .collect(),
    }
}

/// Returns an error if the noise costs more than `noise_multiplier`.
fn check(bound: &Bound, stds: &[f64], noise_multiplier: f64) -> Result<(), DpError> {
    let effective = match bound {
        // In the multiplied coordinates, all noise is at least the smallest of the groups'.
        Bound::Whole { norm, multipliers } => (stds.iter().zip(multipliers))
            .map(|(std, multiplier)| std * multiplier / norm * (1.0 + f64::EPSILON))
            .fold(f64::INFINITY, f64::min),
        Bound::PerGroup { norms, .. } => {
            let groups: Vec<(f64, f64)> = norms.iter().copied().zip(stds.iter().copied()).collect();
            effective_noise_multiplier(&groups)?
        }
    };
    if effective >= noise_multiplier {
        return Ok(());
    }
    Err(DpError::invalid(
        "norms",
        format!(
            "leave an effective noise multiplier of {effective} where {noise_multiplier} is \
             accounted for; keep the norms and shares within the range of double precision"
        ),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clipping::{Count, Thresholds};
    use crate::model::groups::three_groups;

    fn per_group(split: &NoiseSplit) -> Thresholds {
        Thresholds::per_group(three_groups(), vec![0.1, 1.0, 2.0], split).unwrap()
    }

    // Sharp edge: every split costs the multiplier of the plan, never √L times as much.
    #[test]
    fn every_noise_split_costs_exactly_the_noise_multiplier() {
        for split in [
            NoiseSplit::Proportional,
            NoiseSplit::Uniform,
            NoiseSplit::Shares(vec![5.0, 1.0, 0.25]),
        ] {
            let noise = per_group(&split).noise(0.8, 64.0).unwrap();
            let groups: Vec<_> = [0.1, 1.0, 2.0].into_iter().zip(noise.group_stds).collect();
            let effective = effective_noise_multiplier(&groups).unwrap();
            assert!((0.8..0.8 * (1.0 + 1e-11)).contains(&effective), "{split:?} {effective}");
            assert_eq!(noise.event, DpEvent::gaussian(0.8));
        }
    }

    #[test]
    fn splits_match_closed_forms() {
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
    fn multipliers_divide_the_noise_at_no_cost() {
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
    fn sum_and_counts_together_cost_the_noise_multiplier() {
        let counts = vec![Count::whole(1.0), Count::of_group(2, 0.5)];
        let grouped = || Thresholds::whole(1.0).unwrap().with_groups(three_groups()).unwrap();
        for noise in
            [CountNoise::Std(10.0), CountNoise::BatchFraction(0.05), CountNoise::Share(0.1)]
        {
            let thresholds = grouped().with_counts(counts.clone(), noise).unwrap();
            let noise = thresholds.noise(1.1, 200.0).unwrap();
            let update = noise.group_stds[0];
            let count = 2.0 * noise.count_std.unwrap();
            let whole = effective_noise_multiplier(&[(1.0, update), (1.0, count), (1.0, count)]);
            assert!((whole.unwrap() / 1.1 - 1.0).abs() < 1e-14);
            assert!(update > 1.1);
            let expected = DpEvent::JointGaussian { noise_multipliers: vec![update, count, count] };
            assert_eq!(noise.event, expected);
        }
        let too_little = grouped().with_counts(counts, CountNoise::Std(0.1)).unwrap();
        let error = too_little.noise(1.1, 200.0).unwrap_err().to_string();
        assert!(error.contains("use more noise on the counts"), "{error}");
    }

    #[test]
    fn noise_that_rounding_makes_too_small_is_refused() {
        let whole = Bound::Whole { norm: 1.0, multipliers: vec![1.0, 2.0] };
        assert!(check(&whole, &[1.5, 0.75], 1.5).is_ok());
        assert!(check(&whole, &[1.5, 0.74], 1.5).is_err());
        let groups = Bound::PerGroup { norms: vec![1.0, 1.0], shares: vec![0.5; 2] };
        assert!(check(&groups, &[2.2, 2.2], 1.5).is_ok());
        assert!(check(&groups, &[2.1, 2.1], 1.5).is_err());
        // The smallest number: the product with the noise multiplier is 0.
        let smallest = Bound::Whole { norm: 5e-324, multipliers: vec![1.0] };
        assert!(StepNoise::of_sum(&smallest, 0.3).is_err());
    }

    #[test]
    fn enlarged_noise_is_multiplied_and_keeps_its_event() {
        let thresholds = Thresholds::whole(1.0).unwrap();
        let thresholds = thresholds.with_counts(vec![Count::whole(1.0)], CountNoise::Share(0.1));
        let noise = thresholds.unwrap().noise(1.1, 200.0).unwrap();
        let enlarged = noise.clone().enlarged(2.0);
        assert_eq!(enlarged.group_stds, [2.0 * noise.group_stds[0]]);
        assert_eq!(enlarged.count_std, noise.count_std.map(|std| 2.0 * std));
        assert_eq!(enlarged.event, noise.event);
    }
}
