//! From options to settings that a run can start with.
//!
//! Everything is checked here, before anything is written: first what needs no data
//! ([`Settings::new`]), then what depends on its size ([`Settings::fit`]).

use std::path::{Path, PathBuf};

use burn_dp::optim::WeightAverage;

use super::inputs::InputSettings;
use super::options::{BackendName, DatasetName, OptimizerName, TrainOptions, typed};
use super::recipe::{self, Recipe};
use super::{ClippingSettings, ScheduleName, TrainError, checks};
use crate::models::ModelName;

/// Checked settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Data set to train on.
    pub dataset: DatasetName,
    /// Folder of the data set's files, if one is given.
    pub data_dir: Option<PathBuf>,
    /// Largest number of examples to train on.
    pub train_size: Option<usize>,
    /// Largest number of examples to test on.
    pub test_size: Option<usize>,
    /// Network to train.
    pub model: ModelName,
    /// What the network reads.
    pub inputs: InputSettings,
    /// Backend to train on.
    pub backend: BackendName,
    /// Privacy that is asked for; nothing for ordinary training.
    pub privacy: Option<PrivacySettings>,
    /// Expected size of a logical batch.
    pub batch_size: usize,
    /// Largest number of examples that go through the network together.
    pub physical_batch_size: usize,
    /// Length of the training.
    pub length: Length,
    /// Rule that turns gradients into updates.
    pub optimizer: OptimizerName,
    /// Learning rate of the first step.
    pub lr: f64,
    /// How the learning rate changes.
    pub schedule: ScheduleName,
    /// Momentum of sgd.
    pub momentum: f64,
    /// Decay of the average of the weights, if there is one.
    pub ema_decay: Option<f64>,
    /// Seed of the initial weights and of the drawn digits.
    pub seed: u64,
    /// Whether to go on from the last checkpoint.
    pub resume: bool,
    /// Whether to go on behind the last step that was released.
    pub skip_lost_steps: bool,
    /// Folder for everything that the run writes.
    pub output: PathBuf,
    /// File for the figures of the run.
    pub json: PathBuf,
}

/// The privacy that a run is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrivacySettings {
    /// Budget: the noise is calibrated to end at this ε unless it is given too; the run stops
    /// before the step that would break it.
    pub epsilon: Option<f64>,
    /// Standard deviation of the noise over the sensitivity. It or a budget is given.
    pub noise_multiplier: Option<f64>,
    /// δ at which ε is meant.
    pub delta: f64,
    /// Clipping threshold of each example's gradient.
    pub max_grad_norm: f64,
    /// The clipping policy, of which that is the threshold.
    pub clipping: ClippingSettings,
    /// Known seed of sampling and noise: nothing is private then.
    pub insecure_seed: Option<u64>,
}

/// The length of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Passes over the data, in the mean.
    Epochs(usize),
    /// Steps.
    Steps(usize),
}

impl Settings {
    /// Checks the options and fills the gaps from the recipe.
    ///
    /// `data_dir` is the folder to use when the options name none.
    ///
    /// # Errors
    ///
    /// For an option that is impossible whatever the data, naming the value and the way out.
    pub fn new(options: TrainOptions, data_dir: Option<PathBuf>) -> Result<Self, TrainError> {
        let model = options.model.unwrap_or_else(|| recipe::model(options.dataset));
        let recipe = Recipe::of(options.dataset, model, !options.non_private);
        if options.dataset == DatasetName::Digits {
            checks::drawable(options.train_size, options.test_size)?;
            if let Some(folder) = &options.data_dir {
                return Err(needs_no_files(folder));
            }
        }
        if options.non_private {
            refuse_private_options(&options)?;
        }
        let inputs = InputSettings::new(options.inputs.clone(), options.dataset, model)?;
        let privacy = if options.non_private { None } else { Some(privacy(&options, &recipe)?) };
        let optimizer = options.optimizer.unwrap_or(recipe.optimizer);
        let settings = Self {
            privacy,
            optimizer,
            batch_size: count("--batch-size", options.batch_size, recipe.batch_size)?,
            physical_batch_size: count(
                "--physical-batch-size",
                options.physical_batch_size,
                recipe::PHYSICAL_BATCH_SIZE,
            )?,
            length: length(&options, recipe.epochs)?,
            schedule: options.schedule.unwrap_or(recipe.schedule),
            lr: positive("--lr", options.lr.unwrap_or(recipe.lr))?,
            momentum: momentum(&options, optimizer, recipe.momentum)?,
            ema_decay: ema_decay(options.ema_decay)?,
            train_size: optional_count("--train-size", options.train_size)?,
            test_size: optional_count("--test-size", options.test_size)?,
            data_dir: match options.dataset {
                DatasetName::Digits => None,
                _ => options.data_dir.or(data_dir),
            },
            json: options.json.unwrap_or_else(|| options.output.join("run.json")),
            dataset: options.dataset,
            model,
            inputs,
            backend: options.backend,
            seed: options.seed,
            resume: options.resume,
            skip_lost_steps: options.skip_lost_steps,
            output: options.output,
        };
        if settings.data_dir.is_none()
            && !matches!(settings.dataset, DatasetName::Digits | DatasetName::Mnist)
        {
            return Err(no_data_dir(settings.dataset));
        }
        settings.check_paths()?;
        Ok(settings)
    }

