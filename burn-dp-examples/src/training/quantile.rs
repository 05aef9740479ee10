//! Options of quantile clipping.

use burn_dp::clipping::QuantileRule;
use clap::{Args, ValueEnum};

use super::options::headings;

/// Options of quantile clipping, also for users.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = headings::QUANTILE)]
pub struct QuantileOptions {
    /// Fraction of the examples, or users, that should not be clipped.
    #[arg(long, value_name = "Q", default_value_t = 0.5, allow_hyphen_values = true)]
    pub target_quantile: f64,
    /// Learning rate of the threshold.
    #[arg(long, value_name = "ETA", default_value_t = 0.2, allow_hyphen_values = true)]
    pub quantile_lr: f64,
    /// How the threshold moves.
    #[arg(long, value_enum, default_value_t)]
    pub quantile_rule: RuleName,
    /// Share of the privacy cost of a step or round that the counts of quantile clipping and of
    /// --track-norms may use [default: 0.1 for users, else --count-noise].
    #[arg(long, value_name = "S", conflicts_with = "count_noise", allow_hyphen_values = true)]
    pub count_share: Option<f64>,
}

/// How a threshold moves to its quantile.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RuleName {
    /// By factors.
    #[default]
    Geometric,
    /// By differences.
    Linear,
}

impl From<RuleName> for QuantileRule {
    fn from(name: RuleName) -> Self {
        match name {
            RuleName::Geometric => Self::Geometric,
            RuleName::Linear => Self::Linear,
        }
    }
}
