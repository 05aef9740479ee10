//! Command-line options of a search.

use std::path::PathBuf;

use burn_dp_accountant::search::PrivateSearch;
use burn_dp_accountant::{Rounded, RunCount};
use clap::{Parser, ValueEnum};

use crate::training::options::{Given, typed};
use crate::training::{TrainError, TrainOptions, checks};

/// Search hyperparameters privately: train a random, secret number of times, each time with options
/// that are drawn at random, and release the model with the best test accuracy.
///
/// The budget covers the whole search. Options after `--` are passed to `cargo xtask train`.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask tune", bin_name = "cargo xtask tune", version)]
#[command(allow_negative_numbers = true)]
pub struct TuneOptions {
    /// An option of the training and its values, for example lr=0.1,0.3,1; each run draws one value
    /// of each.
    #[arg(long, value_name = "OPTION=VALUE,…", required = true)]
    pub choose: Vec<String>,
    /// Distribution of the number of runs.
    #[arg(long, value_enum, default_value_t = RunsName::Geometric)]
    pub runs: RunsName,
    /// Shape of --runs negative-binomial, greater than -1: 1 is geometric, 0 is logarithmic. A
    /// smaller shape has a longer tail.
    #[arg(long, value_name = "SHAPE", allow_hyphen_values = true)]
    pub shape: Option<f64>,
    /// Expected number of runs.
    #[arg(long, value_name = "N", default_value_t = 8.0)]
    pub mean_runs: f64,
    /// Privacy budget of the whole search.
    #[arg(long, default_value_t = 3.0)]
    pub epsilon: f64,
    /// Probability with which the budget may be exceeded; less than 1 / the number of examples.
    #[arg(long, default_value_t = 1e-5)]
    pub delta: f64,
    /// Ledger of earlier releases on the same data: `ledger.json` of an earlier run or search, or
    /// another ledger of the accountant. Repeat the option for several ledgers. The budget is then
    /// for those releases and the search together. A resumed search needs the same files again.
    #[arg(long, value_name = "FILE")]
    pub earlier_ledger: Vec<PathBuf>,
    /// Folder for the model, the privacy statement and the chosen options.
    #[arg(long, value_name = "DIR", default_value = "out/tune")]
    pub output: PathBuf,
    /// Continue the search that was interrupted in the output folder.
    #[arg(long)]
    pub resume: bool,
    /// Options of `cargo xtask train` for all runs.
    #[arg(last = true, allow_hyphen_values = true)]
    pub train: Vec<String>,
}

/// Distribution of the number of runs.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsName {
    /// At least one run; few runs are the most probable.
    Geometric,
    /// At least one run, with a longer tail.
    Logarithmic,
    /// At least one run: the truncated negative binomial distribution of --shape.
    NegativeBinomial,
    /// Concentrated around the mean; zero runs are possible.
    Poisson,
}

/// Options that a search may choose: they do not change what a run releases.
const CHOOSABLE: [&str; 7] =
    ["lr", "max-grad-norm", "momentum", "optimizer", "schedule", "ema-decay", "seed"];

/// Options that the search sets itself, or that contradict it.
const REFUSED: [&str; 14] = [
    // It has its own ε and other options of this list.
    "--recipe",
    "--epsilon",
    "--delta",
    "--noise-multiplier",
    // The statement of one run is not released.
    "--group",
    // They are counted once for the search, not in each run.
    "--earlier-ledger",
    "--output",
    "--json",
    "--resume",
    "--insecure-seed",
    "--non-private",
    "--skip-lost-steps",
    // The bound of a search has no simulation.
    "--simulation-seed",
    "--simulation-samples",
];

/// Least δ over what the draw of the number of runs adds to it, which the statement names.
const LEAST_DELTA: f64 = 100.0;

/// Maximum number of combinations of values.
const MOST: usize = 10_000;

