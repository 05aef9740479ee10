//! Experiments, one file per subcommand.

mod accuracy_epsilon;
mod all;
mod clipping_memory;
mod clipping_time;
mod clipping_utility;
mod correlated_noise;
mod correlated_noise_peers;
mod correlated_noise_users;
mod correlated_noise_verdicts;
mod count_share;
mod experiment;
mod figure;
mod figures;
#[cfg(feature = "finetune")]
mod finetune_gain;
mod fixed_thresholds;
mod layer_norms;
mod layerwise;
mod layerwise_clipping;
mod layerwise_curves;
mod layerwise_mini_sets;
mod layerwise_noise;
mod layerwise_ordinary;
mod layerwise_privacy;
mod layerwise_schedules;
mod layerwise_variants;
mod measured;
mod point;
mod quantile_tracking;
mod tan_averages;
mod tan_budget;
mod tan_data_size;
mod tan_privacy;
mod tan_scaling;
mod tan_transfer;
mod trial;
mod update_norms;
mod user_clipping;
mod user_training;
mod user_variants;
mod verdict;

pub use accuracy_epsilon::{AccuracyAtEpsilon, AccuracyEpsilon, AccuracyEpsilonOptions};
pub use all::AllOptions;
pub use figure::{Figure, FigurePoint, FigureSeries, Preset};
pub use figures::FigureCommand;
#[cfg(feature = "finetune")]
pub use finetune_gain::FinetuneGainOptions;
pub use measured::FigureOptions;
pub use verdict::Verdict;

use clap::{Parser, Subcommand};

use burn_dp_examples::training::TrainError;

use crate::bench::{self, WorkerOptions};

/// Run an experiment: it prints a table and writes JSON and a plot.
///
/// `cargo xtask experiment finetune-gain`, on your own texts, is built on request.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask experiment", bin_name = "cargo xtask experiment", version)]
pub struct ExperimentOptions {
    /// The experiment.
    #[command(subcommand)]
    pub experiment: Experiment,
}

/// The experiments.
#[derive(Subcommand, Debug, Clone)]
pub enum Experiment {
    /// Accuracy for several privacy budgets, compared with ordinary training.
    AccuracyEpsilon(AccuracyEpsilonOptions),
    /// The gain of private training from public texts, on your own texts.
    #[cfg(feature = "finetune")]
    FinetuneGain(finetune_gain::FinetuneGainOptions),
    /// A figure with a verdict.
    #[command(flatten)]
    Figure(FigureCommand),
    /// All figures with a verdict, and a page of them.
    All(AllOptions),
    /// Run the steps whose memory is measured.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

/// Runs the experiment.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, [`TrainError::Data`] if the data cannot
/// be read, and the error of a run that fails.
pub fn run(options: ExperimentOptions) -> Result<(), TrainError> {
    match options.experiment {
        Experiment::AccuracyEpsilon(options) => accuracy_epsilon::run(options).map(|_| ()),
        #[cfg(feature = "finetune")]
        Experiment::FinetuneGain(options) => finetune_gain::run(&options).map(|_| ()),
        Experiment::Figure(figure) => figure.run().map(|_| ()),
        Experiment::All(options) => all::run(&options, &figures::FIGURES),
        Experiment::Worker(options) => bench::work(&options),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        ExperimentOptions::command().debug_assert();
    }

    #[test]
    fn impossible_numbers_are_refused_before_anything_is_written() {
        let zeros = |experiment: &str, options: &[&'static str]| {
            let line = |name| (format!("{experiment} --{name} 0"), format!("--{name} must be"));
            options.iter().map(line).collect::<Vec<_>>()
        };
        let accuracy = ["epochs", "batch-size", "train-size", "test-size", "epsilons", "delta"];
        let mut lines = zeros("accuracy-epsilon", &accuracy);
        for (line, expected) in [
            ("accuracy-epsilon --epsilons 3,-1", "--epsilons must be a number greater than 0"),
            ("accuracy-epsilon --epochs 1000000001", "--epochs must be at most 1000000000"),
            ("accuracy-epsilon --train-size 100", "--batch-size must be at most the 100 training"),
            ("accuracy-epsilon --delta 0.5", "less than 1 / examples = 1/12000"),
            (
                "accuracy-epsilon --data-dir nowhere",
                "--data-dir nowhere is given but the synthetic",
            ),
            ("accuracy-epsilon --json none/x.json", "--json none does not exist"),
            ("accuracy-epsilon --svg none/x.svg", "--svg none does not exist"),
            ("accuracy-epsilon imdb", "--data-dir must be given for imdb"),
        ] {
            lines.push((line.into(), expected.into()));
        }
        for (line, expected) in lines {
            let folder = tempfile::tempdir().unwrap();
            let output = folder.path().join("out");
            let words = ["experiment"].into_iter().chain(line.split(' '));
            let words = words.chain(["--output", output.to_str().unwrap()]);
            let options = ExperimentOptions::try_parse_from(words).unwrap();
            let error = run(options).unwrap_err().to_string();
            assert!(error.contains(&expected), "{line}: {error}");
            assert!(!output.exists(), "{line}");
        }
    }
}
