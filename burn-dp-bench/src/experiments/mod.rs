//! Experiments, one file per subcommand.

mod accuracy_epsilon;
mod adaptive_clipping;
mod all;
mod batch_clipping;
mod batch_clipping_privacy;
mod clipping_time;
mod clipping_utility;
mod correlated_noise;
mod figure;
mod layer_norms;
mod layerwise;
mod layerwise_clipping;
mod layerwise_noise;
mod measured;
mod quantile_tracking;
mod tan_data_size;
mod tan_privacy;
mod tan_scaling;
mod trial;

pub use accuracy_epsilon::{AccuracyAtEpsilon, AccuracyEpsilon, AccuracyEpsilonOptions};
pub use adaptive_clipping::{AdaptiveClippingOptions, AdaptiveClippingRun};
pub use all::AllOptions;
pub use batch_clipping::{BatchClippingExperiment, BatchClippingOptions};
pub use batch_clipping_privacy::{BatchClippingPrivacy, BatchClippingPrivacyOptions};
pub use figure::{Figure, FigurePoint, FigureSeries, Preset, Verdict};
use measured::FigureExperiment;
pub use measured::FigureOptions;

use clap::{Parser, Subcommand};

use burn_dp_examples::training::TrainError;

/// Run an experiment: it prints a table and writes JSON and a plot.
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
    /// Clipping to a private quantile of the norms, compared with the best threshold of a grid.
    AdaptiveClipping(AdaptiveClippingOptions),
    /// Batch clipping compared with individual clipping, and layerwise with full gradient clipping.
    BatchClipping(BatchClippingOptions),
    /// Trade-off functions of batch clipping with layerwise clipping: the limit and the guarantee.
    BatchClippingPrivacy(BatchClippingPrivacyOptions),
    /// Time of an epoch of five networks (fast clipping, figure 5).
    ClippingModels(FigureOptions),
    /// Time of an epoch against the batch size (fast clipping, figure 6).
    ClippingBatchSize(FigureOptions),
    /// Time of an epoch against the depth (fast clipping, figure 7).
    ClippingDepth(FigureOptions),
    /// Time of an epoch of residual and VGG networks (fast clipping, figure 8).
    ClippingArchitectures(FigureOptions),
    /// Time of an epoch against the size of the images (fast clipping, figure 9).
    ClippingPixels(FigureOptions),
    /// ε against σ at a constant total amount of noise (TAN, figure 2).
    TanPrivacy(FigureOptions),
    /// Accuracy against the batch size at constant σ/B: small runs predict a large one (TAN, figure
    /// 1).
    TanScaling(FigureOptions),
    /// ε against the size of the data set (TAN, section 4).
    TanDataSize(FigureOptions),
    /// Adaptive clipping without tuning, and fixed thresholds at several ε.
    ClippingUtility(FigureOptions),
    /// How adaptive clipping tracks a quantile from a threshold that is far off.
    QuantileTracking(FigureOptions),
    /// Batch and individual clipping, layerwise and full gradient clipping (batch clipping, figures
    /// 4 and 18).
    LayerwiseClipping(FigureOptions),
    /// Accuracy of batch and layerwise clipping against σ (batch clipping, figures 5, 9 and 12).
    LayerwiseNoise(FigureOptions),
    /// Accuracy of batch and layerwise clipping against C (batch clipping, figures 6, 7 and 11).
    LayerwiseThreshold(FigureOptions),
    /// With and without BatchNorm (batch clipping, figures 13 and 14).
    BatchNorm(FigureOptions),
    /// Norms of the gradients of the layers over a training (batch clipping, figure 1).
    LayerNorms(FigureOptions),
    /// Error of prefix sums under correlated noise, against the number of steps.
    CorrelatedNoise(FigureOptions),
    /// Accuracy at equal ε with correlated and with independent noise.
    CorrelatedNoiseAccuracy(FigureOptions),
    /// All figures with a verdict, and a page of them.
    All(AllOptions),
}

/// The experiments with a verdict.
const FIGURES: [FigureExperiment; 17] = [
    (clipping_time::MODELS, clipping_time::models),
    (clipping_time::BATCHES, clipping_time::batches),
    (clipping_time::DEPTHS, clipping_time::depths),
    (clipping_time::ARCHITECTURES, clipping_time::architectures),
    (clipping_time::PIXELS, clipping_time::pixels),
    (quantile_tracking::NAME, quantile_tracking::run),
    (clipping_utility::NAME, clipping_utility::run),
    (tan_privacy::NAME, tan_privacy::run),
    (tan_scaling::NAME, tan_scaling::run),
    (tan_data_size::NAME, tan_data_size::run),
    (layer_norms::NAME, layer_norms::run),
    (layerwise_clipping::NAME, layerwise_clipping::run),
    (layerwise_noise::NOISE, layerwise_noise::noise),
    (layerwise_noise::THRESHOLD, layerwise_noise::threshold),
    (layerwise_noise::BATCH_NORM, layerwise_noise::batch_norm),
    (correlated_noise::ERROR, correlated_noise::errors),
    (correlated_noise::ACCURACY, correlated_noise::accuracy),
];

