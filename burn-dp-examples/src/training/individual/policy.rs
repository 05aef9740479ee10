//! Creates a clipping policy from options.

use burn_dp::clipping::{
    AutomaticClipping, Clipping, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, QuantileClipping,
};
use burn_dp::model::ParameterGroups;

use super::ClippingSettings;
use super::public_items::PublicItems;
use crate::data::Encoder;
use crate::models::Classifier;
use crate::training::TrainError;
use crate::training::options::ClippingName;
use crate::training::thresholds::decaying;

/// Returns the policy for a model.
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the policy rejects the threshold or the model.
pub(super) fn policy<E: Encoder, M: Classifier<Inputs = E::Inputs>>(
    settings: &ClippingSettings,
    model: &M,
    max_grad_norm: f64,
    steps_per_epoch: usize,
    public: &PublicItems<E>,
) -> Result<Box<dyn Clipping>, TrainError> {
    let policy: Box<dyn Clipping> = match settings.name {
        ClippingName::Flat => Box::new(FlatClipping::new(max_grad_norm)?),
        ClippingName::Automatic => Box::new(AutomaticClipping::new().with_norm(max_grad_norm)?),
        ClippingName::PerLayer => {
            let layers = public.layers(model, settings.groups)?;
            Box::new(GroupedClipping::equal(layers, max_grad_norm)?)
        }
        ClippingName::Quantile | ClippingName::LayerQuantile => {
            let (target, learning_rate, rule) = settings.quantile;
            let mut clipping = QuantileClipping::new(target)?
                .with_initial(max_grad_norm)?
                .with_rule(rule.into())
                .with_learning_rate(learning_rate)?
                .with_count_noise(settings.count_noise);
            if settings.name == ClippingName::LayerQuantile {
                clipping = clipping.with_groups(ParameterGroups::per_layer(model)?);
            }
            Box::new(clipping)
        }
        ClippingName::Layerwise => {
            let norms = public.norms(model, settings.groups)?;
            Box::new(LayerwiseClipping::enhanced(max_grad_norm, &norms)?)
        }
        ClippingName::Zhang => {
            Box::new(LayerwiseClipping::zhang(&public.norms(model, settings.groups)?)?)
        }
        ClippingName::Multipliers => {
            let norms = public.norms(model, settings.groups)?;
            Box::new(MultipliedClipping::from_public(max_grad_norm, &norms)?)
        }
    };
    decaying(policy, settings.decay, steps_per_epoch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;
    use burn_dp::losses::CrossEntropyLossConfig;

    use super::*;
    use crate::data::{ImageBatcher, digits};
    use crate::models::MlpConfig;
    use crate::training::TrainOptions;
    use crate::training::individual::IndividualSettings;

    #[test]
    fn every_policy_is_built_for_a_model() {
        let device = Device::flex().autodiff();
        let model = MlpConfig::new().init(&device);
        for (line, words) in [
            ("flat", "flat"),
            ("per-layer", "per group"),
            ("per-layer --layer-groups 2", "per group"),
            ("automatic", "automatic"),
            ("quantile", "flat, to the 0.5 quantile"),
            ("quantile --quantile-per-layer", "per group"),
            ("layer-quantile", "per group"),
            ("layerwise", "per layer"),
            ("zhang", "per layer"),
            ("zhang --layer-groups 2", "per layer"),
            ("multipliers", "multiplied"),
            ("flat --threshold-decay 0.9", "schedule: times 0.9 every 7 steps"),
        ] {
            let line = format!("train --clipping {line}");
            let options = TrainOptions::read(line.split(' ')).unwrap();
            let settings = IndividualSettings::new(options, None).unwrap();
            let clipping = settings.private.unwrap().clipping;
            let public = clipping.needs_public().then(|| digits::public(0, 6).unwrap());
            let loss = CrossEntropyLossConfig::new().init();
            let public = PublicItems::new(ImageBatcher::MNIST, public, loss, device.clone());
            let policy = policy(&clipping, &model, 0.5, 7, &public).unwrap();
            assert!(policy.describe().contains(words), "{}", policy.describe());
            let named = policy.describe().contains("synthetic digits of seed 0");
            assert_eq!(named, clipping.needs_public(), "{}", policy.describe());
            if clipping.adapts() {
                let public = public.with_groups_of(&*policy).unwrap();
                let mut policy = policy;
                policy.set_public_norms(&public.measured(&model).unwrap()).unwrap();
            }
        }
    }
}
