//! The command-line options of the training program.

use std::ffi::OsString;
use std::fmt;

use clap::{CommandFactory, FromArgMatches, Parser};

use super::augmentation::AugmentationOptions;
use super::batch_clipping::{BatchModelName, MiniSetOptions, UnitClippingName};
use super::federated::RoundOptions;
use super::individual::{IndividualOptions, InputOptions};
use super::loading::DataOptions;
use super::options::{
    ClippingName, DatasetName, ExampleOptions, Given, PrivacyOptions, RecipeOptions, RunOptions,
    SharedName, headings, with_default,
};
use super::quantile::QuantileOptions;
use super::sampling::SamplingOptions;
use super::thresholds::LayerOptions;
use super::{TrainError, recipes};
use crate::models::ModelName;

/// Train a model with differential privacy.
///
/// There are three training modes. Individual clipping trains a classifier of images or texts, and
/// clips the gradient of each example. `--clipping batch` draws mini-sets of fixed membership and
/// clips the gradient of each mini-set as a whole. `shakespeare --federated` trains a language
/// model on the plays of Shakespeare, with a guarantee for everything that one user (a speaking
/// role) says; a tenth of the users is public and measures the model.
///
/// Without options: individual clipping of the convolutional network on synthetic digits, at
/// epsilon = 3. Options that are not given have the defaults of the data set and the network.
/// `--clipping batch` alone trains LeNet-5 with BatchNorm at the settings of Nguyen et al., 2023.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask train", bin_name = "cargo xtask train", version)]
#[command(allow_negative_numbers = true)]
#[command(mut_arg("epsilon", |arg| {
    with_default(arg, "3; 8 for users; none for batch clipping, which has the noise of the paper")
}))]
#[command(mut_arg("delta", |arg| with_default(arg, "1e-5; 1e-4 for users")))]
#[command(mut_arg("noise_multiplier", |arg| {
    with_default(arg, "from epsilon; for batch clipping sigma = 0.5 of the paper, whose noise of 2 \
        C sigma is a noise multiplier of 1, over √L for L thresholds")
}))]
#[command(mut_arg("output", |arg| {
    let arg = arg.hide_default_value(true);
    with_default(arg, "out/train; out/batch-clipping; out/federated for users")
}))]
pub struct TrainOptions {
    /// Budget and noise.
    #[command(flatten)]
    pub privacy: PrivacyOptions,
    /// What is clipped, and how. The threshold, or the initial or master threshold, is
    /// --max-grad-norm (for users --max-update-norm) [default: flat; quantile for users].
    #[arg(long, help_heading = headings::PRIVACY)]
    pub clipping: Option<SharedName<ClippingName, UnitClippingName>>,
    /// Data set and its location.
    #[command(flatten)]
    pub data: DataOptions,
    /// Protect users, not single examples. The plays support no other mode.
    #[arg(long, help_heading = "Data")]
    pub federated: bool,
    /// Network to train [default: transformer for imdb, else cnn; bn-lenet5 for batch clipping].
    #[arg(long, help_heading = headings::EXAMPLES)]
    pub model: Option<SharedName<ModelName, BatchModelName>>,
    /// Length and threshold.
    #[command(flatten)]
    pub examples: ExampleOptions,
    /// Decay and groups of thresholds.
    #[command(flatten)]
    pub layers: LayerOptions,
    /// Backend and output.
    #[command(flatten)]
    pub run: RunOptions,
    /// Options by name.
    #[command(flatten)]
    pub recipe: RecipeOptions,
    /// Quantile clipping.
    #[command(flatten)]
    pub quantile: QuantileOptions,
    /// Sampler and correlated noise.
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Input of the network.
    #[command(flatten)]
    pub inputs: InputOptions,
    /// Random copies of images.
    #[command(flatten)]
    pub augmentation: AugmentationOptions,
    /// Individual clipping, and ordinary training.
    #[command(flatten)]
    pub individual: IndividualOptions,
    /// Learning rate of the local steps of a mini-set or a user [default: 0.05; 1 for users].
    #[arg(long, allow_hyphen_values = true, help_heading = headings::LOCAL)]
    pub local_lr: Option<f64>,
    /// Mini-sets.
    #[command(flatten)]
    pub mini_sets: MiniSetOptions,
    /// Users, rounds and model.
    #[command(flatten)]
    pub rounds: RoundOptions,
    #[arg(skip)]
    pub(super) given: Given,
}

/// A training mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Each example's gradient is clipped.
    Individual,
    /// Ordinary training of the same networks.
    Ordinary,
    /// The updates of mini-sets are clipped.
    Batch,
    /// The updates of users are clipped.
    Users,
}

