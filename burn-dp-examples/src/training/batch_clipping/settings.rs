//! Checked settings of batch clipping.

use burn_dp::clipping::Clipping;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
use burn_dp::updates::MiniSets;
use serde::Serialize;

use super::{BatchModelName, BatchPolicyName, MiniSetOptions};
use crate::training::options::{PUBLIC_OPTIONS, as_typed, typed};
use crate::training::{
    Augmentation, EarlierLedgers, Mode, PrivacySettings, TrainError, TrainOptions, checks,
};

/// The noise multiplier of the paper's experiments, over each threshold: σ = 0.5, times two for the
/// sensitivity 2C.
const NOISE_MULTIPLIER: f64 = 1.0;

/// The settings of one training run with mini-sets.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BatchSettings {
    /// Mini-sets and their updates.
    #[serde(flatten)]
    pub mini_sets: MiniSetOptions,
    /// Network to train.
    #[serde(serialize_with = "as_typed")]
    pub model: BatchModelName,
    /// Passes over the data.
    pub epochs: usize,
    /// Learning rate of the first epoch.
    pub lr: f64,
    /// Learning rate of the local steps.
    pub local_lr: f64,
    /// Clipping threshold of the update of a mini-set.
    pub max_grad_norm: f64,
    /// Factor of the thresholds after each pass over the data.
    pub threshold_decay: f64,
    /// Number of groups into which layers are merged.
    pub layer_groups: Option<usize>,
    /// Random copies of the images of a mini-set.
    #[serde(flatten)]
    pub augmentation: Option<Augmentation>,
    /// Budget and noise. Without both, the noise is as in the paper.
    #[serde(flatten)]
    pub privacy: PrivacySettings,
    /// Earlier releases on the same data; the plan of a resumed run compares them.
    #[serde(skip)]
    pub earlier: EarlierLedgers,
    /// Seed of the initial weights and of the membership in mini-sets.
    pub seed: u64,
}

impl TryFrom<&TrainOptions> for BatchSettings {
    type Error = TrainError;

    /// Checks the options.
    fn try_from(options: &TrainOptions) -> Result<Self, TrainError> {
        options.check_mode(&[Mode::Batch])?;
        refuse_foreign(options)?;
        let examples = &options.examples;
        let model = options.model.map(|name| name.second("--model", "individual clipping"));
        let settings = Self {
            mini_sets: options.mini_sets.clone(),
            model: model.transpose()?.unwrap_or(BatchModelName::BnLenet5),
            epochs: examples.epochs.unwrap_or(50),
            lr: examples.lr.unwrap_or(0.025),
            local_lr: options.local_lr.unwrap_or(0.05),
            max_grad_norm: examples.max_grad_norm.unwrap_or(0.2),
            threshold_decay: options.layers.threshold_decay,
            layer_groups: options.layers.layer_groups,
            augmentation: Augmentation::new(&options.augmentation, None)?,
            privacy: PrivacySettings::new(&options.privacy, None, 1e-5)?,
            earlier: EarlierLedgers::read(&options.privacy.earlier_ledger, &options.run.output)?,
            seed: options.data.seed,
        };
        let mini_sets = &settings.mini_sets;
        checks::at_least_one([
            ("--mini-set-size", mini_sets.mini_set_size),
            ("--mini-sets", mini_sets.mini_sets),
            ("--epochs", settings.epochs),
            ("--local-steps", mini_sets.local_steps.unwrap_or(1)),
            ("--layer-groups", settings.layer_groups.unwrap_or(1)),
        ])?;
        checks::countable(settings.epochs)?;
        checks::positive([
            ("--max-grad-norm", settings.max_grad_norm),
            ("--threshold-decay", settings.threshold_decay),
            ("--lr", settings.lr),
            ("--lr-decay", mini_sets.lr_decay),
            ("--local-lr", settings.local_lr),
            ("--sparsify-factor", mini_sets.sparsify_factor),
        ])?;
        if let Some(window @ 0..2) = mini_sets.sparsify {
            let reason = format!("must be at least 2 steps, got {window}");
            return Err(TrainError::option("--sparsify", reason));
        }
        if !settings.needs_public() {
            let choice = format!("with --model {} --policy flat", typed(settings.model));
            let instead = format!("--model {}", typed(settings.model.other()));
            options.given.refuse(&PUBLIC_OPTIONS, &choice, &instead)?;
        }
        Ok(settings)
    }
}

