//! Counts of units whose norm is at most a threshold, released together with the sum.

use burn_dp_accountant::AdaptiveClippingSplit;
use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::error::positive;

/// Default standard deviation of the noise on a count, as a fraction of the expected batch size.
const DEFAULT_FRACTION: f64 = 1.0 / 20.0;

/// Relative increase of the measured norm, so that rounding in f32 does not move a clipped gradient
/// above the threshold.
pub(super) const ROUNDING: f64 = 1.0 / (1 << 20) as f64;

/// A count of the units whose norm is at most a threshold, or a mean of the norms clipped to it.
///
/// # Privacy
///
/// A step releases `Σ_i (b_i - ½)` with noise, where unit i contributes `b_i` from 0 to 1. One unit
/// changes this sum by at most ½. So the sensitivity is ½ if a unit is added or removed, and 1 if
/// one is replaced. A unit whose norm is not finite is above every threshold. [`CountKind::Slack`]
/// has its own rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// The group whose norm is compared, or `None` for the whole gradient.
    pub group: Option<usize>,
    /// The threshold.
    pub threshold: f64,
    /// What a unit contributes.
    pub kind: CountKind,
}

/// What a unit contributes to a [`Count`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountKind {
    /// 1 if the norm is at most the threshold, else 0. The default.
    #[default]
    Indicator,
    /// The norm over the threshold, at most 1. The released fraction is the mean of the norms
    /// clipped to the threshold, over the threshold.
    ClippedNorm,
    /// `√(1 - (‖g‖/C)²)` below the threshold C, else 0: what the clipped gradient leaves of its
    /// sensitivity. Only with [`CountNoise::Free`].
    ///
    /// # Privacy
    ///
    /// The clipped gradient over C and its slack are together a vector of norm at most 1, and their
    /// noise has the same standard deviation z. Both are one Gaussian release with multiplier z,
    /// like the gradient alone, so the slack costs nothing. It is summed without a shift by ½,
    /// because a unit that is absent has neither a gradient nor slack. A unit that takes part with
    /// a gradient of zero has slack 1.
    ///
    /// # References
    ///
    /// S. Zou et al., "SlaClip: Gradient Norm Slacks can be Indicator for Adaptive Clipping in
    /// DP-SGD", 2026.
    Slack,
}

impl Count {
    /// Counts the units whose whole gradient has a norm of at most `threshold`.
    pub fn whole(threshold: f64) -> Self {
        Self { group: None, threshold, kind: CountKind::default() }
    }

    /// Counts the units whose gradient in `group` has a norm of at most `threshold`.
    pub fn of_group(group: usize, threshold: f64) -> Self {
        Self { group: Some(group), ..Self::whole(threshold) }
    }

    /// Sets what a unit contributes. Default: [`CountKind::Indicator`].
    pub fn with_kind(self, kind: CountKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns `b_i`, between 0 and 1, for a unit with this norm; `None` stands for a norm that is
    /// not finite.
    pub(super) fn contribution(&self, norm: Option<f64>) -> f64 {
        match (self.kind, norm) {
            (CountKind::Indicator, Some(norm)) if norm <= self.threshold => 1.0,
            (CountKind::Indicator, _) => 0.0,
            (CountKind::ClippedNorm, Some(norm)) if norm < self.threshold => norm / self.threshold,
            (CountKind::ClippedNorm, _) => 1.0,
            (CountKind::Slack, norm) => {
                let used = norm.map_or(1.0, |norm| norm * (1.0 + ROUNDING) / self.threshold);
                let slack = (1.0 - used) * (1.0 + used);
                // Rounded down; NaN becomes 0.
                slack.max(0.0).sqrt() * (1.0 - 4.0 * f64::EPSILON)
            }
        }
    }

    /// Returns what is subtracted from each contribution before the noise, and added afterwards.
    pub(crate) fn center(&self) -> f64 {
        match self.kind {
            CountKind::Slack => 0.0,
            _ => 0.5,
        }
    }
}

/// The noise on the counts of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountNoise {
    /// The standard deviation σ_b on each count.
    Std(f64),
    /// The standard deviation as a fraction of the expected batch size. The default, with 1/20.
    BatchFraction(f64),
    /// The share, between 0 and 1, of the step's privacy cost z⁻² that all counts together use. It
    /// is kept exactly.
    Share(f64),
    /// The counts use none of the cost, and the noise follows from the sum. Only for one count of
    /// the kind [`CountKind::Slack`] at the threshold of the whole gradient.
    Free,
}

impl Default for CountNoise {
    fn default() -> Self {
        Self::BatchFraction(DEFAULT_FRACTION)
    }
}