/// The modes of each help heading whose options some modes do not have.
const MODES: [(&str, &[Mode]); 13] = [
    (headings::PRIVACY, &[Mode::Individual, Mode::Batch, Mode::Users]),
    (headings::INDEPENDENCE, &[Mode::Individual]),
    (headings::EXAMPLES, &[Mode::Individual, Mode::Ordinary, Mode::Batch]),
    (headings::THRESHOLDS, &[Mode::Individual, Mode::Batch]),
    (headings::LAYERS, &[Mode::Individual, Mode::Batch, Mode::Users]),
    (headings::QUANTILE, &[Mode::Individual, Mode::Users]),
    (headings::SAMPLING, &[Mode::Individual, Mode::Users]),
    (headings::AUGMENTATION, &[Mode::Individual, Mode::Ordinary, Mode::Batch]),
    (headings::LOCAL, &[Mode::Batch, Mode::Users]),
    (headings::CLASSIFIERS, &[Mode::Individual, Mode::Ordinary]),
    (headings::INDIVIDUAL, &[Mode::Individual]),
    (headings::MINI_SETS, &[Mode::Batch]),
    (headings::USERS, &[Mode::Users]),
];

impl TrainOptions {
    /// Parses a command line, the name of the program included, and adds the options of its recipe.
    ///
    /// # Errors
    ///
    /// Returns clap's error, which is also the help text if help is requested.
    pub fn read<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let mut words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let options = Self::parsed(&words)?;
        let Some(recipe) = &options.recipe.recipe else { return Ok(options) };
        let refused =
            |reason: String| Self::command().error(clap::error::ErrorKind::ValueValidation, reason);
        let command = Self::command();
        let found =
            recipes::options(recipe, &command).map_err(|error| refused(error.to_string()))?;
        let is_given = |name: &str| options.given.iter().any(|(given, _)| given[2..] == *name);
        // What the command line gives instead.
        let is_replaced = |name: &str| match name {
            "steps" => is_given("epochs"),
            "epochs" => is_given("steps"),
            "momentum" => is_given("optimizer"),
            _ => is_given("non-private") && !modes_of(&command, name).contains(&Mode::Ordinary),
        };
        let added = found.into_iter().filter(|(name, _)| !is_given(name) && !is_replaced(name));
        words.splice(1..1, added.map(|(_, word)| word.into()));
        // The words of the command line alone were accepted.
        Self::parsed(&words).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            refused(format!("--recipe {}: {reason}", recipe.display()))
        })
    }

    fn parsed(words: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(words)?;
        let options = Self::from_arg_matches(&matches);
        let mut options = options.map_err(|error| error.format(&mut command))?;
        options.given = Given::of(&matches);
        if options.given.first_of(&["--output"]).is_none() {
            options.run.output = match options.mode() {
                Mode::Individual | Mode::Ordinary => "out/train".into(),
                Mode::Batch => "out/batch-clipping".into(),
                Mode::Users => "out/federated".into(),
            };
        }
        Ok(options)
    }

    /// Returns the training mode.
    pub fn mode(&self) -> Mode {
        if self.federated || self.data.dataset == DatasetName::Shakespeare {
            Mode::Users
        } else if self.clipping.is_some_and(|name| name.second.is_some()) {
            Mode::Batch
        } else if self.individual.non_private {
            Mode::Ordinary
        } else {
            Mode::Individual
        }
    }

    /// Checks that the options request one of these training modes, and none that it does not have.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] with the first option of other modes.
    pub(super) fn check_mode(&self, modes: &[Mode]) -> Result<(), TrainError> {
        let mode = self.mode();
        if !modes.contains(&mode) {
            let reason = "chooses another training mode; leave it out";
            return Err(TrainError::option(mode.to_string(), reason));
        }
        let command = Self::command();
        for (name, value) in self.given.iter() {
            let owners = modes_of(&command, &name[2..]);
            if owners.contains(&mode) {
                continue;
            }
            let owners: Vec<String> = owners.iter().map(Mode::to_string).collect();
            let reason = match mode {
                Mode::Ordinary => format!(
                    "{value} has no meaning together with --non-private; leave one of them out"
                ),
                // The plays have no other mode.
                Mode::Users => format!("has no meaning with {mode}; leave it out"),
                _ => format!(
                    "has no meaning with {mode}; leave it out, or choose {}",
                    owners.join(" or ")
                ),
            };
            return Err(TrainError::option(name.to_string(), reason.trim_start()));
        }
        Ok(())
    }
}

