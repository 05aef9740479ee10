//! The arguments of the command.

use std::path::{Path, PathBuf};

use burn_dp_accountant::{AccountantError, DpEvent, NeighboringRelation, PrivacyLedger};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Privacy accounting for differentially private training.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to compute.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// ε of a training, as a bracket whose upper end is a guarantee.
    Epsilon(Epsilon),
    /// δ of a training at a given ε.
    Delta(Delta),
    /// The smallest noise multiplier, or the largest number of steps, sampling probability or batch,
    /// for a budget.
    Calibrate(Calibrate),
    /// The trade-off curve between the two errors of an attacker.
    Tradeoff(Tradeoff),
    /// The total amount of noise, and a small run that predicts this one.
    Tan(Tan),
    /// The privacy statement of a ledger file.
    Statement(Statement),
}

/// Which training: a ledger file, or segments (repeat the three options for several).
#[derive(Debug, Args)]
pub(crate) struct Training {
    /// Probability of each unit to take part in a step.
    #[arg(long, visible_alias = "q", value_name = "Q")]
    sampling_probability: Vec<f64>,
    /// Noise standard deviation over clipping norm.
    #[arg(long, visible_alias = "sigma", value_name = "S")]
    noise_multiplier: Vec<f64>,
    /// Number of steps.
    #[arg(long, value_name = "T")]
    steps: Vec<u64>,
    /// A ledger written by a training.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sampling_probability", "noise_multiplier", "steps"])]
    ledger: Option<PathBuf>,
    /// Neighbouring relation (of the segments; a ledger has its own).
    #[arg(long, value_enum, default_value = "add-or-remove-one")]
    relation: Relation,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Relation {
    AddOrRemoveOne,
    ReplaceOne,
    ReplaceSpecial,
}

impl From<Relation> for NeighboringRelation {
    fn from(relation: Relation) -> Self {
        match relation {
            Relation::AddOrRemoveOne => Self::AddOrRemoveOne,
            Relation::ReplaceOne => Self::ReplaceOne,
            Relation::ReplaceSpecial => Self::ReplaceSpecial,
        }
    }
}

/// A training as the accountants take it.
pub(crate) struct Events {
    pub(crate) events: Vec<(DpEvent, u64)>,
    pub(crate) relation: NeighboringRelation,
    pub(crate) ledger: Option<PrivacyLedger>,
}

impl Events {
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&DpEvent, u64)> {
        self.events.iter().map(|(event, n)| (event, *n))
    }
}

impl Training {
    pub(crate) fn read(&self) -> Result<Events, AccountantError> {
        if let Some(path) = &self.ledger {
            let ledger = released(path)?;
            let events =
                ledger.entries().iter().map(|entry| (entry.event.clone(), entry.count)).collect();
            let relation = ledger.header().relation;
            return Ok(Events { events, relation, ledger: Some(ledger) });
        }
        let (q, sigma, steps) = (&self.sampling_probability, &self.noise_multiplier, &self.steps);
        if q.is_empty() || q.len() != sigma.len() || q.len() != steps.len() {
            return Err(AccountantError::InvalidArgument {
                name: "--sampling-probability, --noise-multiplier, --steps",
                reason: format!(
                    "must be given equally often and at least once (or use --ledger FILE), got {}, {} and {}",
                    q.len(),
                    sigma.len(),
                    steps.len()
                ),
            });
        }
        let mut events = Vec::new();
        for ((&q, &sigma), &steps) in q.iter().zip(sigma).zip(steps) {
            let event = DpEvent::dp_sgd_step(q, sigma);
            event.validate()?;
            events.push((event, steps));
        }
        Ok(Events { events, relation: self.relation.into(), ledger: None })
    }
}

/// The ledger of a file, which must hold something: ε = 0 of the wrong file would be believed.
pub(crate) fn released(path: &Path) -> Result<PrivacyLedger, AccountantError> {
    let ledger = PrivacyLedger::load(path)?;
    if ledger.entries().is_empty() {
        return Err(AccountantError::InvalidArgument {
            name: "--ledger",
            reason: format!("must hold at least one release, but {} is empty", path.display()),
        });
    }
    Ok(ledger)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accountant {
    /// Certified bracket, with the exact value as the estimate.
    Exact,
    /// Certified bracket.
    Pld,
    /// Rényi divergences (an upper bound).
    Rdp,
    /// Central-limit approximation (no guarantee; one segment, Poisson).
    Gdp,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Epsilon {
    #[command(flatten)]
    pub(crate) training: Training,
    /// Target δ.
    #[arg(long)]
    pub(crate) delta: f64,
    /// How to compute it.
    #[arg(long, value_enum, default_value = "exact")]
    pub(crate) accountant: Accountant,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Delta {
    #[command(flatten)]
    pub(crate) training: Training,
    /// ε at which δ is wanted.
    #[arg(long)]
    pub(crate) epsilon: f64,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Calibrate {
    /// Target ε.
    #[arg(long)]
    pub(crate) epsilon: f64,
    /// Target δ.
    #[arg(long)]
    pub(crate) delta: f64,
    /// Probability of each unit to take part in a step. Of this, the number of steps and the noise
    /// multiplier two are given and the third is searched.
    #[arg(long, visible_alias = "q")]
    pub(crate) sampling_probability: Option<f64>,
    /// Number of steps.
    #[arg(long)]
    pub(crate) steps: Option<u64>,
    /// Noise multiplier.
    #[arg(long, visible_alias = "sigma")]
    pub(crate) noise_multiplier: Option<f64>,
    /// Number of units: the expected batch size is searched instead of the sampling probability.
    #[arg(long, conflicts_with = "sampling_probability")]
    pub(crate) dataset_size: Option<u64>,
    /// Neighbouring relation.
    #[arg(long, value_enum, default_value = "add-or-remove-one")]
    pub(crate) relation: Relation,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Tradeoff {
    #[command(flatten)]
    pub(crate) training: Training,
    /// Type I errors at which the type II error is printed.
    #[arg(long, value_delimiter = ',', default_value = "0.001,0.01,0.05,0.1,0.2,0.5")]
    pub(crate) alpha: Vec<f64>,
    /// Draw the curve.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Tan {
    /// Number of units in the data set.
    #[arg(long)]
    pub(crate) dataset_size: u64,
    /// Expected batch size of the large run.
    #[arg(long)]
    pub(crate) batch_size: f64,
    /// Noise multiplier of the large run.
    #[arg(long, visible_alias = "sigma")]
    pub(crate) noise_multiplier: f64,
    /// Number of steps.
    #[arg(long)]
    pub(crate) steps: u64,
    /// Target δ.
    #[arg(long)]
    pub(crate) delta: f64,
    /// By how much the small run is smaller.
    #[arg(long, default_value_t = 32.0)]
    pub(crate) factor: f64,
    /// Results of small runs at constant steps and σ/B, as BATCH:ACCURACY, for the prediction.
    #[arg(long, value_name = "B:ACC", value_delimiter = ',')]
    pub(crate) run: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Statement {
    /// The ledger file.
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: PathBuf,
    /// For which δ.
    #[arg(long, value_delimiter = ',', default_value = "1e-5,1e-6,1e-8")]
    pub(crate) delta: Vec<f64>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
