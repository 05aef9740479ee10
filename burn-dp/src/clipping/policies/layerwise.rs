use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use super::public_norms::PublicNorms;
use super::saved_values::saved_norms;
use crate::DpError;
use crate::clipping::thresholds::{NoiseSplit, Thresholds};
use crate::error::positive;
use crate::model::ParameterGroups;
use crate::schedule::Schedule;

/// Minimum ratio of a layer's threshold to the largest one: a layer without gradient on the public
/// data can have one on the private data.
const LEAST: f64 = 1e-3;

/// Adaptive layerwise clipping: the threshold of each layer is proportional to the mean norm of its
/// gradients on public data.
///
/// While the model trains, measure the norms again (once per epoch in the papers) with
/// [`DpOptimizer::learn_from_public`](crate::optim::DpOptimizer::learn_from_public). A [`Schedule`]
/// can decrease the master threshold. Fewer groups need less noise: see
/// [`PublicNorms::merged_groups`].
///
/// # Privacy
///
/// L layers, each with noise multiplier σ, cost as much as one release with noise multiplier σ/√L,
/// which is the plan's noise multiplier; see [`GroupedClipping`](super::GroupedClipping). The
/// public data is not protected; the privacy statement names its source and size.
///
/// # References
///
/// - Nguyen et al., Batch clipping and adaptive layerwise clipping for differential private
///   stochastic gradient descent, 2023, section 3.3 (enhanced: `C_h = C e_h / max e`).
/// - Zhang, Ji, Wang, Differentially private releasing via deep generative model, 2018
///   (`C_h = e_h`).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerwiseClipping {
    groups: ParameterGroups,
    /// The master threshold C, or `None` for Zhang's rule.
    master: Option<f64>,
    schedule: Schedule,
    split: NoiseSplit,
    /// Relative to the largest norm if there is a master threshold, otherwise as measured.
    norms: Vec<f64>,
    /// The public data of the first norms.
    origin: String,
}

impl LayerwiseClipping {
    /// Creates the policy with the enhanced rule, `C_h = C e_h / max e`, where C is `master`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the master threshold is not positive and finite.
    pub fn enhanced(master: f64, norms: &PublicNorms) -> Result<Self, DpError> {
        Self::from_public(Some(master), norms)
    }

    /// Creates the policy with Zhang's rule, `C_h = e_h`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if all norms are zero.
    pub fn zhang(norms: &PublicNorms) -> Result<Self, DpError> {
        Self::from_public(None, norms)
    }

    fn from_public(master: Option<f64>, norms: &PublicNorms) -> Result<Self, DpError> {
        let (groups, origin) = (norms.groups().clone(), norms.public_data().into());
        Self::new(groups, master, Self::norms(master, norms)?, origin)
    }

    /// Creates the policy with the norms that it keeps, and the public data of the first ones.
    pub(super) fn new(
        groups: ParameterGroups,
        master: Option<f64>,
        norms: Vec<f64>,
        origin: String,
    ) -> Result<Self, DpError> {
        positive("master", master.unwrap_or(1.0))?;
        let (schedule, split) = (Schedule::constant(), NoiseSplit::default());
        Self { groups, master, schedule, split, norms, origin }.checked()
    }

    fn norms(master: Option<f64>, norms: &PublicNorms) -> Result<Vec<f64>, DpError> {
        let relative = norms.relative_means(LEAST);
        if master.is_some() {
            return Ok(relative);
        }
        let largest = norms.means().into_iter().fold(0.0, f64::max);
        positive("norms", largest)?;
        Ok(relative.into_iter().map(|norm| norm * largest).collect())
    }

    fn checked(self) -> Result<Self, DpError> {
        self.thresholds(0)?;
        Ok(self)
    }

    /// Sets how the thresholds change over the steps, in addition to the public norms. Default:
    /// constant.
    pub fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Sets how the noise is divided among the layers. Default: [`NoiseSplit::Proportional`].
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a share is not positive and finite, or if there is
    /// not one for each layer.
    pub fn with_noise_split(mut self, split: NoiseSplit) -> Result<Self, DpError> {
        self.split = split;
        self.checked()
    }
}

