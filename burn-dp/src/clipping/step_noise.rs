//! The noise that follows from thresholds.

use burn_dp_accountant::{AdaptiveClippingSplit, DpEvent, effective_noise_multiplier};

use super::thresholds::Bound;
use super::{CountNoise, Thresholds};
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
        let counts = self.counts().len() as u64;
        if !self.releases_sum() {
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
            let split = match self.count_noise() {
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
        match self.bound() {
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
        let effective = match self.bound() {
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
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clipping::Count;
    use crate::model::groups::three_groups;

    fn per_group(split: &NoiseSplit) -> Thresholds {
        Thresholds::per_group(three_groups(), vec![0.1, 1.0, 2.0], split).unwrap()
    }

    // Sharp edge: every split costs the multiplier of the plan, never √L of it.
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
            assert!((0.8..0.8 * (1.0 + 1e-11)).contains(&effective), "{split:?} {effective}");
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
}
