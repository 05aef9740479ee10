//! The training program, which runs the training mode that the command line requests.

use std::ffi::OsString;

use clap::{ArgAction, CommandFactory};

use super::TrainError;
use super::batch_clipping::{self, BatchOptions};
use super::federated::{self, FederatedOptions};
use super::individual::{self, IndividualOptions};
use super::options::TrainingOptions;
use super::recipes;

/// A training mode with its options.
#[derive(Debug, Clone)]
pub enum Training {
    /// Each example's gradient is clipped; also ordinary training.
    Individual(Box<IndividualOptions>),
    /// The updates of mini-sets are clipped: `--clipping batch`.
    Batch(Box<BatchOptions>),
    /// The updates of users are clipped: `shakespeare`, or `--federated`.
    Federated(Box<FederatedOptions>),
}

impl Training {
    /// Parses the command line, the name of the program included.
    ///
    /// # Errors
    ///
    /// Returns clap's error, which is also the help text if help is requested.
    pub fn parse<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let dataset = Choice::of(&words).dataset;
        let words = recipes::expanded(words, dataset.as_deref()).map_err(|error| {
            let kind = clap::error::ErrorKind::ValueValidation;
            IndividualOptions::command().error(kind, error)
        })?;
        let choice = Choice::of(&words);
        Ok(if choice.federated || choice.dataset.as_deref() == Some("shakespeare") {
            Self::Federated(Box::new(FederatedOptions::read(words)?))
        } else if choice.clipping.as_deref() == Some("batch") {
            Self::Batch(Box::new(BatchOptions::read(words)?))
        } else {
            Self::Individual(Box::new(IndividualOptions::read(words)?))
        })
    }

    /// Trains, and writes the results.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError`] if an option is impossible, the data cannot be read, or the training
    /// fails.
    pub fn run(self) -> Result<(), TrainError> {
        match self {
            Self::Individual(options) => individual::run(*options).map(|_| ()),
            Self::Batch(options) => batch_clipping::run(*options).map(|_| ()),
            Self::Federated(options) => federated::run(*options).map(|_| ()),
        }
    }
}

/// The options that choose a training mode.
#[derive(Debug, Default, PartialEq)]
struct Choice {
    dataset: Option<String>,
    clipping: Option<String>,
    federated: bool,
}

impl Choice {
    /// Reads the choice with the options of all training modes at once, so that the value of an
    /// option is never mistaken for a data set. The parser of the training mode reports errors.
    fn of(words: &[OsString]) -> Self {
        let mut all = clap::Command::new("train")
            .ignore_errors(true)
            .args_override_self(true)
            .disable_help_flag(true)
            .disable_version_flag(true)
            .arg(clap::Arg::new("help").short('h').long("help").action(ArgAction::SetTrue));
        let trainings =
            [IndividualOptions::command(), BatchOptions::command(), FederatedOptions::command()];
        for arg in trainings.iter().flat_map(clap::Command::get_arguments) {
            if all.get_arguments().any(|known| known.get_id() == arg.get_id()) {
                continue;
            }
            let arg = arg.clone().required(false).default_value(None);
            all = all.arg(match arg.get_action() {
                ArgAction::SetTrue => arg,
                // Any value, because the training modes have different choices.
                _ => arg.value_parser(clap::value_parser!(OsString)),
            });
        }
        let Ok(matches) = all.try_get_matches_from(words) else { return Self::default() };
        let value = |id: &str| matches.get_one::<OsString>(id)?.to_str().map(String::from);
        // Without a default if the line has an error.
        let federated = matches.try_get_one::<bool>("federated").ok().flatten() == Some(&true);
        Self { dataset: value("dataset"), clipping: value("clipping"), federated }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(line: &str) -> Result<Training, clap::Error> {
        Training::parse(["train"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn the_data_set_or_the_flag_asks_for_users() {
        let line = "--rounds 3 shakespeare --federated";
        assert!(matches!(parse(line).unwrap(), Training::Federated(_)));
        assert!(parse("mnist --federated").unwrap_err().to_string().contains("'mnist'"));
        // Not a data set, but the value of an option.
        let line = "--output shakespeare mnist --epochs 3";
        assert!(matches!(parse(line).unwrap(), Training::Individual(_)));
        assert!(matches!(parse("").unwrap(), Training::Individual(_)));
    }

    #[test]
    fn batch_clipping_is_asked_for_in_either_spelling() {
        for line in ["mnist --clipping batch --epochs 2", "--clipping=batch"] {
            assert!(matches!(parse(line).unwrap(), Training::Batch(_)), "{line}");
        }
        assert!(matches!(parse("--clipping flat").unwrap(), Training::Individual(_)));
        assert!(parse("batch").unwrap_err().to_string().contains("'batch'"));
    }

    #[test]
    fn every_training_has_its_own_help() {
        let help = |line: &str| parse(line).unwrap_err().to_string();
        assert!(help("--help").contains("--quantile-lr") && !help("--help").contains("--rounds"));
        assert!(help("shakespeare --help").contains("--rounds"));
        assert!(help("--clipping batch -h").contains("--mini-set-size"));
        assert!(parse("--rounds 3").unwrap_err().to_string().contains("'--rounds'"));
    }

    #[test]
    fn a_line_with_an_error_is_refused_by_the_parser_of_its_training() {
        for line in ["--output", "--lr", "--what", "--epochs x", "mnist mnist", "--lr 1 --lr 2"] {
            assert!(parse(line).unwrap_err().to_string().starts_with("error: "), "{line}");
        }
    }
}
