use super::{Clipping, NoiseSplit, Thresholds};
use crate::DpError;
use crate::model::ParameterGroups;

/// Clipping of groups of parameters apart from each other: per layer, per module, or as given.
///
/// # Privacy
///
/// The sum has L2 sensitivity `√(Σ C_h²)` when one unit is added or removed. The noise is divided
/// among the groups by a [`NoiseSplit`] so that the release costs what one Gaussian release of the
/// plan's noise multiplier z costs: with equal shares, group h has noise of standard deviation
/// `z √L C_h`. A unit whose norm is not finite in one group is left out of all.
///
/// # References
///
/// - McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models, 2018,
///   section 3.
/// - McMahan et al., A general approach to adding differential privacy to iterative training
///   procedures, 2018, section 2.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupedClipping {
    groups: ParameterGroups,
    norms: Vec<f64>,
    split: NoiseSplit,
}

impl GroupedClipping {
    /// Each group to the threshold beside it.
    ///
    /// # Errors
    ///
    /// Refuses thresholds that are not positive and finite, and another number of them than groups.
    pub fn new(groups: ParameterGroups, norms: Vec<f64>) -> Result<Self, DpError> {
        let clipping = Self { groups, norms, split: NoiseSplit::default() };
        clipping.thresholds(0)?;
        Ok(clipping)
    }

    /// The same threshold for all L groups, `max_grad_norm / √L`: a contribution has norm at most
    /// `max_grad_norm`, as in flat clipping.
    ///
    /// # Errors
    ///
    /// Refuses a threshold that is not positive and finite.
    pub fn equal(groups: ParameterGroups, max_grad_norm: f64) -> Result<Self, DpError> {
        let norm = max_grad_norm / (groups.len() as f64).sqrt();
        let norms = vec![norm; groups.len()];
        Self::new(groups, norms)
    }

    /// How the noise is divided among the groups. Default: every group costs the same.
    ///
    /// # Errors
    ///
    /// Refuses shares that are not positive and finite, and another number of them than groups.
    pub fn with_noise_split(mut self, split: NoiseSplit) -> Result<Self, DpError> {
        self.split = split;
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
        format!("per group, L2 norms {}; noise {:?}", groups.join(", "), self.split)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::groups::three_groups;

    #[test]
    fn equal_thresholds_add_up_to_the_whole() {
        let clipping = GroupedClipping::equal(three_groups(), 1.5).unwrap();
        let thresholds = clipping.thresholds(0).unwrap();
        assert!((thresholds.total_norm() - 1.5).abs() < 1e-15);
        assert_eq!(thresholds.norms().len(), 3);
    }

    // Sharp edge: with C each, L groups have sensitivity C √L, and the noise follows.
    #[test]
    fn noise_follows_the_vector_of_thresholds_and_is_never_typed_in() {
        let std = |norms: Vec<f64>| {
            let clipping = GroupedClipping::new(three_groups(), norms).unwrap();
            let clipping = clipping.with_noise_split(NoiseSplit::Uniform).unwrap();
            clipping.thresholds(0).unwrap().noise(2.0, 10.0).unwrap().group_stds[0]
        };
        assert!((std(vec![0.5; 3]) / (2.0 * 0.5 * 3f64.sqrt()) - 1.0).abs() < 1e-11);
        assert!((std(vec![5.0; 3]) / std(vec![0.5; 3]) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn thresholds_that_do_not_fit_the_groups_are_refused() {
        for norms in [vec![1.0; 2], vec![1.0, 0.0, 1.0], vec![1.0, f64::NAN, 1.0]] {
            assert!(GroupedClipping::new(three_groups(), norms).is_err());
        }
        assert!(GroupedClipping::equal(three_groups(), -1.0).is_err());
        let clipping = GroupedClipping::equal(three_groups(), 1.0).unwrap();
        assert!(clipping.with_noise_split(NoiseSplit::Shares(vec![1.0])).is_err());
    }
}
