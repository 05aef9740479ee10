//! Command-line options that the training modes share, and the names of their choices.

use std::path::PathBuf;

use burn::tensor::FloatDType;
use burn_dp::optim::IndependenceCheck;
use clap::builder::{MapValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, ValueEnum};
use serde::{Serialize, Serializer};

use super::TrainError;
use super::checkpoints::Start;

/// Help headings of options that some training modes do not have.
pub(super) mod headings {
    pub(in crate::training) const PRIVACY: &str = "Privacy";
    pub(in crate::training) const INDEPENDENCE: &str = "Independence of examples";
    pub(in crate::training) const EXAMPLES: &str = "Images and texts (not for users)";
    pub(in crate::training) const THRESHOLDS: &str = "Thresholds and public data (not for users)";
    pub(in crate::training) const LAYERS: &str = "Decay and groups of thresholds";
    pub(in crate::training) const QUANTILE: &str = "Quantile clipping (not for mini-sets)";
    pub(in crate::training) const SAMPLING: &str = "Sampling (not for mini-sets)";
    pub(in crate::training) const AUGMENTATION: &str = "Random copies of images (not for users)";
    pub(in crate::training) const LOCAL: &str = "Local steps (mini-sets and users)";
    pub(in crate::training) const INDIVIDUAL: &str = "Individual clipping";
    pub(in crate::training) const CLASSIFIERS: &str = "Individual clipping, or --non-private";
    pub(in crate::training) const MINI_SETS: &str = "Mini-sets (--clipping batch)";
    pub(in crate::training) const USERS: &str = "Users (shakespeare --federated)";
}

/// The options of public examples.
pub(super) const PUBLIC_OPTIONS: [&str; 3] = ["--public-data", "--public-dir", "--public-size"];

/// The requested privacy.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = headings::PRIVACY)]
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
    /// When to test by value that the loss of an example depends on no other example: in the first
    /// step, also in every N-th step, or never. A test takes six passes over a physical batch, and
    /// the statement says what was tested [default: first].
    #[arg(long, value_name = "first|every:N|never", value_parser = independence_check)]
    #[arg(help_heading = headings::INDEPENDENCE)]
    pub independence_check: Option<IndependenceCheck>,
}

/// Reads when to test the independence of the examples.
fn independence_check(text: &str) -> Result<IndependenceCheck, String> {
    match (text, text.strip_prefix("every:").map(str::parse)) {
        ("first", _) => Ok(IndependenceCheck::FirstStep),
        ("never", _) => Ok(IndependenceCheck::Never),
        (_, Some(Ok(steps @ 1..))) => Ok(IndependenceCheck::Every(steps)),
        _ => Err("expected first, never, or every:N with N of at least 1".into()),
    }
}

/// Options of training modes whose examples belong to no user.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = headings::EXAMPLES)]
pub struct ExampleOptions {
    /// Length of the training in passes over the data [default: depends on data set and network; 50
    /// for batch clipping].
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Learning rate; batch clipping multiplies it by --lr-decay after each epoch [default: depends
    /// on data set and network; 0.025 for batch clipping].
    #[arg(long, allow_hyphen_values = true)]
    pub lr: Option<f64>,
    /// Clipping threshold of each example's gradient [default: depends on data set and network; 0.1
    /// for quantile], or of the update of a mini-set [default: 0.2].
    #[arg(long, value_name = "C", allow_hyphen_values = true, help_heading = headings::THRESHOLDS)]
    pub max_grad_norm: Option<f64>,
}

/// How the gradient of an example, or the update of a user, is clipped.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClippingName {
    /// As a whole, to a given threshold.
    Flat,
    /// Each layer (for users: each parameter), to the same threshold.
    PerLayer,
    /// Always to the same norm.
    Automatic,
    /// As a whole, to a quantile of the norms, which is estimated privately.
    Quantile,
    /// Each layer (for users: each parameter), to the quantile of its norms.
    LayerQuantile,
    /// Each layer (for users: each parameter), to a threshold proportional to its norm on public
    /// data.
    Layerwise,
    /// Each layer (for users: each parameter), to its norm on public data.
    Zhang,
    /// As a whole, after each layer (for users: each parameter) was scaled to the largest norm on
    /// public data.
    Multipliers,
}

impl ClippingName {
    /// Returns whether thresholds follow private counts.
    pub(super) fn is_adaptive(self) -> bool {
        matches!(self, Self::Quantile | Self::LayerQuantile)
    }

    /// Returns whether thresholds follow norms on public data.
    pub(super) fn follows_public(self) -> bool {
        matches!(self, Self::Layerwise | Self::Zhang | Self::Multipliers)
    }