impl BatchSettings {
    /// Returns the settings of `train --clipping batch` without further options: BN-LeNet-5 at the
    /// settings of the paper.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the defaults are impossible.
    pub fn of_paper() -> Result<Self, TrainError> {
        let options = TrainOptions::read(["train", "--clipping", "batch"]);
        let options =
            options.map_err(|error| TrainError::option("--clipping", error.to_string()))?;
        Self::try_from(&options)
    }

    /// Returns whether the network or the policy needs public images.
    pub(super) fn needs_public(&self) -> bool {
        self.has_statistics() || self.mini_sets.policy != BatchPolicyName::Flat
    }

    /// Returns whether the network has running statistics, which come from public images.
    pub(super) fn has_statistics(&self) -> bool {
        self.model.has_batch_norm()
    }

    /// Divides the private images into mini-sets; their membership is public.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a δ or a number of mini-sets that does not fit, and
    /// [`TrainError::Privacy`] for a size that does not fit.
    pub fn sets(&self, images: usize) -> Result<MiniSets, TrainError> {
        self.privacy.check_delta(images, "examples")?;
        let sets = MiniSets::shuffled(images, self.mini_sets.mini_set_size, self.seed)?;
        if self.mini_sets.mini_sets > sets.len() {
            let reason = format!(
                "must be at most the {} mini-sets of {} images, got {}",
                sets.len(),
                self.mini_sets.mini_set_size,
                self.mini_sets.mini_sets
            );
            return Err(TrainError::option("--mini-sets", reason));
        }
        Ok(sets)
    }

    /// Returns the number of steps in a pass over the data.
    pub fn steps_per_epoch(&self, sets: &MiniSets) -> usize {
        sets.len().div_ceil(self.mini_sets.mini_sets)
    }

    /// Returns the plan with a policy.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the noise cannot be calibrated.
    pub fn plan(
        &self,
        sets: &MiniSets,
        clipping: Box<dyn Clipping>,
    ) -> Result<PrivacyPlan, TrainError> {
        let mut privacy = self.privacy;
        if (privacy.noise_multiplier, privacy.epsilon) == (None, None) {
            // The paper has this noise at each threshold; the release as a whole costs more.
            let thresholds = clipping.thresholds(0)?.norms().len();
            privacy.noise_multiplier = Some(NOISE_MULTIPLIER / (thresholds as f64).sqrt());
        }
        let scheme = if self.mini_sets.poisson {
            SamplingScheme::Poisson
        } else {
            SamplingScheme::FixedSize
        };
        let config = PrivacyPlanConfig::for_mini_sets(sets, self.mini_sets.mini_sets as f64)
            .with_sampling(scheme)
            .with_clipping(clipping);
        let config = self.earlier.before(config);
        privacy.plan(config, (self.epochs * self.steps_per_epoch(sets)) as u64)
    }
}