impl TuneOptions {
    /// Returns every combination of values, as options of the training.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option that cannot be chosen, and if a number is not
    /// possible.
    pub(super) fn candidates(&self) -> Result<Vec<Vec<String>>, TrainError> {
        checks::positive([("--epsilon", self.epsilon), ("--mean-runs", self.mean_runs)])?;
        let least = LEAST_DELTA * PrivateSearch::delta_of_draw(self.epsilon);
        if self.delta.is_nan() || self.delta < least {
            let reason = format!(
                "must be at least {} at --epsilon {}, got {:e}: the number of runs is drawn in \
                 finite precision, which adds to delta; give a larger one",
                Rounded::up(least).with_digits(2),
                self.epsilon,
                self.delta
            );
            return Err(TrainError::option("--delta", reason));
        }
        if self.runs != RunsName::Poisson && self.mean_runs < 1.0 {
            let reason = format!("must be at least 1, got {}", self.mean_runs);
            return Err(TrainError::option("--mean-runs", reason));
        }
        match (self.runs, self.shape) {
            (RunsName::NegativeBinomial, Some(shape)) if shape > -1.0 && shape.is_finite() => {}
            (RunsName::NegativeBinomial, Some(shape)) => {
                let reason = format!("must be a number greater than -1, got {shape}; try 0.5");
                return Err(TrainError::option("--shape", reason));
            }
            (RunsName::NegativeBinomial, None) => {
                let reason = "is needed by --runs negative-binomial; try --shape 0.5";
                return Err(TrainError::option("--shape", reason));
            }
            (_, None) => {}
            (runs, Some(_)) => {
                let reason = format!(
                    "has no meaning with --runs {}; leave it out, or give --runs negative-binomial",
                    typed(runs)
                );
                return Err(TrainError::option("--shape", reason));
            }
        }
        if let Some((name, value)) = self.given()?.first_of(&REFUSED) {
            let option = format!("{name} {value}");
            let reason = format!(
                "must not contain {}: the search has such an option of its own, before --, or it \
                 contradicts the search; see `cargo xtask tune --help`",
                option.trim_end()
            );
            return Err(TrainError::option("--", reason));
        }
        let mut candidates = vec![Vec::new()];
        for choice in &self.choose {
            let (name, values) = choice.split_once('=').ok_or_else(|| {
                let reason = format!("must be like lr=0.1,0.3, got {choice}");
                TrainError::option("--choose", reason)
            })?;
            let name = name.trim_start_matches("--");
            if !CHOOSABLE.contains(&name) {
                let reason = format!(
                    "can be {}, got {name}: every run must have the same privacy, so options that \
                     change steps, sampling or noise are given once, after --",
                    CHOOSABLE.join(", ")
                );
                return Err(TrainError::option("--choose", reason));
            }
            let values: Vec<&str> = values.split(',').filter(|value| !value.is_empty()).collect();
            if values.is_empty() || candidates.len() * values.len() > MOST {
                let reason = format!("{choice} must give 1 to {MOST} combinations in all");
                return Err(TrainError::option("--choose", reason));
            }
            candidates = candidates
                .iter()
                .flat_map(|candidate: &Vec<String>| {
                    let with = |value: &&str| {
                        let mut candidate = candidate.clone();
                        candidate.push(format!("--{name}={value}"));
                        candidate
                    };
                    values.iter().map(with).collect::<Vec<_>>()
                })
                .collect();
        }
        Ok(candidates)
    }

    /// Returns the options of a run.
    ///
    /// # Arguments
    ///
    /// - `noise_multiplier`: the noise of a run; a placeholder before it is known
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the training has no such option or value.
    pub(super) fn training(
        &self,
        candidate: &[String],
        noise_multiplier: Option<f64>,
    ) -> Result<TrainOptions, TrainError> {
        let noise = format!("--noise-multiplier={}", noise_multiplier.unwrap_or(1.0));
        let delta = format!("--delta={}", self.delta);
        self.read(&[candidate, &[noise, delta]].concat())
    }

    /// Returns the options that are given for all runs.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the training has no such option or value.
    pub(super) fn given(&self) -> Result<Given, TrainError> {
        Ok(self.read(&[])?.given)
    }

    /// Parses the options of all runs, and `more`.
    fn read(&self, more: &[String]) -> Result<TrainOptions, TrainError> {
        let words = std::iter::once("train".to_string()).chain(self.train.iter().cloned());
        TrainOptions::read(words.chain(more.iter().cloned())).map_err(|error| {
            let error = error.to_string();
            let error = error.strip_prefix("error: ").unwrap_or(&error).trim_end();
            TrainError::option("--", format!("and --choose are not options of a run: {error}"))
        })
    }

