//! The experiments of the papers; one subcommand, one file.

mod adaptive_clipping;
mod batch_clipping;
mod batch_clipping_privacy;

pub use adaptive_clipping::{AdaptiveClippingOptions, AdaptiveClippingRun};
pub use batch_clipping::{BatchClippingExperiment, BatchClippingOptions};
pub use batch_clipping_privacy::{BatchClippingPrivacy, BatchClippingPrivacyOptions};

use clap::{Parser, Subcommand};

use crate::training::TrainError;

/// Run an experiment of a paper: it prints a table and writes JSON and a plot.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask experiment", bin_name = "cargo xtask experiment", version)]
pub struct ExperimentOptions {
    /// Which one.
    #[command(subcommand)]
    pub experiment: Experiment,
}

/// The experiments.
#[derive(Subcommand, Debug, Clone)]
pub enum Experiment {
    /// Clipping to a private quantile of the norms against the best threshold of a grid.
    AdaptiveClipping(AdaptiveClippingOptions),
    /// Batch clipping against individual clipping, adaptive layerwise against full gradient clipping.
    BatchClipping(BatchClippingOptions),
    /// The trade-off functions of batch clipping with layerwise clipping: the limit and the guarantee.
    BatchClippingPrivacy(BatchClippingPrivacyOptions),
}

/// Runs the experiment.
///
/// # Errors
///
/// When an option is impossible, the data cannot be read, or a run fails.
pub fn run(options: ExperimentOptions) -> Result<(), TrainError> {
    match options.experiment {
        Experiment::AdaptiveClipping(options) => adaptive_clipping::run(options).map(|_| ()),
        Experiment::BatchClippingPrivacy(options) => {
            batch_clipping_privacy::run(options).map(|_| ())
        }
        Experiment::BatchClipping(options) => batch_clipping::run(options).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        ExperimentOptions::command().debug_assert();
    }
}
