//! What the options mean: checked before anything is written.

use std::collections::BTreeMap;

use burn_dp::clipping::Clipping;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
use burn_dp::units::MiniSets;

use super::{BatchModelName, BatchOptions, BatchPolicyName, DataOptions};
use crate::training::TrainError;
use crate::training::noise::Noise;
use crate::training::options::typed;

/// The noise multiplier of the paper's experiments: σ = 0.5, times two for the sensitivity 2C.
const NOISE_MULTIPLIER: f64 = 1.0;

/// Layers of BN-LeNet-5 that are clipped apart: three convolutions, three BatchNorms, two linear.
pub(crate) const LAYERS: usize = 8;

/// The numbers of one training with mini-sets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BatchSettings {
    pub(crate) model: BatchModelName,
    pub(crate) policy: BatchPolicyName,
    pub(crate) mini_set_size: usize,
    pub(crate) mini_sets: usize,
    pub(crate) poisson: bool,
    pub(crate) local: Option<(usize, f64)>,
    pub(crate) max_grad_norm: f64,
    pub(crate) noise_multiplier: Option<f64>,
    pub(crate) epsilon: Option<f64>,
    pub(crate) delta: f64,
    pub(crate) epochs: usize,
    pub(crate) lr: f64,
    pub(crate) lr_decay: f64,
    pub(crate) seed: u64,
    pub(crate) insecure_seed: Option<u64>,
}

