//! The split of one noise multiplier among several Gaussian releases on one draw of units.

use crate::domain::{check_count, check_positive};
use crate::error::AccountantError;
use crate::event::DpEvent;

/// The noise of quantile-adaptive clipping: a gradient and counts of unclipped units that together
/// cost exactly one Gaussian release of the given noise multiplier.
///
/// # References
///
/// "Differentially Private Learning with Adaptive Clipping", Andrew, Thakkar, McMahan, Ramaswamy
/// 2021, Theorem 1; several counts (one per layer) by the same composition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveClippingSplit {
    /// Noise multiplier of the whole release.
    pub noise_multiplier: f64,
    /// Noise multiplier `z_Δ` of only the gradient; larger than the whole multiplier.
    pub update_noise_multiplier: f64,
    /// Standard deviation `σ_b` of the noise on each count. A count of bits shifted to ±½ has
    /// sensitivity ½.
    pub count_noise_std: f64,
    /// Number of counts.
    pub counts: u64,
}

impl AdaptiveClippingSplit {
    /// Creates the split from the noise on each count: `z_Δ = (z^-2 - K (2σ_b)^-2)^(-1/2)`. Exact.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is not positive and finite, and
    /// [`AccountantError::Infeasible`] if the counts alone cost more than the whole release.
    pub fn from_count_noise(
        noise_multiplier: f64,
        count_noise_std: f64,
        counts: u64,
    ) -> Result<Self, AccountantError> {
        check_positive("noise_multiplier", noise_multiplier)?;
        check_positive("count_noise_std", count_noise_std)?;
        let whole = noise_multiplier.powi(-2);
        let left = whole - counts as f64 * (2.0 * count_noise_std).powi(-2);
        if left <= 0.0 {
            return Err(AccountantError::infeasible(format!(
                "{counts} counts with noise {count_noise_std} alone cost more than a noise \
                 multiplier of {noise_multiplier}; use more noise on the counts (above {})",
                0.5 * noise_multiplier * (counts as f64).sqrt()
            )));
        }
        Ok(Self {
            noise_multiplier,
            update_noise_multiplier: 1.0 / left.sqrt(),
            count_noise_std,
            counts,
        })
    }

    /// Creates the split from the share of `z^-2` that the counts may use. Exact.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `noise_multiplier` is not positive and
    /// finite, `share` is not between 0 and 1, or `counts` is 0.
    pub fn from_share(
        noise_multiplier: f64,
        share: f64,
        counts: u64,
    ) -> Result<Self, AccountantError> {
        check_positive("noise_multiplier", noise_multiplier)?;
        if !(share > 0.0 && share < 1.0) {
            return Err(AccountantError::invalid(
                "share",
                format!("must be between 0 and 1 (exclusive), got {share}"),
            ));
        }
        check_count("counts", counts)?;
        Ok(Self {
            noise_multiplier,
            update_noise_multiplier: noise_multiplier / (1.0 - share).sqrt(),
            count_noise_std: 0.5 * noise_multiplier * (counts as f64 / share).sqrt(),
            counts,
        })
    }

    /// Returns the release as an event, with the noise multipliers of its parts.
    pub fn event(&self) -> DpEvent {
        let mut noise_multipliers = vec![self.update_noise_multiplier];
        noise_multipliers.extend((0..self.counts).map(|_| 2.0 * self.count_noise_std));
        DpEvent::JointGaussian { noise_multipliers }
    }
}

/// Returns the noise multiplier of the one Gaussian release that is equivalent to releases of
/// groups `(clipping threshold, noise standard deviation)`: `(Σ (C_h/σ_h)²)^(-1/2)`. Exact; `L`
/// equal groups result in `σ/√L`.
///
/// # Errors
///
/// Returns [`AccountantError::InvalidArgument`] if there is no group, or a number is not positive
/// and finite.
///
/// # References
///
/// "A General Approach to Adding Differential Privacy to Iterative Training Procedures", McMahan et
/// al. 2018, section 2.
pub fn effective_noise_multiplier(groups: &[(f64, f64)]) -> Result<f64, AccountantError> {
    if groups.is_empty() {
        return Err(AccountantError::invalid("groups", "must contain at least one group"));
    }
    let mut precision = 0.0;
    for &(norm, deviation) in groups {
        check_positive("clipping_norm", norm)?;
        check_positive("noise_std", deviation)?;
        precision += (norm / deviation).powi(2);
    }
    Ok(1.0 / precision.sqrt())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn split_has_its_golden_value() {
        // composition_heterogeneous.json, row p11.
        let split = AdaptiveClippingSplit::from_count_noise(0.6, 2.0, 1).unwrap();
        assert!((split.update_noise_multiplier - 0.6068660849090083).abs() < 1e-14);
    }

    #[test]
    fn both_splits_cost_the_whole_release() {
        for split in [
            AdaptiveClippingSplit::from_count_noise(1.1, 5.0, 7).unwrap(),
            AdaptiveClippingSplit::from_share(0.8, 0.1, 3).unwrap(),
        ] {
            let DpEvent::JointGaussian { noise_multipliers } = split.event() else {
                unreachable!()
            };
            let groups: Vec<(f64, f64)> = noise_multipliers.iter().map(|&z| (1.0, z)).collect();
            let whole = effective_noise_multiplier(&groups).unwrap();
            assert!((whole / split.noise_multiplier - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn infeasible_counts_are_refused_with_a_way_out() {
        let error = AdaptiveClippingSplit::from_count_noise(4.0, 1.0, 1).unwrap_err();
        assert!(error.to_string().contains("above 2"), "{error}");
        assert!(AdaptiveClippingSplit::from_share(1.0, 1.0, 1).is_err());
    }

    #[test]
    fn equal_groups_divide_noise_by_square_root_of_number() {
        let z = effective_noise_multiplier(&[(0.3, 0.6); 16]).unwrap();
        assert!((z - 0.5).abs() < 1e-15);
        assert!(effective_noise_multiplier(&[]).is_err());
    }
}
