//! The clipping policy of user-level training.

use burn::module::Module;
use burn_dp::clipping::{
    AutomaticClipping, Clipping, CountNoise, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, PublicNorms, QuantileClipping, QuantileTracker,
};
use burn_dp::model::ParameterGroups;

use super::FederatedSettings;
use crate::training::TrainError;
use crate::training::options::ClippingName;
use crate::training::thresholds::decaying;

/// The quantile that is reported of the tracked norms.
pub(super) const MEDIAN: f64 = 0.5;

impl FederatedSettings {
    /// Returns the clipping policy, with an estimator of norms if it is requested.
    pub(super) fn tracked_policy<M: Module>(
        &self,
        model: &M,
        users: usize,
        public_norms: impl Fn(ParameterGroups) -> Result<PublicNorms, TrainError>,
    ) -> Result<Box<dyn Clipping>, TrainError> {
        let clipping = self.policy(model, public_norms)?;
        let pass = self.sampling.steps_per_epoch(users, self.training.users_per_round);
        let clipping = decaying(clipping, self.layers.threshold_decay, pass)?;
        if !self.training.track_norms {
            return Ok(clipping);
        }
        let parameters = ParameterGroups::per_parameter(model)?;
        // The mean counts norms up to twice the higher quantile.
        let tracker = QuantileTracker::new(parameters, [MEDIAN, 0.9])?.with_means();
        Ok(Box::new(tracker.with_clipping(clipping, CountNoise::Share(self.count_share))))
    }

    fn policy<M: Module>(
        &self,
        model: &M,
        public_norms: impl Fn(ParameterGroups) -> Result<PublicNorms, TrainError>,
    ) -> Result<Box<dyn Clipping>, TrainError> {
        let groups = || -> Result<ParameterGroups, TrainError> {
            let parameters = ParameterGroups::per_parameter(model)?;
            match self.layers.layer_groups {
                None => Ok(parameters),
                Some(count) => Ok(public_norms(parameters)?.merged_groups(count)?),
            }
        };
        let norm = self.training.max_update_norm.unwrap_or(1.0);
        let layers = match self.clipping {
            ClippingName::Flat => return Ok(Box::new(FlatClipping::new(norm)?)),
            ClippingName::Automatic => {
                return Ok(Box::new(AutomaticClipping::new().with_norm(norm)?));
            }
            ClippingName::PerLayer => {
                return Ok(Box::new(GroupedClipping::equal(groups()?, norm)?));
            }
            ClippingName::Layerwise => {
                let norms = public_norms(groups()?)?;
                return Ok(Box::new(LayerwiseClipping::enhanced(norm, &norms)?));
            }
            ClippingName::Zhang => {
                return Ok(Box::new(LayerwiseClipping::zhang(&public_norms(groups()?)?)?));
            }
            ClippingName::Multipliers => {
                let norms = public_norms(groups()?)?;
                return Ok(Box::new(MultipliedClipping::from_public(norm, &norms)?));
            }
            ClippingName::Quantile => None,
            ClippingName::LayerQuantile => Some(ParameterGroups::per_parameter(model)?),
        };
        let mut clipping = QuantileClipping::new(self.target_quantile)?
            .with_learning_rate(self.quantile_lr)?
            .with_rule(self.quantile_rule.into())
            .with_count_noise(CountNoise::Share(self.count_share));
        if let Some(norm) = self.training.max_update_norm {
            clipping = clipping.with_initial(norm)?;
        }
        Ok(match layers {
            Some(layers) => Box::new(clipping.with_groups(layers)),
            None => Box::new(clipping),
        })
    }
}