/// Returns the modes that have an option.
fn modes_of(command: &clap::Command, option: &str) -> &'static [Mode] {
    const ALL: &[Mode] = &[Mode::Individual, Mode::Ordinary, Mode::Batch, Mode::Users];
    let argument = command.get_arguments().find(|one| one.get_long() == Some(option));
    let heading = argument.and_then(clap::Arg::get_help_heading);
    MODES.iter().find(|(of, _)| heading == Some(*of)).map_or(ALL, |(_, modes)| *modes)
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Individual => "individual clipping",
            Self::Ordinary => "--non-private",
            Self::Batch => "--clipping batch",
            Self::Users => "shakespeare --federated",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(line: &str) -> Result<TrainOptions, clap::Error> {
        TrainOptions::read(["train"].into_iter().chain(line.split_whitespace()))
    }

    fn mode(line: &str) -> Mode {
        read(line).unwrap().mode()
    }

    fn refused(line: &str) -> String {
        let options = read(line).unwrap();
        options.check_mode(&[options.mode()]).unwrap_err().to_string()
    }

    #[test]
    fn the_options_are_well_formed() {
        TrainOptions::command().debug_assert();
    }

    #[test]
    fn the_data_set_or_the_flag_asks_for_users() {
        assert_eq!(mode("--rounds 3 shakespeare --federated"), Mode::Users);
        assert_eq!(mode("shakespeare"), Mode::Users);
        assert_eq!(mode("mnist --federated"), Mode::Users);
        // Not a data set, but the value of an option.
        assert_eq!(mode("--output shakespeare mnist --epochs 3"), Mode::Individual);
        assert_eq!(mode(""), Mode::Individual);
        assert_eq!(mode("--non-private"), Mode::Ordinary);
    }

    #[test]
    fn batch_clipping_is_asked_for_in_either_spelling() {
        for line in ["mnist --clipping batch --epochs 2", "--clipping=batch"] {
            assert_eq!(mode(line), Mode::Batch, "{line}");
        }
        assert_eq!(mode("--clipping flat"), Mode::Individual);
        assert!(read("batch").unwrap_err().to_string().contains("'batch'"));
    }

    #[test]
    fn the_help_lists_the_options_of_every_training() {
        for line in ["--help", "shakespeare --help", "--clipping batch -h", "--non-private -h"] {
            let help = read(line).unwrap_err().to_string();
            for option in ["--quantile-rule", "--rounds", "--mini-set-size", "--non-private"] {
                assert!(help.contains(option), "{line}: {option}");
            }
            for default in ["[default: 3; 8 for users; ", "1e-4 for users]", "out/federated for"] {
                assert!(help.contains(default), "{line}: {default} {help}");
            }
        }
    }

    #[test]
    fn a_name_is_the_choice_of_every_mode_that_has_it() {
        let model = |name: &str| read(&format!("--model {name}")).unwrap().model.unwrap();
        let both =
            SharedName { first: Some(ModelName::ResNet18), second: Some(BatchModelName::Resnet18) };
        assert_eq!(model("resnet18"), both);
        assert_eq!(model("cnn"), SharedName { first: Some(ModelName::Cnn), second: None });
        assert_eq!(
            model("lenet5"),
            SharedName { first: None, second: Some(BatchModelName::Lenet5) }
        );
    }

    #[test]
    fn options_of_another_mode_are_refused_with_the_mode_that_has_them() {
        for (line, expected) in [
            (
                "--rounds 3",
                "--rounds has no meaning with individual clipping; leave it out, or choose \
                 shakespeare --federated",
            ),
            (
                "--clipping batch --batch-size 3",
                "--batch-size has no meaning with --clipping batch; leave it out, or choose \
                 individual clipping or --non-private",
            ),
            ("--mini-sets 3", "with individual clipping; leave it out, or choose --clipping batch"),
            ("--clipping batch --sampling poisson", "choose individual clipping or shakespeare"),
            ("--clipping batch --independence-check first", "choose individual clipping"),
            ("shakespeare --federated --lr 1", "--lr has no meaning with shakespeare --federated"),
            ("shakespeare --federated --non-private", "--non-private has no meaning with shakesp"),
            ("shakespeare --federated --mirror", "--mirror has no meaning with shakespeare"),
            ("--local-lr 3", "choose --clipping batch or shakespeare --federated"),
            // Even if the value is the default.
            ("--target-quantile 0.5 --non-private", "0.5 has no meaning together with --non-pr"),
        ] {
            let error = refused(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
        let batch = read("--clipping batch").unwrap();
        let error = batch.check_mode(&[Mode::Individual]).unwrap_err().to_string();
        assert_eq!(error, "--clipping batch chooses another training mode; leave it out");
    }

    #[test]
    fn every_help_heading_says_which_modes_have_its_options() {
        for argument in TrainOptions::command().get_arguments() {
            let heading = argument.get_help_heading();
            let known = MODES.iter().any(|(of, _)| heading == Some(*of));
            let of_all = matches!(heading, Some("Data" | "Run")) || argument.is_positional();
            assert!(known != of_all, "{} is below {heading:?}", argument.get_id());
        }
    }

    #[test]
    fn a_line_with_an_error_is_refused_by_the_parser() {
        for line in ["--output", "--lr", "--what", "--epochs x", "mnist mnist", "--lr 1 --lr 2"] {
            assert!(read(line).unwrap_err().to_string().starts_with("error: "), "{line}");
        }
    }

    #[test]
    fn a_negative_number_is_a_value_and_not_an_option() {
        let options = read("--epsilon -1").unwrap();
        assert_eq!(options.privacy.epsilon, Some(-1.0));
        assert_eq!(options.given.first_of(&["--delta", "--epsilon"]), Some(("--epsilon", "-1")));
        let options = read("--non-private").unwrap();
        assert_eq!(options.given.first_of(&["--non-private"]), Some(("--non-private", "")));
        assert_eq!(options.given.first_of(&["--clipping", "--seed"]), None);
    }
}