impl CountNoise {
    /// Returns [`DpError::InvalidArgument`] if the number is out of its range.
    pub(super) fn check(self) -> Result<(), DpError> {
        match self {
            Self::Std(std) => positive("noise", std),
            Self::BatchFraction(part) => positive("noise as a fraction of the batch", part),
            Self::Free => Ok(()),
            Self::Share(share) if share > 0.0 && share < 1.0 => Ok(()),
            Self::Share(share) => {
                let reason = format!("must be a share between 0 and 1 (exclusive), got {share}");
                Err(DpError::invalid("noise", reason))
            }
        }
    }

    /// Divides the privacy cost of a step between the sum and its counts.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Accountant`] if the counts alone would cost more than the step.
    pub(super) fn split(
        self,
        noise_multiplier: f64,
        expected_batch_size: f64,
        counts: u64,
    ) -> Result<AdaptiveClippingSplit, DpError> {
        let std = match self {
            Self::Std(std) => std,
            Self::BatchFraction(fraction) => fraction * expected_batch_size,
            Self::Free => {
                let reason = "must not be free with a sum whose sensitivity the counts do not use";
                return Err(DpError::invalid("noise", reason));
            }
            Self::Share(share) => {
                return Ok(AdaptiveClippingSplit::from_share(noise_multiplier, share, counts)?);
            }
        };
        Ok(AdaptiveClippingSplit::from_count_noise(noise_multiplier, std, counts)?)
    }
}

impl std::fmt::Display for CountNoise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Std(std) => write!(f, "noise of standard deviation {std} on each count"),
            Self::BatchFraction(fraction) => write!(
                f,
                "noise of standard deviation {fraction} times the expected batch on each count"
            ),
            Self::Share(share) => write!(f, "counts use {share} of the cost of a step"),
            Self::Free => f.write_str("counts of slack, which cost nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Sharp edge: what a unit contributes to a count is bounded, regardless of its norm.
    #[test]
    fn contribution_to_a_count_is_between_zero_and_one() {
        for threshold in [f64::MIN_POSITIVE, 1e-9, 1.0, 1e60, f64::MAX] {
            for kind in [CountKind::Indicator, CountKind::ClippedNorm, CountKind::Slack] {
                let count = Count::whole(threshold).with_kind(kind);
                let third = threshold / 3.0;
                let norms = [0.0, f64::MIN_POSITIVE, third, threshold, 2.0 * threshold, f64::MAX];
                let unknown = [None, Some(f64::INFINITY), Some(f64::NAN)];
                for norm in norms.into_iter().map(Some).chain(unknown) {
                    let found = count.contribution(norm);
                    assert!((0.0..=1.0).contains(&found), "{kind:?} {threshold} {norm:?}: {found}");
                }
            }
        }
    }

    // Sharp edge: gradient and slack together stay within one sensitivity.
    #[test]
    fn slack_and_clipped_gradient_have_a_norm_of_at_most_one() {
        for threshold in [1e-9, 0.3, 1.0, 1e6] {
            let count = Count::whole(threshold).with_kind(CountKind::Slack);
            assert_eq!((count.center(), count.contribution(None)), (0.0, 0.0));
            for share in [0.0, 1e-6, 0.1, 0.5, 0.9, 0.999_999, 1.0 - 1e-12, 1.0, 1.5, 1e9] {
                let slack = count.contribution(Some(share * threshold));
                // The norm may be underestimated by this much.
                let used = (share * (1.0 + 1e-7)).min(1.0);
                assert!(used * used + slack * slack <= 1.0, "{threshold} {share}: {slack}");
                let exact = (1.0 - share * share).max(0.0).sqrt();
                assert!((slack - exact).abs() < 2e-3, "{share}: {slack} {exact}");
            }
        }
    }

    #[test]
    fn clipped_norm_contributes_in_proportion_to_threshold() {
        let count = Count::of_group(2, 4.0).with_kind(CountKind::ClippedNorm);
        for (norm, expected) in [(0.0, 0.0), (1.0, 0.25), (4.0, 1.0), (9.0, 1.0)] {
            assert_eq!(count.contribution(Some(norm)), expected);
        }
        assert_eq!(count.contribution(None), 1.0);
        assert_eq!(Count::whole(4.0).contribution(Some(4.0)), 1.0);
        assert_eq!(Count::whole(4.0).contribution(Some(4.1)), 0.0);
    }

    #[test]
    fn noise_out_of_its_range_is_refused() {
        use CountNoise::{BatchFraction, Free, Share, Std};
        for noise in [Std(1.0), BatchFraction(0.05), Share(0.5), Share(1e-9), Free] {
            assert!(noise.check().is_ok(), "{noise:?}");
        }
        for noise in [
            Std(0.0),
            Std(f64::NAN),
            BatchFraction(-0.05),
            BatchFraction(f64::INFINITY),
            Share(0.0),
            Share(1.0),
            Share(-0.5),
            Share(1.5),
            Share(f64::NAN),
        ] {
            assert!(noise.check().is_err(), "{noise:?}");
        }
    }
}