/// Checks that no given option is ignored because of another choice.
fn refuse_foreign(options: &TrainOptions) -> Result<(), TrainError> {
    let given = &options.given;
    let mini_sets = &options.mini_sets;
    if mini_sets.local_steps.is_none() {
        let local = ["--local-lr", "--local-optimizer"];
        given.refuse(&local, "without --local-steps", "--local-steps")?;
    }
    if mini_sets.sparsify.is_none() {
        given.refuse(&["--sparsify-factor"], "without --sparsify", "--sparsify")?;
    }
    let choice = format!("with --policy {}", typed(mini_sets.policy));
    match mini_sets.policy {
        BatchPolicyName::Flat => given.refuse(&["--layer-groups"], &choice, "--policy layerwise"),
        BatchPolicyName::Zhang => given.refuse(&["--max-grad-norm"], &choice, "--policy layerwise"),
        BatchPolicyName::Layerwise | BatchPolicyName::Multipliers => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp::clipping::FlatClipping;
    use burn_dp_accountant::UnitOfPrivacy;
    use std::collections::BTreeMap;

    use super::*;
    use crate::training::compared::Compared;
    use crate::training::settings_text::compared;

    fn options(line: &str) -> TrainOptions {
        let words = ["train", "--clipping", "batch"].into_iter().chain(line.split_whitespace());
        TrainOptions::read(words).unwrap()
    }

    pub(in super::super) fn settings(line: &str) -> Result<BatchSettings, TrainError> {
        BatchSettings::try_from(&options(line))
    }

    fn flat(settings: &BatchSettings) -> Box<dyn Clipping> {
        Box::new(FlatClipping::new(settings.max_grad_norm).unwrap())
    }

    #[test]
    fn without_options_the_settings_are_those_of_the_paper() {
        let settings = settings("").unwrap();
        assert_eq!((settings.mini_sets.mini_set_size, settings.mini_sets.mini_sets), (64, 1));
        let lr_decay = settings.mini_sets.lr_decay;
        assert_eq!((settings.lr, lr_decay, settings.epochs), (0.025, 0.9, 50));
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
            ("--sparsify 1", "--sparsify must be at least 2 steps, got 1"),
            ("--noise-multiplier 0", "--noise-multiplier must be a number greater than 0"),
            ("--augmentation 0", "--augmentation must be at least 1, got 0"),
            ("--augmentation 1 --crop 28", "--crop must be less than 28 pixels"),
            ("--mirror", "--mirror has no meaning without --augmentation"),
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
            ("--local-optimizer adam", "--local-optimizer has no meaning without --local-steps"),
            ("--sparsify-factor 3", "--sparsify-factor has no meaning without --sparsify"),
            (
                "--policy zhang --max-grad-norm 1",
                "--max-grad-norm has no meaning with --policy zhang; leave it out, or give",
            ),
            ("--layer-groups 3", "--layer-groups has no meaning with --policy flat"),
            (
                "--model lenet5 --public-size 9",
                "--public-size has no meaning with --model lenet5 --policy flat; leave it out",
            ),
            (
                "--model resnet18 --public-size 9",
                "--policy flat; leave it out, or give --model bn-resnet18",
            ),
        ] {
            let error = settings(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for line in [
            "--local-steps 2 --local-lr 0.1 --local-optimizer adam",
            "--policy multipliers --layer-groups 3",
        ] {
            assert!(settings(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_resumed_run_is_compared_in_every_setting() {
        let compared = |line: &str| -> BTreeMap<String, String> {
            let TrainOptions { data, run, .. } = &options(line);
            let settings = &settings(line).unwrap();
            compared(&Compared { data: Some(data), settings, backend: run.backend }).unwrap()
        };
        let usual = compared("--policy layerwise");
        for option in [
            "--train-size 9",
            "--public-data digits",
            "--public-size 9",
            "--model lenet5",
            "--mini-set-size 9",
            "--mini-sets 9",
            "--local-steps 9",
            "--max-grad-norm 9",
            "--threshold-decay 0.9",
            "--layer-groups 2",
            "--sparsify 9",
            "--noise-multiplier 9",
            "--epsilon 9",
            "--delta 1e-9",
            "--epochs 9",
            "--lr 9",
            "--lr-decay 0.8",
            "--backend ndarray",
            "--seed 9",
            "--insecure-seed 9",
            "--augmentation 9",
        ] {
            let (name, value) = option.split_once(' ').unwrap();
            let changed = compared(&format!("--policy layerwise {option}"));
            assert_eq!(changed.get(name).map(String::as_str), Some(value));
            assert_ne!(usual.get(name), changed.get(name));
        }
        assert_ne!(compared(""), usual);
        let moved = compared("--augmentation 1 --crop 3");
        assert_eq!(moved.get("--crop").map(String::as_str), Some("3"));
        assert_ne!(compared("--augmentation 1 --crop 3 --mirror"), moved);
        assert_ne!(compared("--poisson"), compared(""));
    }
}
