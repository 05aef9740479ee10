//! `delta`: δ of a training.

use burn_dp_accountant::{Accountant, PldAccountant, Rounded};
use clap::Args;
use serde_json::json;

use crate::output::{Output, json_text};
use crate::training::Training;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    training: Training,
    /// The ε at which to compute δ.
    #[arg(long)]
    epsilon: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let events = arguments.training.read()?;
    let accountant = PldAccountant::new(events.counted(), events.relation)?;
    let mut bracket = accountant.delta(arguments.epsilon)?;
    if let Some(reason) = events.insecure_reason() {
        (bracket.lower, bracket.estimate, bracket.upper) = (1.0, 1.0, 1.0);
        bracket.notes = vec![format!("the noise can be reproduced: {reason}")];
    }
    if arguments.json {
        return Ok(json_text(&json!({
            "delta": bracket.upper, "lower": bracket.lower, "upper": bracket.upper,
            "estimate": bracket.estimate, "epsilon": bracket.epsilon,
            "relation": events.relation, "notes": bracket.notes,
        })));
    }
    let upper = Rounded::up(bracket.upper);
    let notes: String = bracket.notes.iter().map(|note| format!("  {note}\n")).collect();
    Ok(format!(
        "delta = {upper} at epsilon = {}\n  relation:  {}\n  bracket:   [{}, {upper}]\n{notes}",
        bracket.epsilon,
        events.relation,
        Rounded::down(bracket.lower),
    ))
}
