//! `strategy`: errors, sensitivity and loss of a strategy of correlated noise.

use std::path::{Path, PathBuf};

use burn_dp_accountant::correlated_noise::{Strategy, StrategyLoss, StrategyMatrix, Workload};
use burn_dp_accountant::{AccountantError, Rounded};
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Output, check_distinct, check_no_ledger, json_text};
use crate::plot;
use crate::strategy_options::StrategyOptions;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    strategy: StrategyOptions,
    /// Divide the columns of the strategy by their norms.
    #[arg(long)]
    normalize_columns: bool,
    /// Write the strategy to a file.
    #[arg(long, value_name = "FILE.json")]
    output: Option<PathBuf>,
    /// Draw the error of each step as an SVG.
    #[arg(long, visible_alias = "plot", value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let options = &arguments.strategy;
    let mut strategy = options.create()?;
    let workload = options.workload(strategy.steps())?;
    if arguments.normalize_columns {
        strategy = strategy.with_normalized_columns();
    }
    let loss = options.loss(&strategy, &workload)?;
    check_distinct("--svg", arguments.svg.as_deref(), options.strategy.as_deref())?;
    check_no_ledger("--output", arguments.output.as_deref())?;
    check_no_ledger("--svg", arguments.svg.as_deref())?;
    if let Some(path) = &arguments.output {
        strategy.save(path)?;
    }
    if let Some(path) = &arguments.svg {
        draw(&strategy, &workload, arguments, path)?;
    }
    if arguments.json {
        Ok(json_text(&as_json(&strategy, &loss)))
    } else {
        text(&strategy, arguments, &workload, &loss)
    }
}

fn as_json(strategy: &Strategy, loss: &StrategyLoss) -> Value {
    let kind = match strategy.matrix() {
        StrategyMatrix::Identity => "identity",
        StrategyMatrix::OptimalToeplitz => "toeplitz",
        StrategyMatrix::BandedToeplitz { .. } => "banded",
        StrategyMatrix::BandedInverse { .. } => "banded-inverse",
        StrategyMatrix::Buffered { .. } => "blt",
        StrategyMatrix::Tree => "tree",
        StrategyMatrix::Dense { .. } => "dense",
    };
    let mut value = json!({
        "kind": kind,
        "steps": strategy.steps(),
        "normalized_columns": strategy.has_normalized_columns(),
        "max_sq_error": loss.max_sq_error,
        "mean_sq_error": loss.mean_sq_error,
        "sensitivity": loss.sensitivity,
        "sensitivity_is_exact": loss.is_exact,
        "max_loss_sq": loss.max_loss_sq(),
        "mean_loss_sq": loss.mean_loss_sq(),
    });
    match strategy.matrix() {
        StrategyMatrix::Buffered { theta, omega } => {
            value["theta"] = json!(theta);
            value["omega"] = json!(omega);
        }
        StrategyMatrix::BandedInverse { coefficients } => {
            value["coefficients"] = json!(coefficients)
        }
        StrategyMatrix::Dense { rows } => value["coefficients"] = json!(rows),
        StrategyMatrix::Tree => {}
        _ => value["coefficients"] = json!(strategy.coefficients()),
    }
    value
}

fn text(
    strategy: &Strategy,
    arguments: &Arguments,
    workload: &Workload,
    loss: &StrategyLoss,
) -> Output {
    let independent = arguments.strategy.loss(&Strategy::identity(strategy.steps())?, workload)?;
    let root = |value: f64| Rounded::nearest(value.sqrt()).to_string();
    let pattern = arguments.strategy.participation(strategy.steps())?;
    let mut text = format!(
        "{strategy}\n  participation:          {pattern}\n  sensitivity:            {}{}\n\n\
         {:<26}{:<14}{}\n",
        if loss.is_exact { "" } else { "at most " },
        Rounded::up(loss.sensitivity),
        "  root of squared error",
        "largest",
        "mean"
    );
    let mut line = |name: &str, max: f64, mean: f64| {
        text += &format!("  {name:<24}{:<14}{}\n", root(max), root(mean));
    };
    line("noise of deviation 1", loss.max_sq_error, loss.mean_sq_error);
    line("at equal privacy", loss.max_loss_sq(), loss.mean_loss_sq());
    line("independent noise", independent.max_loss_sq(), independent.mean_loss_sq());
    if let StrategyMatrix::Buffered { theta, omega } = strategy.matrix() {
        for (name, values) in [("theta", theta), ("omega", omega)] {
            let values: Vec<String> = values.iter().map(f64::to_string).collect();
            text += &format!("  {name:<24}{}\n", values.join(","));
        }
    }
    Ok(text)
}

fn draw(
    strategy: &Strategy,
    workload: &Workload,
    arguments: &Arguments,
    path: &Path,
) -> Result<(), AccountantError> {
    let losses = |strategy: &Strategy| -> Result<Vec<f64>, AccountantError> {
        let sensitivity = arguments.strategy.loss(strategy, workload)?.sensitivity;
        let errors = strategy.squared_errors(workload)?;
        Ok(errors.of_steps().iter().map(|error| error * sensitivity.powi(2)).collect())
    };
    let independent = Strategy::identity(strategy.steps())?;
    plot::errors(&strategy.to_string(), &losses(strategy)?, &losses(&independent)?, path)
}
