//! The figures of the papers, each a subcommand with the same options.

use burn_dp_examples::training::TrainError;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand, error::ErrorKind};

use super::experiment::{FigureExperiment, figure};
use super::figure::Figure;
use super::measured::FigureOptions;
use super::{
    clipping_memory, clipping_time, clipping_utility, correlated_noise, correlated_noise_users,
    correlated_noise_verdicts, count_share, layer_norms, layerwise_clipping, layerwise_mini_sets,
    layerwise_noise, layerwise_privacy, layerwise_schedules, layerwise_variants, quantile_tracking,
    tan_averages, tan_budget, tan_data_size, tan_privacy, tan_scaling, tan_transfer, update_norms,
    user_clipping, user_variants,
};

/// All experiments with a verdict, in the order of the page.
pub(super) const FIGURES: [FigureExperiment; 30] = [
    figure(
        clipping_time::MODELS,
        clipping_time::models,
        clipping_time::judge_models,
        "Time of an epoch of five networks (fast clipping, figure 5)",
    ),
    figure(
        clipping_time::BATCHES,
        clipping_time::batches,
        clipping_time::judge_batches,
        "Time of an epoch against the batch size (fast clipping, figure 6)",
    ),
    figure(
        clipping_time::DEPTHS,
        clipping_time::depths,
        clipping_time::judge_depths,
        "Time of an epoch against the depth (fast clipping, figure 7)",
    ),
    figure(
        clipping_time::ARCHITECTURES,
        clipping_time::architectures,
        clipping_time::judge_architectures,
        "Time of an epoch of residual and VGG networks (fast clipping, figure 8)",
    ),
    figure(
        clipping_time::PIXELS,
        clipping_time::pixels,
        clipping_time::judge_pixels,
        "Time of an epoch against the size of the images (fast clipping, figure 9)",
    ),
    figure(
        clipping_memory::NAME,
        clipping_memory::run,
        clipping_memory::judge,
        "Largest batch within a memory limit (fast clipping, section 6.7)",
    ),
    figure(
        quantile_tracking::NAME,
        quantile_tracking::run,
        quantile_tracking::judge,
        "How adaptive clipping tracks a quantile from a threshold that is far off",
    ),
    figure(
        clipping_utility::NAME,
        clipping_utility::run,
        clipping_utility::judge,
        "Adaptive clipping without tuning, and fixed thresholds at several ε",
    ),
    figure(
        update_norms::NAME,
        update_norms::run,
        update_norms::judge,
        "Norms of the updates of users in each layer over the rounds of a language model (adaptive \
         clipping, figure 1)",
    ),
    figure(
        user_clipping::NAME,
        user_clipping::run,
        user_clipping::judge,
        "Adaptive clipping of users without tuning, and fixed thresholds",
    ),
    figure(
        user_variants::NAME,
        user_variants::run,
        user_variants::judge,
        "Federated averaging and federated SGD, with SGD and Adam on the server (adaptive \
         clipping, algorithm 1)",
    ),
    figure(
        count_share::NAME,
        count_share::run,
        count_share::judge,
        "Accuracy against the share of the budget for the counts of adaptive clipping",
    ),
    figure(
        tan_privacy::NAME,
        tan_privacy::run,
        tan_privacy::judge,
        "ε against σ at a constant total amount of noise (TAN, figure 2)",
    ),
    figure(
        tan_scaling::NAME,
        tan_scaling::run,
        tan_scaling::judge,
        "Accuracy against the batch size at constant σ/B: small runs predict a large one (TAN, \
         figure 1)",
    ),
    figure(
        tan_transfer::NAME,
        tan_transfer::run,
        tan_transfer::judge,
        "Hyper-parameters that are chosen at a small batch, at a large one (TAN, figure 1)",
    ),
    figure(
        tan_budget::NAME,
        tan_budget::run,
        tan_budget::judge,
        "Batch size, noise and steps for a compute limit at equal ε (TAN, section 3)",
    ),
    figure(
        tan_data_size::NAME,
        tan_data_size::run,
        tan_data_size::judge,
        "ε against the size of the data set (TAN, section 4)",
    ),
    figure(
        tan_averages::NAME,
        tan_averages::run,
        tan_averages::judge,
        "Random copies of each image and averaged weights (TAN, section 5)",
    ),
    figure(
        layer_norms::NAME,
        layer_norms::run,
        layer_norms::judge,
        "Norms of the gradients of the layers over a training (batch clipping, figure 1)",
    ),
    figure(
        layerwise_clipping::NAME,
        layerwise_clipping::run,
        layerwise_clipping::judge,
        "Batch and individual clipping, layerwise and full gradient clipping (batch clipping, \
         figures 4 and 18)",
    ),
    figure(
        layerwise_variants::NAME,
        layerwise_variants::run,
        layerwise_variants::judge,
        "Variants of layerwise clipping with the same guarantee (batch clipping, sections 3.3, \
         3.4, 4.4 and B.2)",
    ),
    figure(
        layerwise_mini_sets::NAME,
        layerwise_mini_sets::run,
        layerwise_mini_sets::judge,
        "Accuracy against size and number of mini-sets (batch clipping, section 3.1)",
    ),
    figure(
        layerwise_noise::NOISE,
        layerwise_noise::noise,
        layerwise_noise::judge_noise,
        "Accuracy of batch and layerwise clipping against σ (batch clipping, figures 5, 9 and 12)",
    ),
    figure(
        layerwise_noise::THRESHOLD,
        layerwise_noise::threshold,
        layerwise_noise::judge_threshold,
        "Accuracy of batch and layerwise clipping against C (batch clipping, figures 6, 7 and 11)",
    ),
    figure(
        layerwise_noise::BATCH_NORM,
        layerwise_noise::batch_norm,
        layerwise_noise::judge_batch_norm,
        "With and without BatchNorm, and its statistics (batch clipping, figures 13 and 14)",
    ),
    figure(
        layerwise_schedules::NAME,
        layerwise_schedules::run,
        layerwise_schedules::judge,
        "Without BatchNorm, with constant and decaying learning rate and threshold (batch \
         clipping, figures 15 to 17)",
    ),
    figure(
        layerwise_privacy::NAME,
        layerwise_privacy::run,
        layerwise_privacy::judge,
        "Trade-off functions of layerwise clipping: the limit and the guarantee (batch clipping, \
         appendix B.1)",
    ),
    figure(
        correlated_noise::ERROR,
        correlated_noise::errors,
        correlated_noise::judge_errors,
        "Error of prefix sums under correlated noise, against the number of steps",
    ),
    figure(
        correlated_noise::ACCURACY,
        correlated_noise::accuracy,
        correlated_noise_verdicts::judge,
        "Accuracy at equal ε with correlated and with independent noise",
    ),
    figure(
        correlated_noise_users::NAME,
        correlated_noise_users::run,
        correlated_noise_verdicts::judge,
        "Accuracy at equal ε for users, with correlated and with independent noise",
    ),
];

