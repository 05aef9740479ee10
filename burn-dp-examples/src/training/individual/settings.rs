//! Turns options into settings that a run can start with.
//!
//! Everything is checked before anything is written: first the options that need no data
//! ([`IndividualSettings::new`]), then the ones that depend on the size of the data
//! ([`IndividualSettings::fit`]).
//!
//! Length: one check for each option.

use std::path::{Path, PathBuf};

use burn::data::dataloader::batcher::Batcher;
use burn_dp::grads::{DeviceCosts, PrivateBackward};
use burn_dp::optim::WeightAverage;
use burn_dp::sampling::AugmentationBatcher;
use burn_dp_accountant::correlated_noise::Strategy;
use serde::Serialize;

use super::recipe::{self, Recipe};
use super::{ClippingSettings, InputSettings, ScheduleName};
use crate::data::{Batch, Encoder};
use crate::models::ModelName;
use crate::training::checkpoints::Start;
use crate::training::loading::DataOptions;
use crate::training::options::{BackendName, OptimizerName, Precision, as_typed};
use crate::training::output::Output;
use crate::training::sampling::SamplingSettings;
use crate::training::{
    EarlierLedgers, Mode, PrivacySettings, TrainError, TrainOptions, checks, public_data,
};

/// Checked settings of a run. Their serialized form contains what a resumed run must share, by
/// option.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct IndividualSettings {
    /// The data.
    #[serde(flatten)]
    pub data: DataOptions,
    /// Network to train.
    #[serde(serialize_with = "as_typed")]
    pub model: ModelName,
    /// The input of the network.
    #[serde(flatten)]
    pub inputs: InputSettings,
    /// Backend to train on.
    #[serde(serialize_with = "as_typed")]
    pub backend: BackendName,
    /// Requested privacy; nothing for ordinary training.
    #[serde(flatten)]
    pub private: Option<PrivateSettings>,
    /// Earlier releases on the same data; the plan of a resumed run compares them.
    #[serde(skip)]
    pub earlier: EarlierLedgers,
    /// The strategy that correlates the noise of the steps.
    pub correlated_noise: Option<Strategy>,
    /// Expected size of a logical batch, unless the number of bins is given.
    pub batch_size: usize,
    /// Maximum number of examples in memory at once.
    pub physical_batch_size: usize,
    /// Precision of the forward and backward passes.
    #[serde(serialize_with = "as_typed")]
    pub precision: Precision,
    /// Costs of the device, if they are not the default.
    pub device_costs: Option<DeviceCosts>,
    /// Length of the training.
    #[serde(flatten)]
    pub length: Length,
    /// Rule that turns gradients into updates.
    #[serde(serialize_with = "as_typed")]
    pub optimizer: OptimizerName,
    /// Learning rate of the first step.
    pub lr: f64,
    /// How the learning rate changes.
    #[serde(serialize_with = "as_typed")]
    pub schedule: ScheduleName,
    /// Momentum of sgd.
    pub momentum: f64,
    /// Decay of the average of the weights, if there is one.
    pub ema_decay: Option<f64>,
    /// Where the run starts.
    #[serde(skip)]
    pub start: Start,
    #[serde(skip)]
    pub(super) output: Output,
}

/// The requested privacy of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PrivateSettings {
    /// Budget and noise.
    #[serde(flatten)]
    pub privacy: PrivacySettings,
    /// Clipping threshold of each example's gradient.
    pub max_grad_norm: f64,
    /// The clipping policy.
    #[serde(serialize_with = "as_debug")]
    pub clipping: ClippingSettings,
    /// How the examples of a step are drawn.
    #[serde(flatten)]
    pub sampling: SamplingSettings,
}

/// The length of a training run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// Expected passes over the data.
    Epochs(usize),
    /// Steps.
    Steps(usize),
}

