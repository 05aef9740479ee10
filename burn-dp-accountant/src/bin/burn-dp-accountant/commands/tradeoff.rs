//! `tradeoff`: the trade-off curve of a training, and the Gaussian mechanism that dominates it.

use std::path::PathBuf;

use burn_dp_accountant::{Accountant, PldAccountant, Rounded};
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Output, check_no_ledger, invalid, json_text};
use crate::plot;
use crate::training::Training;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    training: Training,
    /// Type I errors at which to print the type II error.
    #[arg(long, value_delimiter = ',', default_value = "0.001,0.01,0.05,0.1,0.2,0.5")]
    alpha: Vec<f64>,
    /// Draw the curve as an SVG.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Number of values of ε that the curve is computed from.
const POINTS: usize = 1_000;

pub(super) fn run(arguments: &Arguments) -> Output {
    if let Some(alpha) = arguments.alpha.iter().find(|alpha| !(0.0..=1.0).contains(*alpha)) {
        return Err(invalid("--alpha", format!("must be between 0 and 1, got {alpha}")));
    }
    check_no_ledger("--plot", arguments.plot.as_deref())?;
    let events = arguments.training.read()?;
    if let Some(reason) = events.insecure_reason() {
        let reason = format!("has noise that can be reproduced ({reason}): no error is guaranteed");
        return Err(invalid("--ledger", reason));
    }
    let curve = PldAccountant::new(events.counted(), events.relation)?.tradeoff(POINTS)?;
    if let Some(path) = &arguments.plot {
        plot::tradeoff(&curve, path)?;
    }
    let points: Vec<(f64, f64)> =
        arguments.alpha.iter().map(|&alpha| (alpha, curve.type_two_error(alpha))).collect();
    if arguments.json {
        let points: Vec<Value> =
            points.iter().map(|(a, b)| json!({ "alpha": a, "beta": b })).collect();
        return Ok(json_text(&Value::from(points)));
    }
    let mut text =
        "type I error   smallest type II error (no test has a smaller one)\n".to_string();
    for (alpha, beta) in points {
        text += &format!("{alpha:<14} {}\n", Rounded::down(beta));
    }
    text += &match curve.gaussian_fit() {
        Some(fit) => format!(
            "Gaussian differential privacy: mu = {}, with slack {} in delta; regret {}\n",
            Rounded::up(fit.mu),
            Rounded::up(fit.slack).with_digits(3),
            Rounded::up(fit.regret).with_digits(3)
        ),
        None => {
            "Gaussian differential privacy: no fit; mu is above 1,000, or too large for the grid\n"
                .into()
        }
    };
    Ok(text)
}
