//! The clipping policy of training with mini-sets.

use burn::module::Module;
use burn_dp::DpError;
use burn_dp::clipping::{
    Clipping, FlatClipping, LayerwiseClipping, MultipliedClipping, PublicNorms,
};
use burn_dp::model::ParameterGroups;

use super::{BatchPolicyName, BatchSettings};
use crate::training::TrainError;
use crate::training::thresholds::decaying;

/// Returns the policy for a model.
///
/// # Arguments
///
/// - `public_norms`: returns the mean norms of groups on public images
///
/// # Errors
///
/// Returns the errors of `public_norms`, and [`TrainError::Privacy`] if the policy rejects the
/// norms.
pub(super) fn policy<M: Module>(
    settings: &BatchSettings,
    model: &M,
    steps_per_epoch: usize,
    public_norms: impl Fn(ParameterGroups) -> Result<PublicNorms, TrainError>,
) -> Result<Box<dyn Clipping>, TrainError> {
    let norms = || {
        let layers = public_norms(ParameterGroups::per_layer(model)?)?;
        match settings.layer_groups {
            None => Ok(layers),
            Some(count) => public_norms(layers.merged_groups(count)?),
        }
    };
    let master = settings.max_grad_norm;
    let policy: Box<dyn Clipping> = match settings.mini_sets.policy {
        BatchPolicyName::Flat => Box::new(FlatClipping::new(master)?),
        BatchPolicyName::Layerwise => Box::new(LayerwiseClipping::enhanced(master, &norms()?)?),
        BatchPolicyName::Zhang => Box::new(LayerwiseClipping::zhang(&norms()?)?),
        BatchPolicyName::Multipliers => {
            Box::new(MultipliedClipping::from_public(master, &norms()?)?)
        }
    };
    decaying(policy, settings.threshold_decay, steps_per_epoch)
}

/// Returns the groups whose public norms the policy follows; `None` if it follows none.
///
/// # Errors
///
/// Returns [`DpError`] if the policy has no thresholds.
pub(super) fn followed(
    settings: &BatchSettings,
    policy: &dyn Clipping,
) -> Result<Option<ParameterGroups>, DpError> {
    match settings.mini_sets.policy {
        BatchPolicyName::Flat => Ok(None),
        _ => Ok(Some(policy.thresholds(0)?.groups().clone())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;
    use burn_dp::PublicSource;

    use super::super::settings::tests::settings;
    use super::*;
    use crate::models::BnLeNet5Config;

    /// The policy, where the norms of the layers are 1, 2, 4 …
    fn policy(line: &str) -> (BatchSettings, Box<dyn Clipping>) {
        let settings = settings(line).unwrap();
        let batch_norm = settings.model.has_batch_norm();
        let config = BnLeNet5Config::new().with_batch_norm(batch_norm);
        let model = config.init(&Device::flex().autodiff());
        let norms = |groups: ParameterGroups| {
            let means = (0..groups.len()).map(|group| 2f64.powi(group as i32)).collect();
            Ok(PublicNorms::from_means(PublicSource::generated("norms"), 1, groups, means)?)
        };
        let clipping = super::policy(&settings, &model, 7, norms).unwrap();
        (settings, clipping)
    }

    fn noise_multiplier(line: &str) -> f64 {
        let (settings, clipping) = policy(line);
        let sets = settings.sets(6400).unwrap();
        settings.plan(&sets, clipping).unwrap().noise_multiplier()
    }

    #[test]
    fn the_default_noise_of_each_layer_equals_the_paper() {
        for (line, groups) in [
            ("", 1),
            ("--policy multipliers", 1),
            ("--model lenet5 --policy multipliers", 1),
            ("--policy layerwise", 8),
            ("--policy zhang", 8),
            ("--policy layerwise --model lenet5", 5),
            ("--policy zhang --model lenet5", 5),
            ("--policy layerwise --layer-groups 3", 3),
            ("--policy zhang --layer-groups 2 --model lenet5", 2),
        ] {
            let (settings, clipping) = policy(line);
            let sets = settings.sets(6400).unwrap();
            let plan = settings.plan(&sets, clipping).unwrap();
            let thresholds = plan.clipping().thresholds(0).unwrap();
            assert_eq!(thresholds.norms().len(), groups, "{line}");
            let noise = thresholds.noise(plan.noise_multiplier(), 1.0).unwrap();
            for (std, norm) in noise.group_stds.iter().zip(thresholds.norms()) {
                // 2 C sigma with sigma = 0.5; the layers of multipliers are in their own units.
                if !line.contains("multipliers") {
                    assert!((std / norm - 2.0 * 0.5).abs() < 1e-9, "{line} {}", std / norm);
                }
            }
            let expected = 1.0 / (groups as f64).sqrt();
            assert!((plan.noise_multiplier() - expected).abs() < 1e-12, "{line}");
        }
        assert_eq!(noise_multiplier("--policy layerwise --noise-multiplier 0.7"), 0.7);
    }

    #[test]
    fn thresholds_decay_after_each_pass_over_the_data() {
        for line in ["", "--policy layerwise", "--policy zhang", "--policy multipliers"] {
            let (_, constant) = policy(line);
            let (_, decaying) = policy(&format!("{line} --threshold-decay 0.5"));
            for (step, factor) in [(0, 1.0), (6, 1.0), (7, 0.5), (20, 0.25)] {
                let norms = |policy: &dyn Clipping| policy.thresholds(step).unwrap().total_norm();
                assert!((norms(&*decaying) / norms(&*constant) - factor).abs() < 1e-12, "{line}");
            }
            assert!(decaying.describe().contains("times 0.5 every 7 steps"), "{line}");
        }
    }

    #[test]
    fn merged_groups_are_followed_as_the_model_trains() {
        let (settings, mut clipping) = policy("--policy layerwise --layer-groups 3");
        let groups = followed(&settings, &*clipping).unwrap().unwrap();
        assert_eq!(groups.len(), 3);
        let source = PublicSource::generated("norms");
        let norms = PublicNorms::from_means(source, 1, groups, vec![1.0, 5.0, 10.0]).unwrap();
        clipping.set_public_norms(&norms).unwrap();
        let thresholds = clipping.thresholds(0).unwrap();
        let ratio = thresholds.norms()[1] / thresholds.norms()[2];
        assert!((ratio - 0.5).abs() < 1e-12, "{ratio}");
        let (settings, flat) = policy("");
        assert_eq!(followed(&settings, &*flat).unwrap(), None);
    }
}