/// Runs the experiment.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, [`TrainError::Data`] if the data cannot
/// be read, and the error of a run that fails.
pub fn run(options: ExperimentOptions) -> Result<(), TrainError> {
    match options.experiment {
        Experiment::AccuracyEpsilon(options) => accuracy_epsilon::run(options).map(|_| ()),
        Experiment::AdaptiveClipping(options) => adaptive_clipping::run(options).map(|_| ()),
        Experiment::BatchClippingPrivacy(options) => {
            batch_clipping_privacy::run(options).map(|_| ())
        }
        Experiment::BatchClipping(options) => batch_clipping::run(options).map(|_| ()),
        Experiment::ClippingModels(options) => clipping_time::models(&options).map(|_| ()),
        Experiment::ClippingBatchSize(options) => clipping_time::batches(&options).map(|_| ()),
        Experiment::ClippingDepth(options) => clipping_time::depths(&options).map(|_| ()),
        Experiment::ClippingArchitectures(options) => {
            clipping_time::architectures(&options).map(|_| ())
        }
        Experiment::ClippingPixels(options) => clipping_time::pixels(&options).map(|_| ()),
        Experiment::TanPrivacy(options) => tan_privacy::run(&options).map(|_| ()),
        Experiment::TanDataSize(options) => tan_data_size::run(&options).map(|_| ()),
        Experiment::ClippingUtility(options) => clipping_utility::run(&options).map(|_| ()),
        Experiment::TanScaling(options) => tan_scaling::run(&options).map(|_| ()),
        Experiment::QuantileTracking(options) => quantile_tracking::run(&options).map(|_| ()),
        Experiment::LayerwiseClipping(options) => layerwise_clipping::run(&options).map(|_| ()),
        Experiment::LayerwiseNoise(options) => layerwise_noise::noise(&options).map(|_| ()),
        Experiment::LayerwiseThreshold(options) => layerwise_noise::threshold(&options).map(|_| ()),
        Experiment::BatchNorm(options) => layerwise_noise::batch_norm(&options).map(|_| ()),
        Experiment::LayerNorms(options) => layer_norms::run(&options).map(|_| ()),
        Experiment::CorrelatedNoise(options) => correlated_noise::errors(&options).map(|_| ()),
        Experiment::CorrelatedNoiseAccuracy(options) => {
            correlated_noise::accuracy(&options).map(|_| ())
        }
        Experiment::All(options) => all::run(&options, &FIGURES),
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
        let adaptive = [
            "epochs",
            "batch-size",
            "physical-batch-size",
            "train-size",
            "test-size",
            "epsilon",
            "lr",
            "grid",
            "start",
        ];
        let batch = [
            "epochs",
            "batch-size",
            "train-size",
            "test-size",
            "public-size",
            "sigma",
            "max-grad-norm",
            "lr",
            "lr-decay",
        ];
        let privacy = ["layers", "batch-size", "dataset-size", "larger", "epochs", "sigma"];
        let mut lines = zeros("accuracy-epsilon", &accuracy);
        lines.extend(zeros("adaptive-clipping", &adaptive));
        lines.extend(zeros("batch-clipping", &batch));
        lines.extend(zeros("batch-clipping-privacy", &privacy));
        for (line, expected) in [
            ("batch-clipping-privacy --dataset-size 9 --batch-size 10", "--batch-size must be at"),
            ("batch-clipping-privacy --epochs 18446744073709551615", "more than can be counted"),
            ("accuracy-epsilon --epsilons 3,-1", "--epsilons must be a number greater than 0"),
            ("accuracy-epsilon --epochs 1000000001", "--epochs must be at most 1000000000"),
            ("accuracy-epsilon --train-size 100", "--batch-size must be at most the 100 training"),
            ("accuracy-epsilon --delta 0.5", "less than 1 / examples = 1/12000"),
            ("accuracy-epsilon --data-dir nowhere", "--data-dir nowhere is given but the drawn"),
            ("accuracy-epsilon --json none/x.json", "--json none does not exist"),
            ("accuracy-epsilon --svg none/x.svg", "--svg none does not exist"),
            ("accuracy-epsilon imdb", "--data-dir must be given for imdb"),
            ("adaptive-clipping --target-quantiles 0.5,2", "must be"),
            ("adaptive-clipping --epochs 1000000001", "--epochs must be at most 1000000000"),
            ("batch-clipping --epochs 1000000001", "--epochs must be at most 1000000000"),
            (
                "adaptive-clipping --test-size 10000001",
                "--test-size must be at most 10000000 drawn",
            ),
            ("batch-clipping --train-size 10000001", "--train-size must be at most 10000000 drawn"),
            ("batch-clipping --data-dir nowhere", "--data-dir nowhere is given but the drawn"),
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