impl Clipping for LayerwiseClipping {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        let factor = self.master.unwrap_or(1.0) * self.schedule.factor(step);
        let norms = self.norms.iter().map(|norm| norm * factor).collect();
        Thresholds::per_group(self.groups.clone(), norms, &self.split)
    }

    fn describe(&self) -> String {
        let rule = self.master.map_or("the norm of each".to_string(), |master| {
            format!("{master} times the norm of each over the largest")
        });
        format!(
            "per layer ({}), to {rule} on public data: {}; schedule {}, noise {}",
            self.groups.describe(),
            self.origin,
            self.schedule,
            self.split
        )
    }

    fn set_public_norms(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        norms.check_groups(&self.groups)?;
        self.norms = Self::norms(self.master, norms)?;
        Ok(())
    }

    fn public_data(&self) -> Vec<String> {
        let groups = self.groups.public_data().map(String::from);
        [self.origin.clone()].into_iter().chain(groups).collect()
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        let master = self.master.unwrap_or(1.0);
        let norms = self.norms.iter().map(|norm| norm * master);
        self.groups.names().iter().cloned().zip(norms).collect()
    }

    fn schedules(&self) -> Vec<&Schedule> {
        vec![&self.schedule]
    }

    fn to_config(&self, _: Seal) -> Option<ClippingConfig> {
        Some(ClippingConfig(Settings::Layerwise {
            groups: (&self.groups).into(),
            public_data: self.origin.clone(),
            master: self.master,
            schedule: self.schedule.clone(),
            noise_split: self.split.clone(),
            norms: self.norms.clone(),
        }))
    }

    fn save_state(&self) -> serde_json::Value {
        self.norms.iter().copied().collect()
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        self.norms = saved_norms(state, self.groups.len())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::public_norms::of_drawings;
    use super::*;
    use crate::model::groups::three_groups;

    fn norms(means: [f64; 3]) -> PublicNorms {
        of_drawings(three_groups(), means.into())
    }

    #[test]
    fn enhanced_rule_scales_the_relative_norms() {
        let mut clipping = LayerwiseClipping::enhanced(0.2, &norms([1.0, 4.0, 2.0])).unwrap();
        assert_eq!(clipping.thresholds(0).unwrap().norms(), [0.05, 0.2, 0.1]);
        clipping.set_public_norms(&norms([3.0, 0.0, 1.5])).unwrap();
        assert_eq!(clipping.thresholds(9).unwrap().norms(), [0.2, 0.2 * 1e-3, 0.1]);
    }

    #[test]
    fn zhang_rule_uses_the_norms_themselves() {
        let clipping = LayerwiseClipping::zhang(&norms([1.0, 4.0, 2.0])).unwrap();
        assert_eq!(clipping.thresholds(0).unwrap().norms(), [1.0, 4.0, 2.0]);
        assert!(LayerwiseClipping::zhang(&norms([0.0; 3])).is_err());
    }

    // Sharp edge: the noise follows thresholds that change.
    #[test]
    fn noise_follows_thresholds_when_the_master_threshold_decays() {
        let schedule = Schedule::exponential(0.9, 10).unwrap();
        let clipping = LayerwiseClipping::enhanced(0.2, &norms([1.0, 4.0, 2.0])).unwrap();
        let clipping = clipping.with_schedule(schedule);
        for (step, decay) in [(0, 1.0), (10, 0.9), (25, 0.81)] {
            let thresholds = clipping.thresholds(step).unwrap();
            let noise = thresholds.noise(0.5, 64.0).unwrap();
            for (&norm, std) in thresholds.norms().iter().zip(noise.group_stds) {
                assert!((std / (0.5 * 3f64.sqrt() * norm) - 1.0).abs() < 1e-11);
            }
            assert!((thresholds.norms()[1] / (0.2 * decay) - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn state_is_restored_bit_for_bit() {
        let mut clipping = LayerwiseClipping::enhanced(0.2, &norms([1.0, 3.0, 7.0])).unwrap();
        clipping.set_public_norms(&norms([0.3, 0.1, 0.7])).unwrap();
        let text = clipping.save_state().to_string();
        let mut restored = LayerwiseClipping::enhanced(0.2, &norms([1.0; 3])).unwrap();
        restored.load_state(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(restored, clipping);
        for text in ["[1.0]", "null", "[1.0, 2.0, 0.0]"] {
            assert!(restored.load_state(&serde_json::from_str(text).unwrap()).is_err());
        }
    }

    #[test]
    fn adapted_values_are_the_thresholds() {
        let clipping = LayerwiseClipping::enhanced(0.2, &norms([1.0, 4.0, 2.0])).unwrap();
        let adapted: Vec<f64> = clipping.adapted().into_iter().map(|(_, norm)| norm).collect();
        assert_eq!(adapted, clipping.thresholds(0).unwrap().norms());
        let text = clipping.describe();
        assert!(text.contains("0.2 times the norm") && text.contains("drawings"), "{text}");
        let zhang = LayerwiseClipping::zhang(&norms([1.0, 4.0, 2.0])).unwrap();
        assert_eq!(zhang.adapted()[1].1, 4.0);
        assert!(LayerwiseClipping::enhanced(-0.2, &norms([1.0; 3])).is_err());
    }
}
