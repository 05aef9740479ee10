//! The commands: one file for the options and the output of each.

mod audit;
mod calibrate;
mod compare;
mod delta;
mod epsilon;
mod statement;
mod strategy;
mod tan;
mod tradeoff;

use clap::Subcommand;

use crate::output::Output;

/// What to compute.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compute ε of a training at a given δ; the upper end of the bracket is a guarantee.
    Epsilon(epsilon::Arguments),
    /// Compute δ of a training at a given ε.
    Delta(delta::Arguments),
    /// Find the smallest noise multiplier, or the largest number of steps, sampling probability or
    /// batch, within a privacy budget.
    Calibrate(calibrate::Arguments),
    /// Compute the trade-off curve between the two errors of an attacker.
    Tradeoff(tradeoff::Arguments),
    /// Compute the total amount of noise, and a small run that predicts a large one.
    Tan(tan::Arguments),
    /// Compute lower bounds on ε from the scores of canaries of a training in any framework.
    Audit(audit::Arguments),
    /// Find or evaluate a strategy of correlated noise: its errors, sensitivity and loss.
    Strategy(strategy::Arguments),
    /// Print the privacy statement of a ledger file.
    Statement(statement::Arguments),
    /// Compare the guarantees of two ledgers or statements.
    Compare(compare::Arguments),
}

impl Command {
    /// Runs the command and returns what it prints.
    pub(crate) fn run(&self) -> Output {
        match self {
            Self::Epsilon(arguments) => epsilon::run(arguments),
            Self::Delta(arguments) => delta::run(arguments),
            Self::Calibrate(arguments) => calibrate::run(arguments),
            Self::Tradeoff(arguments) => tradeoff::run(arguments),
            Self::Tan(arguments) => tan::run(arguments),
            Self::Audit(arguments) => audit::run(arguments),
            Self::Strategy(arguments) => strategy::run(arguments),
            Self::Statement(arguments) => statement::run(arguments),
            Self::Compare(arguments) => compare::run(arguments),
        }
    }
}
