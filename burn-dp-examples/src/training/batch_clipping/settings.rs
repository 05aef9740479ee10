//! What the options mean: checked before anything is written.

use std::collections::BTreeMap;

use burn_dp::clipping::Clipping;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
use burn_dp::updates::MiniSets;

use super::{BatchModelName, BatchOptions, BatchPolicyName, DataOptions};
use crate::training::noise::Noise;
use crate::training::options::typed;
use crate::training::{TrainError, checks};

/// The noise multiplier of the paper's experiments, over each threshold: σ = 0.5, times two for the
/// sensitivity 2C.
const NOISE_MULTIPLIER: f64 = 1.0;

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
    /// Factor of the thresholds after each pass over the data.
    pub(crate) threshold_decay: f64,
    /// Number of groups that layers are merged into.
    pub(crate) layer_groups: Option<usize>,
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
        refuse_foreign(options)?;
        checks::at_least_one([
            ("--mini-set-size", options.mini_set_size),
            ("--mini-sets", options.mini_sets),
            ("--epochs", options.epochs),
            ("--local-steps", options.local_steps.unwrap_or(1)),
            ("--layer-groups", options.layer_groups.unwrap_or(1)),
        ])?;
        checks::countable(options.epochs)?;
        let local_lr = options.local_lr.unwrap_or(0.05);
        let max_grad_norm = options.max_grad_norm.unwrap_or(0.2);
        let threshold_decay = options.threshold_decay.unwrap_or(1.0);
        checks::positive([
            ("--max-grad-norm", max_grad_norm),
            ("--threshold-decay", threshold_decay),
            ("--noise-multiplier", options.noise_multiplier.unwrap_or(1.0)),
            ("--epsilon", options.epsilon.unwrap_or(1.0)),
            ("--lr", options.lr),
            ("--lr-decay", options.lr_decay),
            ("--local-lr", local_lr),
        ])?;
        Ok(Self {
            model: options.model,
            policy: options.policy,
            mini_set_size: options.mini_set_size,
            mini_sets: options.mini_sets,
            poisson: options.poisson,
            local: options.local_steps.map(|steps| (steps, local_lr)),
            max_grad_norm,
            threshold_decay,
            layer_groups: options.layer_groups,
            noise_multiplier: options.noise_multiplier,
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
        let DataOptions { dataset, train_size, public_size, .. } = options.data;
        // Without `..`, so that no setting is left out.
        let Self {
            model,
            policy,
            mini_set_size,
            mini_sets,
            poisson,
            local,
            max_grad_norm,
            threshold_decay,
            layer_groups,
            noise_multiplier,
            epsilon,
            delta,
            epochs,
            lr,
            lr_decay,
            seed,
            insecure_seed,
        } = *self;
        let count = |size: Option<usize>| size.map(|size| size.to_string());
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let settings = [
            ("the data set", Some(typed(dataset))),
            ("--train-size", count(train_size)),
            ("--public-size", count(public_size)),
            ("--model", Some(typed(model))),
            ("--policy", Some(typed(policy))),
            ("--mini-set-size", Some(mini_set_size.to_string())),
            ("--mini-sets", Some(mini_sets.to_string())),
            ("--poisson", Some(poisson.to_string())),
            ("--local-steps", count(local.map(|(steps, _)| steps))),
            ("--local-lr", number(local.map(|(_, lr)| lr))),
            ("--max-grad-norm", number(Some(max_grad_norm))),
            ("--threshold-decay", number(Some(threshold_decay))),
            ("--layer-groups", count(layer_groups)),
            ("--noise-multiplier", number(noise_multiplier)),
            ("--epsilon", number(epsilon)),
            ("--delta", Some(format!("{delta:e}"))),
            ("--epochs", Some(epochs.to_string())),
            ("--lr", number(Some(lr))),
            ("--lr-decay", number(Some(lr_decay))),
            ("--backend", Some(typed(options.backend))),
            ("--seed", Some(seed.to_string())),
            ("--insecure-seed", insecure_seed.map(|seed| seed.to_string())),
        ];
        let given = settings.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.map(|(name, value)| (name.to_string(), value)).collect()
    }

    /// The mini-sets of so many private images; their membership is public.
    ///
    /// # Errors
    ///
    /// For a δ or a size that does not fit.
    pub(crate) fn sets(&self, images: usize) -> Result<MiniSets, TrainError> {
        self.noise(None).check_delta(images, "examples")?;
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

    /// The plan with that policy.
    ///
    /// # Errors
    ///
    /// Those of the calibration.
    pub(crate) fn plan(
        &self,
        sets: &MiniSets,
        clipping: Box<dyn Clipping>,
    ) -> Result<PrivacyPlan, TrainError> {
        let noise_multiplier = match (self.noise_multiplier, self.epsilon) {
            (None, None) => {
                // The paper has its noise at each threshold; the release as a whole costs more.
                let thresholds = clipping.thresholds(0)?.norms().len();
                Some(NOISE_MULTIPLIER / (thresholds as f64).sqrt())
            }
            (given, _) => given,
        };
        let scheme = if self.poisson { SamplingScheme::Poisson } else { SamplingScheme::FixedSize };
        let config = PrivacyPlanConfig::for_mini_sets(sets, self.mini_sets as f64)
            .with_sampling(scheme)
            .with_steps((self.epochs * self.steps_per_epoch(sets)) as u64)
            .with_clipping(clipping);
        Ok(self.noise(noise_multiplier).apply(config)?.init()?)
    }

    fn noise(&self, noise_multiplier: Option<f64>) -> Noise {
        Noise {
            epsilon: self.epsilon,
            delta: self.delta,
            noise_multiplier,
            insecure_seed: self.insecure_seed,
        }
    }
}

/// Refuses options that the choices beside them would ignore.
fn refuse_foreign(options: &BatchOptions) -> Result<(), TrainError> {
    if options.local_steps.is_none() {
        let given = [("--local-lr", options.local_lr.is_some())];
        checks::refuse_foreign(&given, "without --local-steps", "--local-steps")?;
    }
    let choice = format!("with --policy {}", typed(options.policy));
    match options.policy {
        BatchPolicyName::Flat => {
            let given = [("--layer-groups", options.layer_groups.is_some())];
            checks::refuse_foreign(&given, &choice, "--policy layerwise")
        }
        BatchPolicyName::Zhang => {
            let given = [("--max-grad-norm", options.max_grad_norm.is_some())];
            checks::refuse_foreign(&given, &choice, "--policy layerwise")
        }
        BatchPolicyName::Layerwise | BatchPolicyName::Multipliers => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp::clipping::FlatClipping;
    use burn_dp_accountant::UnitOfPrivacy;
    use clap::Parser;

    use super::*;

    fn options(line: &str) -> BatchOptions {
        let words = ["train", "--clipping", "batch"].into_iter().chain(line.split_whitespace());
        BatchOptions::try_parse_from(words).unwrap()
    }

    pub(in super::super) fn settings(line: &str) -> Result<BatchSettings, TrainError> {
        BatchSettings::new(&options(line))
    }

    fn flat(settings: &BatchSettings) -> Box<dyn Clipping> {
        Box::new(FlatClipping::new(settings.max_grad_norm).unwrap())
    }

    #[test]
    fn without_options_the_settings_are_those_of_the_paper() {
        let settings = settings("").unwrap();
        assert_eq!((settings.mini_set_size, settings.mini_sets), (64, 1));
        assert_eq!((settings.lr, settings.lr_decay, settings.epochs), (0.025, 0.9, 50));
        let sets = settings.sets(54_000).unwrap();
        assert_eq!((sets.len(), settings.steps_per_epoch(&sets)), (844, 844));
        let plan = settings.plan(&sets, flat(&settings)).unwrap();
        // 2 C sigma with C = 0.2 and sigma = 0.5.
        assert_eq!(plan.noise_multiplier() * 0.2, 2.0 * 0.2 * 0.5);
        assert_eq!(plan.unit(), &UnitOfPrivacy::Example);
    }

    #[test]
    fn poisson_sampling_protects_a_mini_set() {
        let settings = settings("--poisson").unwrap();
        let sets = settings.sets(6400).unwrap();
        let plan = settings.plan(&sets, flat(&settings)).unwrap();
        assert_eq!(plan.unit(), &UnitOfPrivacy::MiniSet);
    }

    #[test]
    fn impossible_numbers_are_refused_by_the_name_of_the_option() {
        for (line, expected) in [
            ("--mini-set-size 0", "--mini-set-size must be at least 1"),
            ("--lr 0", "--lr must be a number greater than 0, got 0"),
            ("--threshold-decay 0", "--threshold-decay must be a number greater than 0, got 0"),
            ("--policy zhang --layer-groups 0", "--layer-groups must be at least 1, got 0"),
            ("--noise-multiplier 0", "--noise-multiplier must be a number greater than 0"),
        ] {
            let error = settings(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = settings("--mini-sets 200").unwrap().sets(6400).unwrap_err().to_string();
        assert!(error.contains("--mini-sets must be at most the 100"), "{error}");
        let wide = settings("--delta 0.1").unwrap();
        let error = wide.sets(6400).unwrap_err().to_string();
        assert!(
            error.contains("--delta must be greater than 0 and less than 1 / examples"),
            "{error}"
        );
    }

    #[test]
    fn options_that_another_choice_ignores_are_refused_by_name() {
        for (line, expected) in [
            (
                "--local-lr 0.1",
                "--local-lr has no meaning without --local-steps; leave it out, or give",
            ),
            (
                "--policy zhang --max-grad-norm 1",
                "--max-grad-norm has no meaning with --policy zhang; leave it out, or give --policy",
            ),
            ("--layer-groups 3", "--layer-groups has no meaning with --policy flat"),
        ] {
            let error = settings(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for line in ["--local-steps 2 --local-lr 0.1", "--policy multipliers --layer-groups 3"] {
            assert!(settings(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_resumed_run_is_compared_in_every_setting_by_the_name_of_the_option() {
        let compared = |line: &str| {
            let options = options(line);
            BatchSettings::new(&options).unwrap().compared(&options)
        };
        let usual = compared("--policy layerwise");
        for option in [
            "--train-size 9",
            "--public-size 9",
            "--model lenet5",
            "--mini-set-size 9",
            "--mini-sets 9",
            "--local-steps 9",
            "--max-grad-norm 9",
            "--threshold-decay 0.9",
            "--layer-groups 2",
            "--noise-multiplier 9",
            "--epsilon 9",
            "--delta 1e-9",
            "--epochs 9",
            "--lr 9",
            "--lr-decay 0.8",
            "--backend ndarray",
            "--seed 9",
            "--insecure-seed 9",
        ] {
            let (name, value) = option.split_once(' ').unwrap();
            let changed = compared(&format!("--policy layerwise {option}"));
            assert_eq!(changed.get(name).map(String::as_str), Some(value));
            assert_ne!(usual.get(name), changed.get(name));
        }
        assert_ne!(compared(""), usual);
        assert_ne!(compared("--poisson"), compared(""));
    }
}
