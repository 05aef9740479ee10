//! The options that give or search a strategy of correlated noise.

use std::path::{Path, PathBuf};

use burn_dp_accountant::AccountantError;
use burn_dp_accountant::correlated_noise::{
    Objective, Participation, Strategy, StrategyFamily, StrategyLoss, StrategySearch, Workload,
};
use clap::{Args, ValueEnum};

use crate::output::invalid;

/// A strategy: given by its numbers or a file, or the result of a search.
#[derive(Debug, Args)]
pub(crate) struct StrategyOptions {
    /// Kind of the strategy.
    #[arg(long, value_enum, required_unless_present = "strategy")]
    kind: Option<StrategyKind>,
    /// Number of steps of the run.
    #[arg(long, value_name = "N", required_unless_present = "strategy")]
    steps: Option<u64>,
    /// Evaluate the strategy in a file that --output wrote.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "steps", "cache"])]
    pub(crate) strategy: Option<PathBuf>,
    /// Search the best strategy of this number of bands (banded, banded-inverse).
    #[arg(long, value_name = "B", conflicts_with_all = ["coefficients", "theta", "omega"])]
    bands: Option<u64>,
    /// Take the inverse square root (BISR) instead of searching (banded-inverse, with --bands).
    #[arg(long, requires = "bands")]
    square_root: bool,
    /// Search the best strategy of this number of buffers (blt). Without it, buffers are added
    /// while the loss falls.
    #[arg(long, value_name = "K", conflicts_with_all = ["coefficients", "theta", "omega"])]
    buffers: Option<u64>,
    /// Numbers of a given strategy, separated by white space or commas: the coefficients of C
    /// (banded), the coefficients of its inverse (banded-inverse), or the rows of the lower
    /// triangle (dense).
    #[arg(long, value_name = "FILE")]
    coefficients: Option<PathBuf>,
    /// Decays of the buffers of a given strategy (blt).
    #[arg(long, value_delimiter = ',', requires = "omega")]
    theta: Vec<f64>,
    /// Weights of the buffers of a given strategy (blt).
    #[arg(long, value_delimiter = ',', requires = "theta")]
    omega: Vec<f64>,
    /// Largest number of participations of a unit.
    #[arg(long, value_name = "K", default_value_t = 1)]
    participations: u64,
    /// Smallest number of steps between two participations of a unit.
    #[arg(long, value_name = "B", default_value_t = 1)]
    separation: u64,
    /// A unit takes part exactly every --separation steps: the data is used in a fixed order.
    #[arg(long)]
    fixed_order: bool,
    /// Error that a search minimizes.
    #[arg(long, value_enum, default_value = "mean")]
    objective: ObjectiveChoice,
    /// Momentum of the optimizer.
    #[arg(long, default_value_t = 0.0)]
    momentum: f64,
    /// Factor by which the parameters shrink in each step: 1 - learning rate x weight decay.
    #[arg(long, default_value_t = 1.0)]
    decay: f64,
    /// Learning rate of each step, separated by white space or commas.
    #[arg(long, value_name = "FILE")]
    learning_rates: Option<PathBuf>,
    /// Learning rates that fall to 0 after the last step.
    #[arg(long, value_enum, conflicts_with = "learning_rates")]
    schedule: Option<ScheduleChoice>,
    /// Number of first steps in which the learning rate of --schedule grows from 0.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "schedule")]
    warmup: u64,
    /// Folder of results of earlier searches, which are used and added to.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StrategyKind {
    /// Independent noise.
    Identity,
    /// The optimal Toeplitz strategy.
    Toeplitz,
    /// A banded Toeplitz strategy: --bands or --coefficients.
    Banded,
    /// A strategy with a banded inverse: --bands or --coefficients.
    BandedInverse,
    /// A buffered linear Toeplitz strategy: --buffers, or --theta and --omega.
    Blt,
    /// The binary tree.
    Tree,
    /// Any strategy of few steps: searched, or --coefficients.
    Dense,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ObjectiveChoice {
    /// The mean squared error of all steps.
    Mean,
    /// The largest squared error of a step.
    Max,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScheduleChoice {
    /// The rate of the first steps, after --warmup.
    Constant,
    /// A straight line.
    Linear,
    /// Half a wave of the cosine.
    Cosine,
}

impl ScheduleChoice {
    /// Returns the rates of `steps` steps; the largest is about 1.
    fn rates(self, steps: u64, warmup: u64) -> Vec<f64> {
        let rate = |step: u64| {
            let passed = step as f64 / steps as f64;
            let factor = match self {
                Self::Constant => 1.0,
                Self::Linear => 1.0 - passed,
                Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * passed).cos()),
            };
            factor * if step < warmup { (step + 1) as f64 / warmup as f64 } else { 1.0 }
        };
        (0..steps).map(rate).collect()
    }
}

impl StrategyOptions {
    /// Returns the workload of momentum, decay and learning rates.
    pub(crate) fn workload(&self, steps: u64) -> Result<Workload, AccountantError> {
        let workload = Workload::prefix_sums().with_momentum(self.momentum)?;
        let workload = workload.with_decay(self.decay)?;
        match (&self.learning_rates, self.schedule) {
            (Some(path), _) => workload.with_learning_rates(&numbers(path)?),
            (None, Some(schedule)) => {
                workload.with_learning_rates(&schedule.rates(steps, self.warmup))
            }
            (None, None) => Ok(workload),
        }
    }