    /// Returns an error for options that the policy ignores.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] with the first such option.
    pub(super) fn check_given(self, given: &Given, norm: &'static str) -> Result<(), TrainError> {
        let choice = format!("with --clipping {}", typed(self));
        if self == Self::Zhang {
            given.refuse(&[norm], &choice, "--clipping layerwise")?;
        }
        if !self.follows_public() && self != Self::PerLayer {
            given.refuse(&["--layer-groups"], &choice, "--clipping layerwise")?;
        }
        Ok(())
    }
}

/// Options by name, which [`TrainOptions::read`](super::TrainOptions::read) replaces.
#[derive(Args, Debug, Clone, Default)]
pub struct RecipeOptions {
    /// Options from a TOML file, or a named recipe: mnist-cnn, mnist-scattering,
    /// mnist-scattering-1, cifar10-scattering, cifar10-scattering-8, cifar10-batch-clipping,
    /// cifar10-batch-clipping-2, cifar10-wrn-16-4-1, cifar10-wrn-16-4-8,
    /// cifar10-wrn-16-4-simulated, imagenet-nf-resnet-50, imdb-transformer or shakespeare-users. An
    /// option on the command line takes precedence.
    #[arg(long, visible_alias = "preset", value_name = "RECIPE", help_heading = "Run")]
    pub recipe: Option<PathBuf>,
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
    /// Another file for the figures of the run, which are also in run.json of the output folder.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Whether the run is one of a search, which prints its own results.
    #[arg(skip)]
    pub(super) is_of_search: bool,
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
    /// Synthetic digits, without files.
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
    /// The plays by speaking role, with --federated: the guarantee covers everything that a role
    /// says.
    Shakespeare,
}

/// A name that one of two training modes may use, or both, such as the name of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedName<A, B> {
    /// The choice of the first mode, if it has the name.
    pub first: Option<A>,
    /// The choice of the second mode, if it has the name.
    pub second: Option<B>,
}

impl<A: ValueEnum, B: ValueEnum> SharedName<A, B> {
    /// Returns the choice of the first mode.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a name of the second mode, which is for `owner`.
    pub(super) fn first(self, option: &'static str, owner: &str) -> Result<A, TrainError> {
        self.first.ok_or_else(|| of_other_mode(option, self.second, owner))
    }

    /// Returns the choice of the second mode.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a name of the first mode, which is for `owner`.
    pub(super) fn second(self, option: &'static str, owner: &str) -> Result<B, TrainError> {
        self.second.ok_or_else(|| of_other_mode(option, self.first, owner))
    }
}

fn of_other_mode(option: &'static str, name: Option<impl ValueEnum>, owner: &str) -> TrainError {
    let name = name.map(typed).unwrap_or_default();
    TrainError::option(option, format!("{name} is for {owner}; leave it out, or give another name"))
}

impl<A: ValueEnum + 'static, B: ValueEnum + 'static> clap::builder::ValueParserFactory
    for SharedName<A, B>
where
    Self: Clone + Send + Sync,
{
    type Parser = MapValueParser<PossibleValuesParser, fn(String) -> Self>;

    fn value_parser() -> Self::Parser {
        let [mut values, second] = [possible_values::<A>(), possible_values::<B>()];
        let is_new = |value: &PossibleValue| A::from_str(value.get_name(), false).is_err();
        values.extend(second.into_iter().filter(is_new));
        PossibleValuesParser::new(values).map(|name| Self {
            first: A::from_str(&name, false).ok(),
            second: B::from_str(&name, false).ok(),
        })
    }
}

fn possible_values<C: ValueEnum>() -> Vec<PossibleValue> {
    C::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect()
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
pub(super) fn as_typed_option<C: ValueEnum, S: Serializer>(
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
    /// Returns the options of a parsed command line.
    pub(super) fn of(matches: &ArgMatches) -> Self {
        // A group has the name of a struct.
        let is_option = |id: &&str| !id.starts_with(char::is_uppercase);
        let ids = matches.ids().map(|id| id.as_str()).filter(is_option);
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

    /// Returns the given options with their values; flags have none.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_named_as_they_are_typed() {
        assert_eq!(typed(BackendName::Ndarray), "ndarray");
        assert_eq!(typed(DatasetName::FashionMnist), "fashion-mnist");
        assert_eq!(typed(DatasetName::Digits), "digits");
    }

    #[test]
    fn the_rate_of_the_test_of_independence_is_a_word_or_a_number() {
        assert_eq!(independence_check("first"), Ok(IndependenceCheck::FirstStep));
        assert_eq!(independence_check("never"), Ok(IndependenceCheck::Never));
        assert_eq!(independence_check("every:20"), Ok(IndependenceCheck::Every(20)));
        for text in ["", "every", "every:", "every:0", "every:-1", "20", "First"] {
            let refused = independence_check(text);
            assert!(refused.is_err_and(|reason| reason.contains("every:N")), "{text}");
        }
    }
}
