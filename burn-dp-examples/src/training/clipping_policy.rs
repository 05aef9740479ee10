//! From a choice of options to a clipping policy.

use burn_dp::clipping::{
    AutomaticClipping, Clipping, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, QuantileClipping, QuantileRule, ScheduledClipping,
};
use burn_dp::model::ParameterGroups;
use burn_dp::schedule::Schedule;

use super::public_items::PublicItems;
use super::{ClippingName, ClippingSettings, RuleName, TrainError};
use crate::data::Encoder;
use crate::models::Classifier;

impl ClippingSettings {
    /// The policy for a model.
    ///
    /// # Errors
    ///
    /// When the policy refuses the threshold or the model.
    pub(super) fn policy<E: Encoder, M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
        max_grad_norm: f64,
        steps_per_epoch: usize,
        public: &PublicItems<E>,
    ) -> Result<Box<dyn Clipping>, TrainError> {
        let policy: Box<dyn Clipping> = match self.name {
            ClippingName::Flat => Box::new(FlatClipping::new(max_grad_norm)?),
            ClippingName::Automatic => Box::new(AutomaticClipping::new().with_norm(max_grad_norm)?),
            ClippingName::PerLayer => {
                let layers = public.norms(model, self.groups)?.groups().clone();
                Box::new(GroupedClipping::equal(layers, max_grad_norm)?)
            }
            ClippingName::Quantile => {
                let (target, learning_rate, rule) = self.quantile;
                let rule = match rule {
                    RuleName::Geometric => QuantileRule::Geometric,
                    RuleName::Linear => QuantileRule::Linear,
                };
                let mut clipping = QuantileClipping::new(target)?
                    .with_initial(max_grad_norm)?
                    .with_rule(rule)
                    .with_learning_rate(learning_rate)?
                    .with_count_noise(self.count_noise);
                if self.per_layer {
                    clipping = clipping.with_groups(ParameterGroups::per_layer(model)?);
                }
                Box::new(clipping)
            }
            ClippingName::Layerwise => {
                let norms = public.norms(model, self.groups)?;
                match self.multipliers {
                    true => Box::new(MultipliedClipping::from_public(max_grad_norm, &norms)?),
                    false => Box::new(LayerwiseClipping::enhanced(max_grad_norm, &norms)?),
                }
            }
        };
        decaying(policy, self.decay, steps_per_epoch)
    }
}

/// The policy with its thresholds times `decay` after each pass over the data.
///
/// # Errors
///
/// When the decay is not positive and finite.
pub(super) fn decaying(
    policy: Box<dyn Clipping>,
    decay: f64,
    steps_per_epoch: usize,
) -> Result<Box<dyn Clipping>, TrainError> {
    if decay == 1.0 {
        return Ok(policy);
    }
    let schedule = Schedule::exponential(decay, steps_per_epoch as u64)?;
    Ok(Box::new(ScheduledClipping::new(policy, schedule)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;
    use burn_dp::losses::CrossEntropyLossConfig;

    use super::*;
    use crate::data::{ImageBatcher, digits};
    use crate::models::MlpConfig;
    use crate::training::ClippingOptions;

    fn options(clipping: ClippingName) -> ClippingOptions {
        ClippingOptions { clipping, ..ClippingOptions::default() }
    }

    #[test]
    fn every_policy_is_built_for_a_model() {
        let device = Device::flex().autodiff();
        let model = MlpConfig::new().init(&device);
        let train = digits::splits(0, 60, 0).train;
        for (options, words) in [
            (options(ClippingName::Flat), "flat"),
            (options(ClippingName::PerLayer), "per group"),
            (
                ClippingOptions { layer_groups: Some(2), ..options(ClippingName::PerLayer) },
                "per group",
            ),
            (options(ClippingName::Automatic), "automatic"),
            (options(ClippingName::Quantile), "flat, to the 0.5 quantile"),
            (
                ClippingOptions { quantile_per_layer: true, ..options(ClippingName::Quantile) },
                "per group",
            ),
            (options(ClippingName::Layerwise), "per layer"),
            (
                ClippingOptions { layer_multipliers: true, ..options(ClippingName::Layerwise) },
                "multiplied",
            ),
            (
                ClippingOptions { threshold_decay: Some(0.9), ..options(ClippingName::Flat) },
                "schedule: times 0.9 every 7 steps",
            ),
        ] {
            let settings = options.check().unwrap();
            let (private, public) = settings.split(train.clone()).unwrap();
            assert_eq!(private.items().len() + public.items().len(), 60);
            assert_eq!(public.items().is_empty(), !settings.needs_public());
            let loss = CrossEntropyLossConfig::new().init();
            let public = PublicItems::new(ImageBatcher::MNIST, public, loss, device.clone());
            let policy = settings.policy(&model, 0.5, 7, &public).unwrap();
            assert!(policy.describe().contains(words), "{}", policy.describe());
            if settings.adapts() {
                let public = public.with_groups_of(&*policy).unwrap();
                let mut policy = policy;
                policy.set_public_norms(&public.measured(&model).unwrap()).unwrap();
            }
        }
    }
}
