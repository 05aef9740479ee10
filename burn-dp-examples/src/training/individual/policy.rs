//! From options to a clipping policy.

use burn_dp::clipping::{
    AutomaticClipping, Clipping, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, QuantileClipping, QuantileRule,
};
use burn_dp::model::ParameterGroups;

use super::public_items::PublicItems;
use super::{ClippingName, ClippingSettings, RuleName};
use crate::data::Encoder;
use crate::models::Classifier;
use crate::training::TrainError;
use crate::training::thresholds::decaying;

impl ClippingSettings {
    /// Returns the policy for a model.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the policy refuses the threshold or the model.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;
    use burn_dp::losses::CrossEntropyLossConfig;

    use super::*;
    use crate::data::{ImageBatcher, ItemDataset, digits};
    use crate::models::MlpConfig;
    use crate::training::individual::{IndividualOptions, Settings};
    use crate::training::options::TrainingOptions;

    #[test]
    fn every_policy_is_built_for_a_model() {
        let device = Device::flex().autodiff();
        let model = MlpConfig::new().init(&device);
        let train = digits::splits(0, 60, 0).train;
        for (line, words) in [
            ("flat", "flat"),
            ("per-layer", "per group"),
            ("per-layer --layer-groups 2", "per group"),
            ("automatic", "automatic"),
            ("quantile", "flat, to the 0.5 quantile"),
            ("quantile --quantile-per-layer", "per group"),
            ("layerwise", "per layer"),
            ("layerwise --layer-multipliers", "multiplied"),
            ("flat --threshold-decay 0.9", "schedule: times 0.9 every 7 steps"),
        ] {
            let line = format!("train --clipping {line}");
            let options = IndividualOptions::read(line.split(' ')).unwrap();
            let settings = Settings::new(options, None).unwrap();
            let clipping = settings.private.unwrap().clipping;
            let public = settings.data.split_public(&train, 6).unwrap().1;
            let public = if clipping.needs_public() { public } else { Vec::new() };
            let loss = CrossEntropyLossConfig::new().init();
            let public = ItemDataset::new(public);
            let public = PublicItems::new(ImageBatcher::MNIST, public, loss, device.clone());
            let policy = clipping.policy(&model, 0.5, 7, &public).unwrap();
            assert!(policy.describe().contains(words), "{}", policy.describe());
            if clipping.adapts() {
                let public = public.with_groups_of(&*policy).unwrap();
                let mut policy = policy;
                policy.learn_public(&public.measured(&model).unwrap()).unwrap();
            }
        }
    }
}
