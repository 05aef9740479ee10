//! The sampling of the units of a step, and the strategy that correlates the noise of the steps.

use std::path::PathBuf;

use burn_dp::DpError;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp_accountant::Simulation;
use burn_dp_accountant::correlated_noise::Strategy;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::options::{Given, as_typed, headings, typed};
use super::{TrainError, checks};

/// Default number of parts of the data.
const PARTS: usize = 8;

/// Default minimum number of steps between two steps of a unit.
const SEPARATION: usize = 8;

/// How the examples of a step are drawn.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SamplingName {
    /// Each example independently with probability batch size / N.
    #[default]
    Poisson,
    /// Like poisson, truncated to at most --max-batch-size examples, and padded to fixed shapes.
    TruncatedPoisson,
    /// A uniform subset of exactly the batch size; the guarantee is for one example replaced.
    FixedSize,
    /// As many independent draws as the batch size; the guarantee is for one example replaced.
    WithReplacement,
    /// Parts of a permutation, a new one in each epoch: no amplification by sampling.
    Shuffled,
    /// Parts of one permutation: no amplification by sampling.
    ShuffledOnce,
    /// Poisson sampling from one of --parts parts of the data, in turn.
    CyclicPoisson,
    /// Each example in one random step of each epoch of --bins steps, the same in every epoch.
    BallsInBins,
    /// Like balls-in-bins, with a new random step in each epoch.
    RandomAllocation,
    /// Like poisson, with a pause after each step of an example: its steps are at least
    /// --separation apart.
    MinSeparation,
}

/// The samplers of each option that belongs to only a few samplers.
const OWNERS: [(&str, &[SamplingName]); 6] = [
    ("--max-batch-size", &[SamplingName::TruncatedPoisson]),
    ("--parts", &[SamplingName::CyclicPoisson]),
    ("--bins", &[SamplingName::BallsInBins, SamplingName::RandomAllocation]),
    ("--separation", &[SamplingName::MinSeparation]),
    ("--simulation-seed", &SIMULATED),
    ("--simulation-samples", &SIMULATED),
];

/// The samplers whose amplification with several bands only a simulation includes.
const SIMULATED: [SamplingName; 3] =
    [SamplingName::BallsInBins, SamplingName::RandomAllocation, SamplingName::MinSeparation];

/// Options of the sampler, and of correlated noise.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = headings::SAMPLING)]
pub struct SamplingOptions {
    /// How the examples, or the users, of a step are drawn [default: poisson].
    #[arg(long, value_enum)]
    pub sampling: Option<SamplingName>,
    /// With --sampling truncated-poisson: maximum number of examples, or users, in a step
    /// [default: eight standard deviations above the batch size].
    #[arg(long, value_name = "N")]
    pub max_batch_size: Option<usize>,
    /// With --sampling cyclic-poisson: number of parts of the data [default: 8].
    #[arg(long, value_name = "N")]
    pub parts: Option<usize>,
    /// With --sampling balls-in-bins or random-allocation: number of steps in an epoch, in place
    /// of the batch size, which is the number of examples, or users, over the bins [default: that
    /// number over the batch size, rounded up].
    #[arg(long, value_name = "N")]
    pub bins: Option<usize>,
    /// With --sampling min-separation: minimum number of steps from one step of an example, or
    /// user, to the next [default: 8].
    #[arg(long, value_name = "N")]
    pub separation: Option<usize>,
    /// File of a strategy for correlated noise, from `cargo xtask strategy --output`; with every
    /// --sampling that bounds how often an example takes part: shuffled, shuffled-once,
    /// cyclic-poisson, balls-in-bins, random-allocation, min-separation.
    #[arg(long, value_name = "FILE")]
    pub correlated_noise: Option<PathBuf>,
    /// With --sampling balls-in-bins, random-allocation or min-separation: bound epsilon by a
    /// simulation with this seed where this is tighter than the certified analysis. The seed is
    /// public: choose it before the run, and never after a result is seen.
    #[arg(long, value_name = "N")]
    pub simulation_seed: Option<u64>,
    /// Random privacy losses of the simulation [default: 1000000].
    #[arg(long, value_name = "N")]
    pub simulation_samples: Option<u64>,
}

/// Checked options of the sampler. A resumed run must share all of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SamplingSettings {
    /// How the examples of a step are drawn.
    #[serde(serialize_with = "as_typed")]
    pub sampling: SamplingName,
    /// Maximum number of examples in a step, if given.
    pub max_batch_size: Option<usize>,
    /// Number of parts of the data, if given.
    pub parts: Option<usize>,
    /// Number of steps in an epoch of bins, if given.
    pub bins: Option<usize>,
    /// Minimum number of steps from one step of a unit to the next, if given.
    pub separation: Option<usize>,
    /// Public seed of the simulation, if requested.
    pub simulation_seed: Option<u64>,
    /// Number of random privacy losses of the simulation, if given.
    pub simulation_samples: Option<u64>,
}

impl SamplingSettings {
    /// Checks that ε of `group` units at once can be stated.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for more than one unit with truncated draws, because the
    /// statement at the end would have no answer.
    pub(super) fn check_group(&self, group: Option<u64>) -> Result<(), TrainError> {
        match group {
            Some(2..) if self.sampling == SamplingName::TruncatedPoisson => {
                let reason = "is not possible with --sampling truncated-poisson: several units \
                              change how often a draw is cut, and no bound is known; leave it out, \
                              or use --sampling poisson";
                Err(TrainError::option("--group", reason))
            }
            _ => Ok(()),
        }
    }
}

