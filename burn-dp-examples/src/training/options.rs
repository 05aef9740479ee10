//! Command-line options that the training modes share, and the names of their choices.

use std::path::PathBuf;

use burn::tensor::FloatDType;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Parser, ValueEnum};
use serde::{Serialize, Serializer};

use super::TrainError;
use super::checkpoints::Start;

/// The data and its location.
#[derive(Args, Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Data")]
pub struct DataOptions {
    /// Data set to train on.
    #[arg(value_enum, default_value_t = DatasetName::Digits, help_heading = None)]
    #[serde(rename = "the data set", serialize_with = "as_typed")]
    pub dataset: DatasetName,
    /// Folder with the files of the data set, as published: IDX files, plain or gzip (mnist,
    /// fashion-mnist), the binary version (cifar10), aclImdb (imdb), train/CLASS/*.png and
    /// test/CLASS (folder); the drawn digits need none [default: the variable BURN_DP_DATA].
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub data_dir: Option<PathBuf>,
    /// mnist: read the files from the cache of burn-dataset, which downloads them the first time;
    /// needs the feature `download`. The default for mnist without a folder.
    #[arg(long, conflicts_with = "data_dir")]
    #[serde(skip)]
    pub download: bool,
    /// Use only this many examples to train on [default: all; 12000 drawn digits].
    #[arg(long, value_name = "N")]
    pub train_size: Option<usize>,
    /// Use only this many examples to test on [default: all; 2000 drawn digits].
    #[arg(long, value_name = "N")]
    #[serde(skip)]
    pub test_size: Option<usize>,
    /// Data set of the public examples, where a clipping policy or BatchNorm needs them: different
    /// from the training data [default: for drawn digits, separately drawn digits].
    #[arg(long, value_enum, value_name = "DATASET")]
    #[serde(serialize_with = "as_typed_option")]
    pub public_data: Option<DatasetName>,
    /// Folder with the files of the public data set; drawn digits need none.
    #[arg(long, value_name = "DIR", requires = "public_data")]
    #[serde(skip)]
    pub public_dir: Option<PathBuf>,
    /// Use only this many public examples [default: 1000].
    #[arg(long, value_name = "N")]
    pub public_size: Option<usize>,
    /// Seed of the initial weights, of the drawn digits, and of the membership in mini-sets. Noise
    /// and sampling never use it: the operating system seeds them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// The options of public examples.
pub(super) const PUBLIC_OPTIONS: [&str; 3] = ["--public-data", "--public-dir", "--public-size"];

/// The requested privacy.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Privacy")]
pub struct PrivacyOptions {
    /// Privacy budget: the noise is calibrated to end at this epsilon. Together with
    /// --noise-multiplier, training stops before the step that would exceed the budget.
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub epsilon: Option<f64>,
    /// Probability with which the budget may be exceeded; less than 1 / the number of examples, or
    /// of users.
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    pub delta: Option<f64>,
    /// Standard deviation of the noise over the clipping threshold.
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub noise_multiplier: Option<f64>,
    /// Also state epsilon for K units at once, for example the K examples of one person, in
    /// privacy.txt and privacy.json. It is usually more than K times epsilon of one unit. The
    /// training and its noise do not depend on it.
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub group: Option<u64>,
    /// Ledger of earlier releases on the same data: `ledger.json` of an earlier run or search, or
    /// another ledger of the accountant. Repeat the option for several ledgers. The budget, and
    /// every epsilon, are then for those releases and this run together. A resumed run needs the
    /// same files again.
    #[arg(long, value_name = "FILE")]
    pub earlier_ledger: Vec<PathBuf>,
    /// Take sampling and noise from this seed: the run can be repeated, and none of it is private.
    /// For tests and for experiments on public data.
    #[arg(long, value_name = "N")]
    pub insecure_seed: Option<u64>,
}

/// Options by name, which [`Training::parse`](super::Training::parse) replaces.
#[derive(Args, Debug, Clone, Default)]
pub struct RecipeOptions {
    /// Options from a file, or from one of the recipes by name; an option on the command line takes
    /// precedence.
    #[arg(long, visible_alias = "preset", value_name = "RECIPE")]
    pub recipe: Option<String>,
}

/// The backend and the output of the training.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Run")]
pub struct RunOptions {
    /// Backend to train on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Continue from the last checkpoint in the output folder, with unchanged settings.
    #[arg(long)]
    pub resume: bool,
    /// Folder for the model, the privacy statement, the figures, the plots, and the checkpoints of
    /// an unfinished run.
    #[arg(long, value_name = "DIR", default_value = "out/train")]
    pub output: PathBuf,
    /// File for the figures of the run [default: run.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl RunOptions {
    /// Returns where the run starts.
    pub fn start(&self) -> Start {
        if self.resume { Start::Resume } else { Start::First }
    }
}

/// A data set.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetName {
    /// Digits drawn by the program.
    Digits,
    /// The original MNIST.
    Mnist,
    /// Articles of clothing, in the format of MNIST.
    FashionMnist,
    /// Small photographs of ten classes.
    #[value(name = "cifar10")]
    Cifar10,
    /// Film reviews, positive and negative.
    Imdb,
    /// Images in one folder per class.
    Folder,
}