    /// Checks the settings against the number of examples to train on.
    ///
    /// # Errors
    ///
    /// For a batch or a δ that does not fit the data, naming the value and the way out.
    pub fn fit(&self, train_items: usize) -> Result<(), TrainError> {
        let too_large = |name, size: usize| {
            let reason = format!(
                "must be at most the {train_items} examples to train on, got {size}; give a smaller \
                 one"
            );
            Err(TrainError::option(name, reason))
        };
        if self.batch_size > train_items {
            return too_large("--batch-size", self.batch_size);
        }
        if let Some(PrivacySettings { delta, .. }) = self.privacy
            && delta >= 1.0 / train_items as f64
        {
            let reason = format!(
                "must be less than 1/N = 1/{train_items} = {:.2e}, got {delta:e}: a greater one \
                 would allow publishing somebody's data outright; give --delta {:.0e}",
                1.0 / train_items as f64,
                0.1 / train_items as f64
            );
            return Err(TrainError::option("--delta", reason));
        }
        Ok(())
    }

    /// Number of steps in a pass over the data.
    pub fn steps_per_epoch(&self, train_items: usize) -> usize {
        train_items.div_ceil(self.batch_size)
    }

    /// Number of steps of the whole training.
    pub fn steps(&self, train_items: usize) -> usize {
        match self.length {
            Length::Epochs(epochs) => epochs * self.steps_per_epoch(train_items),
            Length::Steps(steps) => steps,
        }
    }

    /// Learning rate of a step of a training of `steps` steps, counted from 0.
    pub fn lr_of_step(&self, step: usize, steps: usize) -> f64 {
        self.lr * self.schedule.factor(step, steps)
    }

    /// The average of the weights that is asked for, of no step yet.
    pub(super) fn weight_average(&self) -> Result<Option<WeightAverage>, TrainError> {
        Ok(self.ema_decay.map(WeightAverage::new).transpose()?)
    }

    fn check_paths(&self) -> Result<(), TrainError> {
        if self.output.exists() && !self.output.is_dir() {
            let reason = format!("{} is not a folder; give another name", self.output.display());
            return Err(TrainError::option("--output", reason));
        }
        if self.json.is_dir() {
            let reason = format!("{} is a folder; give the name of a file", self.json.display());
            return Err(TrainError::option("--json", reason));
        }
        let folder = self.json.parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder {
            Some(folder) if folder != self.output && !folder.is_dir() => {
                let reason = format!("{} does not exist; make the folder first", folder.display());
                Err(TrainError::option("--json", reason))
            }
            _ => Ok(()),
        }
    }

    /// The folder, as the place of a file with this name.
    pub(super) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.output.join(name)
    }
}

/// The refusal of a data set without the folder of its files.
pub(crate) fn no_data_dir(dataset: DatasetName) -> TrainError {
    let dataset = typed(dataset);
    let reason =
        format!("must be given for {dataset}, or BURN_DP_DATA be set: the folder with its files");
    TrainError::option("--data-dir", reason)
}

/// The refusal of a folder for the drawn digits.
pub(super) fn needs_no_files(folder: &Path) -> TrainError {
    let reason = format!(
        "{} is given but the drawn digits need no files; leave it out, or train mnist",
        folder.display()
    );
    TrainError::option("--data-dir", reason)
}