impl IndividualSettings {
    /// Checks the options and fills the gaps from the recipe.
    ///
    /// # Arguments
    ///
    /// - `data_dir`: the folder of the data where the options name none
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option that is impossible for any data.
    pub fn new(options: TrainOptions, data_dir: Option<PathBuf>) -> Result<Self, TrainError> {
        options.check_mode(&[Mode::Individual, Mode::Ordinary])?;
        let TrainOptions { data, inputs, augmentation, examples, run, given, .. } = &options;
        let training = &options.individual;
        let is_private = options.mode() == Mode::Individual;
        if !is_private && run.resume {
            let reason = "has no meaning together with --non-private; leave one of them out";
            return Err(TrainError::option("--resume", reason));
        }
        if !run.resume {
            given.refuse(&["--skip-lost-steps"], "without --resume", "--resume")?;
        }
        let default = recipe::model(data.dataset, inputs.scattering);
        let model = options.model.map(|model| model.first("--model", "--clipping batch"));
        let model = model.transpose()?.unwrap_or(default);
        let recipe = Recipe::of(data.dataset, model, is_private);
        let inputs = InputSettings::new(inputs.clone(), augmentation, data.dataset, model)?;
        let private = is_private.then(|| private(&options, &recipe)).transpose()?;
        let optimizer = training.optimizer.unwrap_or(recipe.optimizer);
        if let (Some(momentum), OptimizerName::Adam) = (training.momentum, optimizer) {
            let reason = format!("{momentum} is for --optimizer sgd; leave it out for adam");
            return Err(TrainError::option("--momentum", reason));
        }
        let settings = Self {
            model,
            inputs,
            backend: run.backend,
            private,
            earlier: EarlierLedgers::read(&options.privacy.earlier_ledger, &run.output)?,
            correlated_noise: options.sampling.strategy()?,
            batch_size: training.batch_size.unwrap_or(recipe.batch_size),
            physical_batch_size: training
                .physical_batch_size
                .unwrap_or(recipe::PHYSICAL_BATCH_SIZE),
            precision: training.precision.unwrap_or_default(),
            device_costs: training.device_costs.as_deref().map(device_costs).transpose()?,
            length: length(&options, recipe.epochs)?,
            optimizer,
            lr: examples.lr.unwrap_or(recipe.lr),
            schedule: training.schedule.unwrap_or(recipe.schedule),
            momentum: training.momentum.unwrap_or(recipe.momentum),
            ema_decay: training.ema_decay,
            start: match training.skip_lost_steps {
                true => Start::SkipLostSteps,
                false => run.start(),
            },
            output: Output::new(run)?,
            data: options.data.checked(data_dir)?,
        };
        if settings.needs_public() {
            let instead = "--clipping per-layer";
            public_data::check(&settings.data, "this clipping policy", instead)?;
        }
        checks::at_least_one([
            ("--batch-size", settings.batch_size),
            ("--physical-batch-size", settings.physical_batch_size),
        ])?;
        checks::positive([("--lr", settings.lr)])?;
        // Parameters are in single precision.
        let is_finite = |lr: f64| (lr as f32).is_finite();
        checks::in_range([("--lr", settings.lr)], is_finite, "below 3.4e38")?;
        let decay = settings.ema_decay.map(|decay| ("--ema-decay", decay));
        checks::below_one([("--momentum", settings.momentum)].into_iter().chain(decay))?;
        Ok(settings)
    }

    /// Returns the number of copies of each example.
    pub(super) fn copies(&self) -> usize {
        self.inputs.augmentation.map_or(1, |augmentation| augmentation.copies)
    }

    /// Returns the batcher of the training, which repeats each example once per augmentation.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if there are no copies.
    pub(super) fn augmented<E: Encoder>(
        &self,
        encoder: &E,
    ) -> Result<impl Batcher<E::Item, Batch<E::Inputs>> + use<E>, TrainError> {
        let copy = |item: &E::Item, _| item.clone();
        Ok(AugmentationBatcher::new(encoder.clone(), self.copies(), copy)?)
    }

    /// Returns whether the clipping policy needs public examples.
    pub(super) fn needs_public(&self) -> bool {
        self.private.is_some_and(|private| private.clipping.needs_public())
    }

