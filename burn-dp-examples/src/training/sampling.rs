//! How the units of a step are drawn, and what correlates the noise of the steps.

use std::path::PathBuf;

use burn_dp::optim::SamplingScheme;
use burn_dp_accountant::correlated_noise::Strategy;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::options::{Given, as_typed, typed};
use super::{TrainError, checks};

/// Number of parts of the data, unless it is given.
const PARTS: usize = 8;

/// How the examples of a step are drawn.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SamplingName {
    /// Each example independently with probability batch size / N.
    #[default]
    Poisson,
    /// As poisson, cut to at most --max-batch-size examples, and padded to fixed shapes.
    TruncatedPoisson,
    /// A uniform subset of exactly the batch size; the guarantee is for one example replaced.
    FixedSize,
    /// The batch size in independent draws; the guarantee is for one example replaced.
    WithReplacement,
    /// Parts of a permutation, another one in each epoch: no amplification by sampling.
    Shuffled,
    /// Parts of one permutation: no amplification by sampling.
    ShuffledOnce,
    /// Each example of one of --parts parts of the data, one part after the other.
    CyclicPoisson,
}

/// Options of the sampler, and of correlated noise.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingOptions {
    /// How the examples, or the users, of a step are drawn [default: poisson].
    #[arg(long, value_enum)]
    pub sampling: Option<SamplingName>,
    /// With --sampling truncated-poisson: largest number of examples, or users, in a step [default:
    /// eight standard deviations above the batch size].
    #[arg(long, value_name = "N")]
    pub max_batch_size: Option<usize>,
    /// With --sampling cyclic-poisson: number of parts of the data [default: 8].
    #[arg(long, value_name = "N")]
    pub parts: Option<usize>,
    /// File of a strategy for correlated noise, from `cargo xtask strategy --output`; with
    /// --sampling shuffled-once, shuffled or cyclic-poisson.
    #[arg(long, value_name = "FILE")]
    pub correlated_noise: Option<PathBuf>,
}

/// Checked options of the sampler. A resumed run must share all of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SamplingSettings {
    /// How the examples of a step are drawn.
    #[serde(serialize_with = "as_typed")]
    pub sampling: SamplingName,
    /// Largest number of examples in a step, where it is given.
    pub max_batch_size: Option<usize>,
    /// Number of parts of the data, where it is given.
    pub parts: Option<usize>,
}

impl SamplingOptions {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option of another sampler, or an impossible number.
    pub(super) fn check(&self, given: &Given) -> Result<SamplingSettings, TrainError> {
        let Self { max_batch_size, parts, .. } = *self;
        let sampling = self.sampling.unwrap_or_default();
        let choice = format!("with --sampling {}", typed(sampling));
        if sampling != SamplingName::TruncatedPoisson {
            given.refuse(&["--max-batch-size"], &choice, "--sampling truncated-poisson")?;
        }
        if sampling != SamplingName::CyclicPoisson {
            given.refuse(&["--parts"], &choice, "--sampling cyclic-poisson")?;
        }
        checks::at_least_one(max_batch_size.map(|max| ("--max-batch-size", max)))?;
        checks::at_least_one(parts.map(|parts| ("--parts", parts)))?;
        Ok(SamplingSettings { sampling, max_batch_size, parts })
    }

    /// Reads the strategy of correlated noise.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the file cannot be read.
    pub(super) fn strategy(&self) -> Result<Option<Strategy>, TrainError> {
        let strategy = |path: &PathBuf| {
            Strategy::load(path).map_err(|error| {
                let reason =
                    format!("{error}; write one with `cargo xtask strategy --output FILE`");
                TrainError::option("--correlated-noise", reason)
            })
        };
        self.correlated_noise.as_ref().map(strategy).transpose()
    }
}

impl SamplingSettings {
    /// Returns how the units of a step are drawn.
    ///
    /// # Arguments
    ///
    /// - `batch_size`: expected number of units in a step
    /// - `units`: number of units to train on
    pub(super) fn scheme(&self, batch_size: usize, units: usize) -> SamplingScheme {
        match self.sampling {
            SamplingName::Poisson => SamplingScheme::Poisson,
            SamplingName::TruncatedPoisson => {
                let far = (batch_size as f64 + 8.0 * (batch_size as f64).sqrt()).ceil();
                let max_batch_size = self.max_batch_size.unwrap_or(units.min(far as usize));
                SamplingScheme::TruncatedPoisson { max_batch_size }
            }
            SamplingName::FixedSize => SamplingScheme::FixedSize,
            SamplingName::WithReplacement => SamplingScheme::WithReplacement,
            SamplingName::Shuffled => SamplingScheme::Shuffled,
            SamplingName::ShuffledOnce => SamplingScheme::ShuffledOnce,
            SamplingName::CyclicPoisson => {
                SamplingScheme::CyclicPoisson { parts: self.parts.unwrap_or(PARTS) }
            }
        }
    }

    /// Checks the settings for a number of units.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if more units than there are fit into a step.
    pub(super) fn check_units(&self, units: usize, name: &str) -> Result<(), TrainError> {
        match self.max_batch_size.filter(|&max| max > units) {
            None => Ok(()),
            Some(max) => {
                let reason = format!(
                    "must be at most the {units} {name}, got {max}; leave it out for a limit that \
                     is hardly ever reached"
                );
                Err(TrainError::option("--max-batch-size", reason))
            }
        }
    }
}