/// Options that ordinary training would have to ignore.
fn refuse_private_options(options: &TrainOptions) -> Result<(), TrainError> {
    let numbers = [
        ("--epsilon", options.epsilon),
        ("--delta", options.delta),
        ("--noise-multiplier", options.noise_multiplier),
        ("--max-grad-norm", options.max_grad_norm),
    ];
    let numbers = numbers.map(|(name, value)| (name, value.map(|value| value.to_string())));
    let others = [
        ("--physical-batch-size", options.physical_batch_size.map(|size| size.to_string())),
        ("--insecure-seed", options.insecure_seed.map(|seed| seed.to_string())),
        ("--resume", options.resume.then(String::new)),
    ];
    let clipping = options.clipping.given().map(|name| (name, Some(String::new())));
    match numbers
        .into_iter()
        .chain(others)
        .chain(clipping)
        .find_map(|(name, value)| Some((name, value?)))
    {
        Some((name, value)) => {
            let reason = format!(
                "{value} has no meaning together with --non-private; leave one of them out"
            );
            Err(TrainError::option(name, reason.trim_start()))
        }
        None => Ok(()),
    }
}

fn privacy(options: &TrainOptions, recipe: &Recipe) -> Result<PrivacySettings, TrainError> {
    let noise_multiplier = options.noise_multiplier;
    if let Some(sigma) = noise_multiplier
        && !(sigma > 0.0 && sigma.is_finite())
    {
        let reason = match options.epsilon {
            Some(epsilon) if sigma == 0.0 => format!(
                "0 adds no noise, so no budget such as --epsilon {epsilon} can be met; leave it \
                 out and the noise is calibrated"
            ),
            _ => format!(
                "must be greater than 0, got {sigma}; without noise there is no privacy: \
                 --non-private trains the same model the ordinary way"
            ),
        };
        return Err(TrainError::option("--noise-multiplier", reason));
    }
    let epsilon = match (options.epsilon, noise_multiplier) {
        (None, Some(_)) => None,
        (epsilon, _) => Some(positive("--epsilon", epsilon.unwrap_or(recipe::EPSILON))?),
    };
    let delta = options.delta.unwrap_or(recipe::DELTA);
    if !(delta > 0.0 && delta < 1.0) {
        let reason = format!("must be between 0 and 1/N, got {delta}; try --delta 1e-5");
        return Err(TrainError::option("--delta", reason));
    }
    let clipping = options.clipping.check()?;
    let default = clipping.default_norm(recipe.max_grad_norm);
    let max_grad_norm = options.max_grad_norm.unwrap_or(default);
    let max_grad_norm = positive("--max-grad-norm", max_grad_norm)?;
    let insecure_seed = options.insecure_seed;
    Ok(PrivacySettings { epsilon, noise_multiplier, delta, max_grad_norm, clipping, insecure_seed })
}

fn length(options: &TrainOptions, default_epochs: usize) -> Result<Length, TrainError> {
    match (options.epochs, options.steps) {
        (Some(epochs), Some(steps)) => {
            let reason = format!("{steps} and --epochs {epochs} contradict; leave one of them out");
            Err(TrainError::option("--steps", reason))
        }
        (None, Some(steps)) => count("--steps", Some(steps), 1).map(Length::Steps),
        (epochs, None) => {
            let epochs = count("--epochs", epochs, default_epochs)?;
            checks::countable(epochs)?;
            Ok(Length::Epochs(epochs))
        }
    }
}

fn momentum(
    options: &TrainOptions,
    optimizer: OptimizerName,
    default: f64,
) -> Result<f64, TrainError> {
    match options.momentum {
        Some(momentum) if optimizer == OptimizerName::Adam => {
            let reason = format!("{momentum} is for --optimizer sgd; leave it out for adam");
            Err(TrainError::option("--momentum", reason))
        }
        Some(momentum) if !(0.0..1.0).contains(&momentum) => {
            let reason = format!("must be at least 0 and less than 1, got {momentum}; try 0.9");
            Err(TrainError::option("--momentum", reason))
        }
        Some(momentum) => Ok(momentum),
        None => Ok(default),
    }
}