    /// Returns how often a unit takes part in `steps` steps.
    pub(crate) fn participation(&self, steps: u64) -> Result<Participation, AccountantError> {
        let (times, separation) = (self.participations, self.separation);
        if !self.fixed_order {
            return Ok(Participation::AtMost { times, separation });
        }
        let follows = steps.div_ceil(separation.max(1));
        if times != 1 && times != follows {
            return Err(invalid(
                "--participations",
                format!(
                    "must be left out with --fixed-order, or be {follows}, the number of times in \
                     {steps} steps, got {times}"
                ),
            ));
        }
        Ok(Participation::FixedOrder { period: separation })
    }

    /// Returns the errors and the sensitivity of a strategy.
    pub(crate) fn loss(
        &self,
        strategy: &Strategy,
        workload: &Workload,
    ) -> Result<StrategyLoss, AccountantError> {
        match self.participation(strategy.steps())? {
            Participation::FixedOrder { period } => strategy.loss_in_fixed_order(workload, period),
            _ => strategy.loss(workload, self.participations, self.separation),
        }
    }

    /// Returns the given strategy, or the result of the search.
    pub(crate) fn create(&self) -> Result<Strategy, AccountantError> {
        if let Some(path) = &self.strategy {
            return Strategy::load(path);
        }
        let (Some(kind), Some(steps)) = (self.kind, self.steps) else {
            return Err(invalid("--kind, --steps", "must be given, or --strategy FILE"));
        };
        self.check(kind)?;
        let given = self.coefficients.as_deref();
        let family = match (kind, given, self.bands) {
            (StrategyKind::Identity, ..) => return Strategy::identity(steps),
            (StrategyKind::Toeplitz, ..) => return Strategy::optimal_toeplitz(steps),
            (StrategyKind::Tree, ..) => return Strategy::tree(steps),
            (StrategyKind::Banded, Some(path), _) => {
                return Strategy::banded_toeplitz(steps, &numbers(path)?);
            }
            (StrategyKind::BandedInverse, Some(path), _) => {
                return Strategy::banded_inverse(steps, &numbers(path)?);
            }
            (StrategyKind::BandedInverse, None, Some(bands)) if self.square_root => {
                return Strategy::banded_inverse_square_root(steps, bands);
            }
            (StrategyKind::Blt, ..) if !self.theta.is_empty() => {
                return Strategy::buffered(steps, &self.theta, &self.omega);
            }
            (StrategyKind::Dense, Some(path), _) => return triangle(steps, path),
            (StrategyKind::Banded, None, Some(bands)) => StrategyFamily::BandedToeplitz { bands },
            (StrategyKind::BandedInverse, None, Some(bands)) => {
                StrategyFamily::BandedInverse { bands }
            }
            (StrategyKind::Blt, ..) => StrategyFamily::Buffered { buffers: self.buffers },
            (StrategyKind::Dense, None, _) => StrategyFamily::Dense,
            (StrategyKind::Banded | StrategyKind::BandedInverse, None, None) => {
                return Err(invalid(
                    "--bands",
                    "must be given to search a strategy, or --coefficients FILE for a given one",
                ));
            }
        };
        let objective = match self.objective {
            ObjectiveChoice::Mean => Objective::Mean,
            ObjectiveChoice::Max => Objective::Max,
        };
        let search = StrategySearch::new(steps)?
            .with_objective(objective)
            .with_workload(self.workload(steps)?)?;
        let search = match self.participation(steps)? {
            Participation::FixedOrder { period } => search.with_fixed_order(period)?,
            _ => search.with_participation(self.participations, self.separation)?,
        };
        match &self.cache {
            Some(folder) => Strategy::load_or_search(folder, &search, family),
            None => search.run(family),
        }
    }

    /// Returns an error for an option that the kind does not use.
    fn check(&self, kind: StrategyKind) -> Result<(), AccountantError> {
        let banded = matches!(kind, StrategyKind::Banded | StrategyKind::BandedInverse);
        let unused = [
            ("--bands", self.bands.is_some() && !banded),
            ("--square-root", self.square_root && kind != StrategyKind::BandedInverse),
            ("--buffers", self.buffers.is_some() && kind != StrategyKind::Blt),
            ("--theta, --omega", !self.theta.is_empty() && kind != StrategyKind::Blt),
            (
                "--coefficients",
                self.coefficients.is_some() && !banded && kind != StrategyKind::Dense,
            ),
        ];
        match unused.into_iter().find(|(_, is_unused)| *is_unused) {
            Some((name, _)) => {
                let kind =
                    kind.to_possible_value().map_or(String::new(), |v| v.get_name().to_string());
                Err(invalid(name, format!("must not be given with --kind {kind}, which has none")))
            }
            None => Ok(()),
        }
    }
}

/// Reads numbers, separated by white space, commas or brackets.
fn numbers(path: &Path) -> Result<Vec<f64>, AccountantError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AccountantError::Io { path: path.to_path_buf(), source })?;
    let words = text.split(|c: char| c.is_whitespace() || ",[];".contains(c));
    words
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.parse().map_err(|_| {
                invalid(
                    "--coefficients, --learning-rates",
                    format!("must be numbers, got {word:?} in {}", path.display()),
                )
            })
        })
        .collect()
}

fn triangle(steps: u64, path: &Path) -> Result<Strategy, AccountantError> {
    let numbers = numbers(path)?;
    let expected = steps.saturating_mul(steps.saturating_add(1)) / 2;
    if numbers.len() as u64 != expected {
        return Err(invalid(
            "--coefficients",
            format!(
                "must be the lower triangle of {steps} rows, {expected} numbers, got {}",
                numbers.len()
            ),
        ));
    }
    let mut rest = numbers.as_slice();
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let (row, later) = rest.split_at(rows.len() + 1);
        rows.push(row.to_vec());
        rest = later;
    }
    Strategy::dense(rows)
}