impl BatchSettings {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// [`TrainError::Option`] naming the option, the value and the way out.
    pub(super) fn new(options: &BatchOptions) -> Result<Self, TrainError> {
        for (name, value) in [
            ("--mini-set-size", options.mini_set_size),
            ("--mini-sets", options.mini_sets),
            ("--epochs", options.epochs),
            ("--local-steps", options.local_steps.unwrap_or(1)),
            ("--public-size", options.data.public_size.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(TrainError::option(name, "must be at least 1, got 0"));
            }
        }
        for (name, value) in [
            ("--max-grad-norm", options.max_grad_norm),
            ("--noise-multiplier", options.noise_multiplier.unwrap_or(1.0)),
            ("--epsilon", options.epsilon.unwrap_or(1.0)),
            ("--lr", options.lr),
            ("--lr-decay", options.lr_decay),
            ("--local-lr", options.local_lr),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                let reason = format!("must be a number greater than 0, got {value}");
                return Err(TrainError::option(name, reason));
            }
        }
        let noise_multiplier = match (options.noise_multiplier, options.epsilon) {
            (None, None) if options.policy.splits_the_noise() => {
                // The paper has its noise in each layer; the release as a whole costs more.
                Some(NOISE_MULTIPLIER / (LAYERS as f64).sqrt())
            }
            (None, None) => Some(NOISE_MULTIPLIER),
            (given, _) => given,
        };
        Ok(Self {
            model: options.model,
            policy: options.policy,
            mini_set_size: options.mini_set_size,
            mini_sets: options.mini_sets,
            poisson: options.poisson,
            local: options.local_steps.map(|steps| (steps, options.local_lr)),
            max_grad_norm: options.max_grad_norm,
            noise_multiplier,
            epsilon: options.epsilon,
            delta: options.delta,
            epochs: options.epochs,
            lr: options.lr,
            lr_decay: options.lr_decay,
            seed: options.data.seed,
            insecure_seed: options.insecure_seed,
        })
    }

    /// The settings that the steps depend on: a resumed run must share them.
    pub(super) fn compared(&self, options: &BatchOptions) -> BTreeMap<String, String> {
        let DataOptions { dataset, train_size, public_size, .. } = &options.data;
        BTreeMap::from([
            ("the data set".into(), typed(*dataset)),
            ("--train-size".into(), format!("{train_size:?}")),
            ("--public-size".into(), format!("{public_size:?}")),
            ("--backend".into(), typed(options.backend)),
            ("the settings".into(), format!("{self:?}")),
        ])
    }

    /// The mini-sets of so many private images; their membership is public.
    ///
    /// # Errors
    ///
    /// For a size that does not fit.
    pub(crate) fn sets(&self, images: usize) -> Result<MiniSets, TrainError> {
        let sets = MiniSets::shuffled(images, self.mini_set_size, self.seed)?;
        if self.mini_sets > sets.len() {
            let reason = format!(
                "must be at most the {} mini-sets of {} images, got {}",
                sets.len(),
                self.mini_set_size,
                self.mini_sets
            );
            return Err(TrainError::option("--mini-sets", reason));
        }
        Ok(sets)
    }

    /// Steps in a pass over the data.
    pub(crate) fn steps_per_epoch(&self, sets: &MiniSets) -> usize {
        sets.len().div_ceil(self.mini_sets)
    }

    /// The plan.
    ///
    /// # Arguments
    ///
    /// - `clipping`: the policy; without one, the whole update is clipped
    ///
    /// # Errors
    ///
    /// For a δ that does not fit, and those of the calibration.
    pub(crate) fn plan(
        &self,
        sets: &MiniSets,
        clipping: Option<Box<dyn Clipping>>,
    ) -> Result<PrivacyPlan, TrainError> {
        let noise = Noise {
            epsilon: self.epsilon,
            delta: self.delta,
            noise_multiplier: self.noise_multiplier,
            insecure_seed: self.insecure_seed,
        };
        noise.check_delta(sets.examples(), "examples")?;
        let scheme = if self.poisson { SamplingScheme::Poisson } else { SamplingScheme::FixedSize };
        let config = PrivacyPlanConfig::for_mini_sets(sets, self.mini_sets as f64)
            .with_sampling(scheme)
            .with_steps((self.epochs * self.steps_per_epoch(sets)) as u64);
        let config = match clipping {
            Some(clipping) => config.with_clipping(clipping),
            None => config.with_max_grad_norm(self.max_grad_norm),
        };
        Ok(noise.apply(config)?.init()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp_accountant::UnitOfPrivacy;
    use clap::Parser;

    use super::*;

    fn settings(line: &str) -> Result<BatchSettings, TrainError> {
        let words = ["train", "--clipping", "batch"].into_iter().chain(line.split_whitespace());
        BatchSettings::new(&BatchOptions::try_parse_from(words).unwrap())
    }

    #[test]
    fn without_options_the_settings_are_those_of_the_paper() {
        let settings = settings("").unwrap();
        assert_eq!((settings.mini_set_size, settings.mini_sets), (64, 1));
        assert_eq!((settings.lr, settings.lr_decay, settings.epochs), (0.025, 0.9, 50));
        let sets = settings.sets(54_000).unwrap();
        assert_eq!((sets.len(), settings.steps_per_epoch(&sets)), (844, 844));
        let plan = settings.plan(&sets, None).unwrap();
        // 2 C sigma with C = 0.2 and sigma = 0.5.
        assert_eq!(plan.noise_multiplier() * 0.2, 2.0 * 0.2 * 0.5);
        assert_eq!(plan.unit(), &UnitOfPrivacy::Example);
        let layerwise = self::settings("--policy layerwise").unwrap();
        assert_eq!(layerwise.noise_multiplier, Some(1.0 / 8f64.sqrt()));
    }

    #[test]
    fn poisson_sampling_protects_a_mini_set() {
        let settings = settings("--poisson").unwrap();
        let sets = settings.sets(6400).unwrap();
        assert_eq!(settings.plan(&sets, None).unwrap().unit(), &UnitOfPrivacy::MiniSet);
    }

    #[test]
    fn impossible_numbers_are_refused_by_the_name_of_the_option() {
        for (line, expected) in [
            ("--mini-set-size 0", "--mini-set-size must be at least 1"),
            ("--lr 0", "--lr must be a number greater than 0, got 0"),
            ("--noise-multiplier 0", "--noise-multiplier must be a number greater than 0"),
        ] {
            let error = settings(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = settings("--mini-sets 200").unwrap().sets(6400).unwrap_err().to_string();
        assert!(error.contains("--mini-sets must be at most the 100"), "{error}");
        let wide = settings("--delta 0.1").unwrap();
        let error = wide.plan(&wide.sets(6400).unwrap(), None).unwrap_err().to_string();
        assert!(
            error.contains("--delta must be greater than 0 and less than 1 / examples"),
            "{error}"
        );
    }
}
