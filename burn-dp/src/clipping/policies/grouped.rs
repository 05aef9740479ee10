use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use crate::DpError;
use crate::clipping::thresholds::{NoiseSplit, Thresholds};
use crate::error::positive;
use crate::model::ParameterGroups;

/// Clips groups of parameters separately: per layer, per module, or as given.
///
/// # Privacy
///
/// The sum has L2 sensitivity `√(Σ C_h²)` if a unit is added or removed. A [`NoiseSplit`] divides
/// the noise among the groups so that the release costs as much as one Gaussian release with the
/// plan's noise multiplier z. With equal shares, the noise of group h has standard deviation
/// `z √L C_h`. A unit whose norm is not finite in one group is left out of all.
///
/// # References
///
/// - McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models,
///   2018, section 3.
/// - McMahan et al., A general approach to adding differential privacy to iterative training
///   procedures, 2018, section 2.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupedClipping {
    groups: ParameterGroups,
    norms: Vec<f64>,
    split: NoiseSplit,
}

impl GroupedClipping {
    /// Creates the policy with one threshold for each group, in the order of the groups.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a threshold is not positive and finite, or if there
    /// is not one for each group.
    pub fn new(groups: ParameterGroups, norms: Vec<f64>) -> Result<Self, DpError> {
        Self { groups, norms, split: NoiseSplit::default() }.checked()
    }

    /// Creates the policy with the same threshold, `max_grad_norm / √L`, for all L groups. A
    /// contribution has norm at most `max_grad_norm`, as in flat clipping.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `max_grad_norm` is not positive and finite.
    pub fn equal(groups: ParameterGroups, max_grad_norm: f64) -> Result<Self, DpError> {
        positive("max_grad_norm", max_grad_norm)?;
        let norm = max_grad_norm / (groups.len() as f64).sqrt();
        let norms = vec![norm; groups.len()];
        Self::new(groups, norms)
    }

    /// Sets how the noise is divided among the groups. Default: [`NoiseSplit::Proportional`].
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a share is not positive and finite, or if there is
    /// not one for each group.
    pub fn with_noise_split(mut self, split: NoiseSplit) -> Result<Self, DpError> {
        self.split = split;
        self.checked()
    }

    fn checked(self) -> Result<Self, DpError> {
        self.thresholds(0)?;
        Ok(self)
    }
}

impl Clipping for GroupedClipping {
    fn thresholds(&self, _step: u64) -> Result<Thresholds, DpError> {
        Thresholds::per_group(self.groups.clone(), self.norms.clone(), &self.split)
    }

    fn describe(&self) -> String {
        let groups: Vec<String> = self
            .groups
            .names()
            .iter()
            .zip(&self.norms)
            .map(|(name, norm)| format!("{name} at most {norm}"))
            .collect();
        let merged = self
            .groups
            .public_data()
            .map_or(String::new(), |origin| format!("; merged by norms on {origin}"));
        format!("per group, L2 norms {}{merged}; noise {}", groups.join(", "), self.split)
    }

    fn to_config(&self, _: Seal) -> Option<ClippingConfig> {
        Some(ClippingConfig(Settings::Grouped {
            groups: (&self.groups).into(),
            norms: self.norms.clone(),
            noise_split: self.split.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::public_norms::of_drawings;
    use super::*;
    use crate::model::groups::three_groups;

    #[test]
    fn equal_thresholds_add_up_to_max_grad_norm() {
        let clipping = GroupedClipping::equal(three_groups(), 1.5).unwrap();
        let thresholds = clipping.thresholds(0).unwrap();
        assert!((thresholds.total_norm() - 1.5).abs() < 1e-15);
        assert_eq!(thresholds.norms().len(), 3);
    }

    // Sharp edge: with C each, L groups have sensitivity C √L, and the noise follows.
    #[test]
    fn noise_follows_the_vector_of_thresholds() {
        let std = |norms: Vec<f64>| {
            let clipping = GroupedClipping::new(three_groups(), norms).unwrap();
            let clipping = clipping.with_noise_split(NoiseSplit::Uniform).unwrap();
            clipping.thresholds(0).unwrap().noise(2.0, 10.0).unwrap().group_stds[0]
        };
        assert!((std(vec![0.5; 3]) / (2.0 * 0.5 * 3f64.sqrt()) - 1.0).abs() < 1e-11);
        assert!((std(vec![5.0; 3]) / std(vec![0.5; 3]) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn thresholds_and_shares_must_fit_the_groups() {
        for norms in [vec![1.0; 2], vec![1.0, 0.0, 1.0], vec![1.0, f64::NAN, 1.0]] {
            assert!(GroupedClipping::new(three_groups(), norms).is_err());
        }
        assert!(GroupedClipping::equal(three_groups(), -1.0).is_err());
        let clipping = GroupedClipping::equal(three_groups(), 1.0).unwrap();
        assert!(clipping.with_noise_split(NoiseSplit::Shares(vec![1.0])).is_err());
    }

    #[test]
    fn description_names_thresholds_and_public_data() {
        let norms = of_drawings(three_groups(), vec![9.0, 0.0, 10.0]);
        let groups = norms.merged_groups(2).unwrap();
        let clipping = GroupedClipping::new(groups, vec![0.5, 2.0]).unwrap();
        assert_eq!(clipping.public_data(), [norms.public_data()]);
        let text = clipping.describe();
        for part in ["a+b at most 0.5, c at most 2;", norms.public_data(), "noise proportional"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