/// One figure, with its options.
#[derive(Debug, Clone)]
pub struct FigureCommand {
    index: usize,
    options: FigureOptions,
}

impl FigureCommand {
    /// Measures the figure.
    pub(super) fn run(&self) -> Result<Figure, TrainError> {
        FIGURES[self.index].run(&self.options)
    }
}

impl Subcommand for FigureCommand {
    fn augment_subcommands(command: Command) -> Command {
        let figure = |FigureExperiment { name, about, .. }: &FigureExperiment| {
            FigureOptions::augment_args(Command::new(*name)).about(*about).long_about(None)
        };
        command.subcommands(FIGURES.iter().map(figure))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        FIGURES.iter().any(|figure| figure.name == name)
    }
}

impl FromArgMatches for FigureCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let named = |(name, options)| {
            let index = FIGURES.iter().position(|figure| figure.name == name)?;
            Some((index, options))
        };
        match matches.subcommand().and_then(named) {
            Some((index, options)) => {
                Ok(Self { index, options: FigureOptions::from_arg_matches(options)? })
            }
            None => Err(Error::new(ErrorKind::MissingSubcommand)),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{Experiment, ExperimentOptions};
    use super::*;
    use clap::Parser;

    #[test]
    fn every_figure_is_a_subcommand_with_its_options() {
        for (index, figure) in FIGURES.iter().enumerate() {
            let words = ["experiment", figure.name, "--quick", "--seeds", "4"];
            let options = ExperimentOptions::try_parse_from(words).unwrap();
            let Experiment::Figure(found) = options.experiment else { panic!("{}", figure.name) };
            assert_eq!((found.index, found.options.seeds.as_slice()), (index, &[4][..]));
            assert!(found.options.quick && FigureCommand::has_subcommand(figure.name));
        }
        assert!(ExperimentOptions::try_parse_from(["experiment", "nothing"]).is_err());
    }
}