/// A rule that turns gradients into updates.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimizerName {
    /// Stochastic gradient descent, with momentum.
    Sgd,
    /// Adam.
    Adam,
}

/// A backend of Burn.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendName {
    /// The CPU backend written for Burn.
    Flex,
    /// The older CPU backend.
    Ndarray,
    /// GPUs through WebGPU.
    Wgpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// The precision of forward and backward passes. Parameters, norms, sums, noise and the state of
/// the optimizer are in single precision.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Half precision: numbers up to 65504.
    F16,
    /// The range of single precision with eight bits of accuracy.
    #[value(name = "bf16")]
    BF16,
}

impl Precision {
    /// Returns Burn's name of the precision.
    pub fn dtype(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::F16 => FloatDType::F16,
            Self::BF16 => FloatDType::BF16,
        }
    }
}

/// Returns the name of a choice as typed.
pub fn typed(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().into()).unwrap_or_default()
}

/// Serializes a choice as typed.
pub(super) fn as_typed<C: ValueEnum, S: Serializer>(
    choice: &C,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&typed(choice.clone()))
}

/// Serializes a choice as typed, if there is one.
fn as_typed_option<C: ValueEnum, S: Serializer>(
    choice: &Option<C>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    choice.clone().map(typed).serialize(serializer)
}

/// Adds a default that depends on other options to the help of an argument.
pub(super) fn with_default(arg: Arg, default: &str) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let help = help.trim_end_matches('.').to_string();
    arg.help(format!("{help} [default: {default}]"))
}

/// The options that were given on the command line, with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given(Vec<(String, String)>);

impl Given {
    fn of(matches: &ArgMatches) -> Self {
        let ids = matches.ids().map(|id| id.as_str());
        let given = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        let value = |id: &str| {
            let words = matches.try_get_raw(id).ok().flatten()?;
            let value = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(",");
            // A flag is stored as `true`.
            Some(if value == "true" { String::new() } else { value })
        };
        let option = |id: &str| Some((format!("--{}", id.replace('_', "-")), value(id)?));
        Self(given.filter_map(option).collect())
    }

    /// Returns the first of these options that was given, with its value; flags have none.
    pub(super) fn first_of(&self, names: &[&'static str]) -> Option<(&'static str, &str)> {
        let given = |name: &&str| self.0.iter().find(|(given, _)| given == name);
        names.iter().find_map(|name| Some((*name, given(name)?.1.as_str())))
    }

    /// Checks that none of these options, which another choice makes meaningless, is given.
    ///
    /// # Arguments
    ///
    /// - `choice`: the choice that makes them meaningless, for example `with --clipping flat`
    /// - `needed`: the choice that would make them meaningful, for example `--clipping quantile`
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] with the first of `names` that was given.
    pub(super) fn refuse(
        &self,
        names: &[&'static str],
        choice: &str,
        needed: &str,
    ) -> Result<(), TrainError> {
        match self.first_of(names) {
            Some((name, _)) => {
                let reason = format!("has no meaning {choice}; leave it out, or give {needed}");
                Err(TrainError::option(name, reason))
            }
            None => Ok(()),
        }
    }
}

/// Options of a training mode, which record the options given on the command line.
pub trait TrainingOptions: Parser {
    /// Returns the record of the given options.
    fn given_mut(&mut self) -> &mut Given;

    /// Parses a command line, the name of the program included.
    ///
    /// # Errors
    ///
    /// Returns clap's error, which is also the help text if help is requested.
    fn read<W: Into<std::ffi::OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(words)?;
        let options = Self::from_arg_matches(&matches);
        let mut options = options.map_err(|error| error.format(&mut command))?;
        *options.given_mut() = Given::of(&matches);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_named_as_they_are_typed() {
        assert_eq!(typed(BackendName::Ndarray), "ndarray");
        assert_eq!(typed(DatasetName::FashionMnist), "fashion-mnist");
        assert_eq!(typed(DatasetName::Digits), "digits");
    }
}