    /// Checks the settings against the number of examples to train on.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a batch or a δ that does not fit the data.
    pub fn fit(&self, train_items: usize) -> Result<(), TrainError> {
        let has_bins = self.private.is_some_and(|private| private.sampling.bins.is_some());
        if self.batch_size > train_items && !has_bins {
            let reason = format!(
                "must be at most the {train_items} training examples, got {}; give a smaller one",
                self.batch_size
            );
            return Err(TrainError::option("--batch-size", reason));
        }
        let Some(private) = self.private else { return Ok(()) };
        private.sampling.check_units(train_items, self.batch_size, "training examples")?;
        private.privacy.check_delta(train_items, "examples")
    }

    /// Returns the options of the private backward pass.
    pub(super) fn backward(&self) -> PrivateBackward {
        PrivateBackward::new()
            .with_group_size(self.copies())
            .with_device_costs(self.device_costs.unwrap_or_default())
    }

    /// Returns the number of steps in a pass over the data.
    pub fn steps_per_epoch(&self, train_items: usize) -> usize {
        match self.private {
            Some(private) => private.sampling.steps_per_epoch(train_items, self.batch_size),
            None => train_items.div_ceil(self.batch_size),
        }
    }

    /// Returns the expected number of examples in a step, rounded.
    pub(super) fn mean_batch(&self, train_items: usize) -> usize {
        let mean = |private: PrivateSettings| {
            private.sampling.mean_batch(train_items, self.batch_size).round() as usize
        };
        self.private.map_or(self.batch_size, mean)
    }

    /// Returns the number of steps of the whole training.
    pub fn steps(&self, train_items: usize) -> usize {
        match self.length {
            Length::Epochs(epochs) => epochs * self.steps_per_epoch(train_items),
            Length::Steps(steps) => steps,
        }
    }

    /// Returns the learning rate of a step of a training of `steps` steps, counted from 0.
    pub fn lr_of_step(&self, step: usize, steps: usize) -> f64 {
        self.lr * self.schedule.factor(step, steps)
    }

    /// Returns the requested average of the weights, before the first step.
    pub(super) fn weight_average(&self) -> Result<Option<WeightAverage>, TrainError> {
        Ok(self.ema_decay.map(WeightAverage::new).transpose()?)
    }
}

/// Reads the costs of a device.
fn device_costs(path: &Path) -> Result<DeviceCosts, TrainError> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let costs = text.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()));
    costs.map_err(|reason| {
        let path = path.display();
        let reason = format!(
            "{path} cannot be read: {reason}; measure the costs with `cargo xtask bench \
             device-costs --json {path}`"
        );
        TrainError::option("--device-costs", reason)
    })
}

/// Serializes a value as its debug text.
fn as_debug<T: std::fmt::Debug, S: serde::Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{value:?}"))
}

fn private(options: &TrainOptions, recipe: &Recipe) -> Result<PrivateSettings, TrainError> {
    let privacy = PrivacySettings::new(&options.privacy, Some(recipe::EPSILON), recipe::DELTA)?;
    let clipping = ClippingSettings::new(options)?;
    let default = clipping.default_norm(recipe.max_grad_norm);
    let max_grad_norm = options.examples.max_grad_norm.unwrap_or(default);
    checks::positive([("--max-grad-norm", max_grad_norm)])?;
    let sampling = options.sampling.check(&options.given, "--batch-size")?;
    sampling.check_group(privacy.group)?;
    Ok(PrivateSettings { privacy, max_grad_norm, clipping, sampling })
}

