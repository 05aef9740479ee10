//! The experiments of the papers; one subcommand, one file.

mod batch_clipping;

pub use batch_clipping::{BatchClippingExperiment, BatchClippingOptions};

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
    /// Batch clipping against individual clipping, adaptive layerwise against full gradient clipping.
    BatchClipping(BatchClippingOptions),
}

/// Runs the experiment.
///
/// # Errors
///
/// When an option is impossible, the data cannot be read, or a run fails.
pub fn run(options: ExperimentOptions) -> Result<(), TrainError> {
    match options.experiment {
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