impl SamplingOptions {
    /// Checks the options.
    ///
    /// # Arguments
    ///
    /// - `batch_option`: the option of the expected number of units in a step
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an option of another sampler, or an impossible number.
    pub(super) fn check(
        &self,
        given: &Given,
        batch_option: &'static str,
    ) -> Result<SamplingSettings, TrainError> {
        let Self { max_batch_size, parts, bins, separation, .. } = *self;
        let sampling = self.sampling.unwrap_or_default();
        let choice = format!("with --sampling {}", typed(sampling));
        for (name, owners) in OWNERS {
            if !owners.contains(&sampling) {
                let owners: Vec<String> = owners.iter().map(|owner| typed(*owner)).collect();
                let needed = format!("--sampling {}", owners.join(" or "));
                given.refuse(&[name], &choice, &needed)?;
            }
        }
        if self.simulation_seed.is_none() {
            let samples = ["--simulation-samples"];
            given.refuse(&samples, "without --simulation-seed", "--simulation-seed")?;
        }
        if bins.is_some() {
            let needed = "the batch size alone: the bins follow from it";
            given.refuse(&[batch_option], "with --bins", needed)?;
        }
        checks::at_least_one(max_batch_size.map(|max| ("--max-batch-size", max)))?;
        checks::at_least_one(parts.map(|parts| ("--parts", parts)))?;
        checks::at_least_one(bins.map(|bins| ("--bins", bins)))?;
        checks::at_least_one(separation.map(|separation| ("--separation", separation)))?;
        let (simulation_seed, simulation_samples) = (self.simulation_seed, self.simulation_samples);
        let settings = SamplingSettings {
            sampling,
            max_batch_size,
            parts,
            bins,
            separation,
            simulation_seed,
            simulation_samples,
        };
        settings.simulation()?;
        Ok(settings)
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
    /// Returns a plan without noise and steps, and with correlated noise if there is a strategy.
    ///
    /// # Arguments
    ///
    /// - `units`: number of units to train on
    /// - `batch_size`: expected number of units in a step, unless bins are given
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the simulation is impossible.
    pub(super) fn plan(
        &self,
        units: usize,
        batch_size: usize,
        strategy: Option<&Strategy>,
    ) -> Result<PrivacyPlanConfig, TrainError> {
        let mut config = PrivacyPlanConfig::new(units, self.mean_batch(units, batch_size))
            .with_sampling(self.scheme(units, batch_size));
        if let Some(strategy) = strategy {
            config = config.with_correlated_noise(strategy.clone());
        }
        if let Some(simulation) = self.simulation()? {
            config = config.with_simulation(simulation);
        }
        Ok(config)
    }

    /// Returns how the units of a step are drawn.
    fn scheme(&self, units: usize, batch_size: usize) -> SamplingScheme {
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
            SamplingName::BallsInBins => {
                SamplingScheme::BallsInBins { bins: self.steps_per_epoch(units, batch_size) }
            }
            SamplingName::RandomAllocation => {
                SamplingScheme::RandomAllocation { bins: self.steps_per_epoch(units, batch_size) }
            }
            SamplingName::MinSeparation => {
                let separation = self.separation.unwrap_or(SEPARATION);
                SamplingScheme::MinSeparation { separation }
            }
        }
    }

    /// Returns the number of steps that draw, in expectation, as many units as exist.
    pub(super) fn steps_per_epoch(&self, units: usize, batch_size: usize) -> usize {
        self.bins.unwrap_or_else(|| units.div_ceil(batch_size))
    }

    /// Returns the expected number of units in a step.
    pub(super) fn mean_batch(&self, units: usize, batch_size: usize) -> f64 {
        match self.sampling {
            SamplingName::BallsInBins | SamplingName::RandomAllocation => {
                units as f64 / self.steps_per_epoch(units, batch_size) as f64
            }
            _ => batch_size as f64,
        }
    }

    /// Returns the requested simulation.
    fn simulation(&self) -> Result<Option<Simulation>, TrainError> {
        let Some(seed) = self.simulation_seed else { return Ok(None) };
        let simulation = Simulation::new(seed);
        let samples = self.simulation_samples.unwrap_or_else(|| simulation.samples());
        Ok(Some(simulation.with_samples(samples).map_err(DpError::from)?))
    }

    /// Checks the settings for a number of units.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if a step has more units than exist, or if there are more
    /// bins or longer pauses than the units allow.
    pub(super) fn check_units(
        &self,
        units: usize,
        batch_size: usize,
        name: &str,
    ) -> Result<(), TrainError> {
        if let Some(max) = self.max_batch_size.filter(|&max| max > units) {
            let reason = format!(
                "must be at most the {units} {name}, got {max}; leave it out for a limit that is \
                 hardly ever reached"
            );
            return Err(TrainError::option("--max-batch-size", reason));
        }
        if let Some(bins) = self.bins.filter(|&bins| bins > units) {
            let reason = format!("must be at most the {units} {name}, got {bins}; give fewer");
            return Err(TrainError::option("--bins", reason));
        }
        let separation = self.separation.unwrap_or(SEPARATION);
        let most = units.checked_div(batch_size).unwrap_or(units);
        if self.sampling == SamplingName::MinSeparation && separation > most {
            let reason = format!(
                "must be at most {most}, the {units} {name} over the batch size {batch_size}, got \
                 {separation}; give a smaller separation or batch size"
            );
            return Err(TrainError::option("--separation", reason));
        }
        Ok(())
    }
}