    /// Returns the distribution of the number of runs.
    pub(super) fn run_count(&self) -> RunCount {
        match self.runs {
            RunsName::Geometric => RunCount::geometric(self.mean_runs),
            RunsName::Logarithmic => RunCount::logarithmic(self.mean_runs),
            RunsName::NegativeBinomial => RunCount::TruncatedNegativeBinomial {
                mean: self.mean_runs,
                shape: self.shape.unwrap_or(1.0),
            },
            RunsName::Poisson => RunCount::Poisson { mean: self.mean_runs },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    fn options(line: &str) -> TuneOptions {
        TuneOptions::try_parse_from(["tune"].into_iter().chain(line.split_whitespace())).unwrap()
    }

    #[test]
    fn candidates_are_all_combinations() {
        let candidates =
            options("--choose lr=0.1,1 --choose momentum=0,0.5,0.9").candidates().unwrap();
        assert_eq!(candidates.len(), 6);
        assert_eq!(candidates[5], ["--lr=1", "--momentum=0.9"]);
    }

    #[test]
    fn every_refused_option_is_an_option_of_the_training() {
        let command = TrainOptions::command();
        for name in REFUSED {
            let id = name[2..].replace('-', "_");
            assert!(command.get_arguments().any(|argument| argument.get_id() == &id), "{name}");
        }
    }

    #[test]
    fn the_shape_is_between_the_named_distributions() {
        let count = |line: &str| options(&format!("--choose lr=1 {line}")).run_count();
        let shaped = |shape: &str| count(&format!("--runs negative-binomial --shape {shape}"));
        assert_eq!(shaped("1"), count("--runs geometric"));
        assert_eq!(shaped("0"), count("--runs logarithmic"));
        assert_eq!(shaped("-0.5"), RunCount::TruncatedNegativeBinomial { mean: 8.0, shape: -0.5 });
    }

    #[test]
    fn what_changes_the_privacy_of_a_run_cannot_be_chosen() {
        for (line, expected) in [
            ("--choose batch-size=32,64", "can be lr"),
            ("--choose lr", "must be like lr=0.1,0.3"),
            ("--choose lr=", "combinations"),
            ("--choose lr=1 -- --epsilon 3", "must not contain --epsilon"),
            ("--choose lr=1 -- --recipe mnist-scattering", "must not contain --recipe"),
            ("--choose lr=1 -- --noise-multiplier=1", "must not contain --noise-multiplier 1"),
            ("--choose lr=1 -- --preset mnist-cnn", "must not contain --recipe mnist-cnn: "),
            ("--choose lr=1 -- --non-private", "must not contain --non-private: "),
            ("--choose lr=1 -- --epochs x", "are not options of a run: invalid value 'x'"),
            ("--choose lr=1 -- --earlier-ledger f", "must not contain --earlier-ledger"),
            ("--choose lr=1 -- --group 2", "must not contain --group"),
            ("--choose lr=1 -- --simulation-seed 1", "must not contain --simulation-seed"),
            ("--choose lr=1 --mean-runs 0.5", "must be at least 1"),
            ("--choose lr=1 --shape 0.5", "--shape has no meaning with --runs geometric"),
            ("--choose lr=1 --runs negative-binomial", "--shape is needed"),
            ("--choose lr=1 --runs negative-binomial --shape -1", "greater than -1, got -1"),
            ("--choose lr=1 --runs negative-binomial --shape inf", "greater than -1, got inf"),
            ("--choose lr=1 --epsilon 0", "--epsilon must be"),
            ("--choose lr=1 --delta 1e-12", "--delta must be at least 2.2e-9 at --epsilon 3, got"),
            ("--choose lr=1 --epsilon 20", "--delta must be at least 0.049 at --epsilon 20, got"),
            ("--choose lr=1 --delta nan", "--delta must be at least"),
        ] {
            let error = options(line).candidates().unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        // An option that is chosen twice is not a choice.
        let twice = options("--choose lr=1 --choose lr=2");
        assert!(twice.training(&twice.candidates().unwrap()[0], None).is_err());
        let unknown = options("--choose lr=fast");
        let candidates = unknown.candidates().unwrap();
        assert!(unknown.training(&candidates[0], None).is_err());
    }
}