fn length(options: &TrainOptions, default_epochs: usize) -> Result<Length, TrainError> {
    match (options.examples.epochs, options.individual.steps) {
        (Some(epochs), Some(steps)) => {
            let reason = format!("{steps} and --epochs {epochs} contradict; leave one of them out");
            Err(TrainError::option("--steps", reason))
        }
        (None, Some(steps)) => {
            checks::at_least_one([("--steps", steps)])?;
            Ok(Length::Steps(steps))
        }
        (epochs, None) => {
            let epochs = epochs.unwrap_or(default_epochs);
            checks::at_least_one([("--epochs", epochs)])?;
            checks::countable(epochs)?;
            Ok(Length::Epochs(epochs))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::training::options::DatasetName;

    fn settings(line: &str) -> Result<IndividualSettings, TrainError> {
        let words = std::iter::once("train").chain(line.split_whitespace());
        IndividualSettings::new(TrainOptions::read(words).unwrap(), None)
    }

    fn private(line: &str) -> PrivateSettings {
        settings(line).unwrap().private.unwrap()
    }

    fn error(line: &str) -> String {
        settings(line).unwrap_err().to_string()
    }

    #[test]
    fn without_options_the_recipe_holds() {
        let settings = settings("").unwrap();
        let recipe = Recipe::of(DatasetName::Digits, ModelName::Cnn, true);
        assert_eq!(settings.batch_size, recipe.batch_size);
        assert_eq!(settings.length, Length::Epochs(recipe.epochs));
        let privacy = settings.private.unwrap().privacy;
        assert_eq!((privacy.epsilon, privacy.noise_multiplier), (Some(3.0), None));
        assert_eq!(privacy.insecure_seed, None);
        assert_eq!(privacy.delta, 1e-5);
    }

    #[test]
    fn a_group_with_draws_that_are_cut_is_refused_before_the_run() {
        let text = error("--group 2 --sampling truncated-poisson");
        assert!(text.starts_with("--group is not possible with --sampling trunc"), "{text}");
        assert!(settings("--group 1 --sampling truncated-poisson").is_ok());
        assert!(settings("--group 2 --sampling cyclic-poisson").is_ok());
    }

    #[test]
    fn an_epsilon_that_is_not_positive_is_refused() {
        for value in ["0", "-1", "NaN", "inf"] {
            let text = error(&format!("--epsilon {value}"));
            assert!(text.starts_with("--epsilon must be a number greater than 0, got "), "{text}");
            assert!(text.contains(value), "{text}");
        }
    }

    #[test]
    fn no_noise_with_a_budget_is_a_contradiction() {
        let text = error("--noise-multiplier 0 --epsilon 3");
        assert!(text.contains("no budget such as --epsilon 3 can be met"), "{text}");
        let text = error("--noise-multiplier 0");
        assert!(
            text.contains("greater than 0, got 0;") && text.contains("--non-private"),
            "{text}"
        );
    }

    #[test]
    fn a_noise_multiplier_has_a_budget_only_together_with_epsilon() {
        let alone = private("--noise-multiplier 1.1").privacy;
        assert_eq!((alone.epsilon, alone.noise_multiplier), (None, Some(1.1)));
        let both = private("--noise-multiplier 1.1 --epsilon 3").privacy;
        assert_eq!((both.epsilon, both.noise_multiplier), (Some(3.0), Some(1.1)));
    }

    #[test]
    fn a_delta_outside_its_range_is_refused() {
        for value in ["0", "1", "-0.1", "2", "NaN"] {
            let text = error(&format!("--delta {value}"));
            assert!(text.starts_with(&format!("--delta must be between 0 and 1/N, got {value}")));
        }
        let text = settings("--delta 1e-3").unwrap().fit(1_000).unwrap_err().to_string();
        assert!(text.contains("1 / examples = 1/1000 = 1.00e-3, got 1e-3"), "{text}");
        assert!(text.ends_with("give --delta 1e-4"), "{text}");
        assert!(settings("--delta 9e-4").unwrap().fit(1_000).is_ok());
    }

    #[test]
    fn a_batch_larger_than_the_data_is_refused() {
        let settings = settings("--batch-size 1001").unwrap();
        let text = settings.fit(1_000).unwrap_err().to_string();
        assert_eq!(
            text,
            "--batch-size must be at most the 1000 training examples, got 1001; give a smaller one"
        );
        assert!(settings.fit(1_001).is_ok());
    }

    #[test]
    fn numbers_of_zero_are_refused_by_name() {
        let names = ["batch-size", "physical-batch-size", "epochs", "steps", "train-size"];
        for name in names.into_iter().chain(["test-size"]) {
            let text = error(&format!("--{name} 0"));
            assert!(text.starts_with(&format!("--{name} must be at least 1, got 0")), "{text}");
        }
    }

    #[test]
    fn two_lengths_contradict() {
        assert!(error("--epochs 2 --steps 7").contains("7 and --epochs 2 contradict"));
    }

    #[test]
    fn privacy_options_contradict_ordinary_training() {
        for option in [
            "--epsilon 3",
            "--delta 1e-5",
            "--noise-multiplier 1",
            "--group 2",
            "--max-grad-norm 1",
            "--physical-batch-size 64",
            "--insecure-seed 1",
            "--resume",
        ] {
            let text = error(&format!("--non-private {option}"));
            assert!(text.contains("has no meaning together with --non-private"), "{text}");
            assert!(text.starts_with(option.split(' ').next().unwrap()), "{text}");
        }
        assert_eq!(settings("--non-private").unwrap().private, None);
    }

    #[test]
    fn rates_outside_their_range_are_refused() {
        assert!(error("--lr 0").starts_with("--lr must be a number greater than 0, got 0"));
        assert!(error("--max-grad-norm -2").contains("greater than 0, got -2"));
        assert!(error("--momentum 1").contains("less than 1, got 1"));
        assert!(error("--ema-decay 1").starts_with("--ema-decay must be at least 0"));
        assert_eq!(settings("--ema-decay 0.99 --non-private").unwrap().ema_decay, Some(0.99));
        assert!(error("--optimizer adam --momentum 0.5").contains("is for --optimizer sgd"));
    }

    #[test]
    fn the_drawn_digits_take_no_folder_and_other_data_sets_need_one() {
        assert!(error("digits --data-dir somewhere").contains("need no files"));
        let data_dir = |line: &str, environment: &str| {
            let words = ["train"].into_iter().chain(line.split(' '));
            let options = TrainOptions::read(words).unwrap();
            IndividualSettings::new(options, Some(environment.into())).unwrap().data.data_dir
        };
        assert_eq!(data_dir("mnist", "from-environment"), Some("from-environment".into()));
        assert_eq!(data_dir("digits", "unused"), None);
        assert_eq!(data_dir("mnist --download", "unused"), None);
        assert!(error("cifar10 --download").contains("--download is for mnist, not cifar10"));
        for name in ["fashion-mnist", "cifar10", "imdb", "folder"] {
            let text = error(name);
            assert!(text.starts_with(&format!("--data-dir must be given for {name}")), "{text}");
            let line = format!("{name} --data-dir d");
            assert!(self::settings(&line).is_ok(), "{line}");
        }
    }

    #[test]
    fn paths_that_cannot_be_written_are_refused_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let text = error(&format!("--output {}", file.display()));
        assert!(text.contains("is not a folder"), "{text}");
        let text = error(&format!("--json {}", folder.path().display()));
        assert!(text.contains("is a folder"), "{text}");
        let text = error(&format!("--json {}", folder.path().join("none/run.json").display()));
        assert!(text.contains("does not exist"), "{text}");
        assert!(settings(&format!("--json {}", file.display())).is_ok());
    }

    #[test]
    fn costs_of_the_device_are_read_and_kept_for_the_resumed_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.json");
        let line = format!("--device-costs {}", path.display());
        let text = error(&line);
        assert!(text.contains("costs.json cannot be read") && text.contains("bench"), "{text}");
        std::fs::write(&path, "{\"seconds_per_byte\": 1}").unwrap();
        assert!(error(&line).contains("seconds_per_operation"));
        let costs = DeviceCosts::new(1e-11, 3e-10, 2e-6).unwrap();
        std::fs::write(&path, serde_json::to_string(&costs).unwrap()).unwrap();
        let settings = settings(&line).unwrap();
        assert_eq!(settings.backward().device_costs(), costs);
        let saved = serde_json::to_value(&settings).unwrap();
        assert_eq!(saved["device-costs"], serde_json::to_value(costs).unwrap());
    }

    #[test]
    fn the_length_of_a_pass_is_rounded_up() {
        let settings = settings("--batch-size 300 --epochs 2").unwrap();
        assert_eq!(settings.steps_per_epoch(1_000), 4);
        assert_eq!(settings.steps(1_000), 8);
    }
}