fn ema_decay(decay: Option<f64>) -> Result<Option<f64>, TrainError> {
    match decay {
        Some(decay) if !(0.0..1.0).contains(&decay) => {
            let reason = format!("must be at least 0 and less than 1, got {decay}; try 0.999");
            Err(TrainError::option("--ema-decay", reason))
        }
        decay => Ok(decay),
    }
}

fn positive(name: &'static str, value: f64) -> Result<f64, TrainError> {
    if value > 0.0 && value.is_finite() {
        Ok(value)
    } else {
        let reason =
            format!("must be a number greater than 0, got {value}; leave it out for the default");
        Err(TrainError::option(name, reason))
    }
}

fn count(name: &'static str, value: Option<usize>, default: usize) -> Result<usize, TrainError> {
    optional_count(name, value).map(|value| value.unwrap_or(default))
}

fn optional_count(name: &'static str, value: Option<usize>) -> Result<Option<usize>, TrainError> {
    match value {
        Some(0) => {
            let reason = "must be at least 1, got 0; leave it out for the default";
            Err(TrainError::option(name, reason))
        }
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    fn settings(line: &str) -> Result<Settings, TrainError> {
        let words = std::iter::once("train").chain(line.split_whitespace());
        Settings::new(TrainOptions::try_parse_from(words).unwrap(), None)
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
        let privacy = settings.privacy.unwrap();
        assert_eq!((privacy.epsilon, privacy.noise_multiplier), (Some(3.0), None));
        assert_eq!(privacy.insecure_seed, None);
        assert_eq!(privacy.delta, 1e-5);
        assert_eq!(settings.json, settings.output.join("run.json"));
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
        assert!(text.contains("got 0") && text.contains("--non-private"), "{text}");
    }

    #[test]
    fn a_noise_multiplier_alone_has_no_budget_and_beside_epsilon_it_has() {
        let alone = settings("--noise-multiplier 1.1").unwrap().privacy.unwrap();
        assert_eq!((alone.epsilon, alone.noise_multiplier), (None, Some(1.1)));
        let both = settings("--noise-multiplier 1.1 --epsilon 3").unwrap().privacy.unwrap();
        assert_eq!((both.epsilon, both.noise_multiplier), (Some(3.0), Some(1.1)));
    }

    #[test]
    fn a_delta_outside_its_range_is_refused() {
        for value in ["0", "1", "-0.1", "2", "NaN"] {
            let text = error(&format!("--delta {value}"));
            assert!(text.starts_with(&format!("--delta must be between 0 and 1/N, got {value}")));
        }
        let text = settings("--delta 1e-3").unwrap().fit(1_000).unwrap_err().to_string();
        assert!(text.contains("1/N = 1/1000 = 1.00e-3, got 1e-3"), "{text}");
        assert!(text.ends_with("give --delta 1e-4"), "{text}");
        assert!(settings("--delta 9e-4").unwrap().fit(1_000).is_ok());
    }

    #[test]
    fn a_batch_larger_than_the_data_is_refused() {
        let settings = settings("--batch-size 1001").unwrap();
        let text = settings.fit(1_000).unwrap_err().to_string();
        assert_eq!(
            text,
            "--batch-size must be at most the 1000 examples to train on, got 1001; give a smaller one"
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
            "--max-grad-norm 1",
            "--physical-batch-size 64",
            "--insecure-seed 1",
            "--resume",
        ] {
            let text = error(&format!("--non-private {option}"));
            assert!(text.contains("has no meaning together with --non-private"), "{text}");
            assert!(text.starts_with(option.split(' ').next().unwrap()), "{text}");
        }
        assert_eq!(settings("--non-private").unwrap().privacy, None);
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
        let words = ["train", "mnist"];
        let options = TrainOptions::try_parse_from(words).unwrap();
        let settings = Settings::new(options, Some("from-environment".into())).unwrap();
        assert_eq!(settings.data_dir, Some("from-environment".into()));
        let options = TrainOptions::try_parse_from(["train", "digits"]).unwrap();
        assert_eq!(Settings::new(options, Some("unused".into())).unwrap().data_dir, None);
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
    fn the_length_of_a_pass_is_rounded_up() {
        let settings = settings("--batch-size 300 --epochs 2").unwrap();
        assert_eq!(settings.steps_per_epoch(1_000), 4);
        assert_eq!(settings.steps(1_000), 8);
    }
}
