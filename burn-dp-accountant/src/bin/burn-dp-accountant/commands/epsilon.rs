//! `epsilon`: ε of a training.

use burn_dp_accountant::{
    Accountant, AccountantError, CentralLimitEstimate, DpEvent, Epsilon, ExactAccountant, Method,
    MonteCarloAccountant, NeighboringRelation, PldAccountant, RdpAccountant, Rounded,
};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::output::{Output, invalid, json_text, number};
use crate::training::{Events, Training};

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    training: Training,
    /// Target δ.
    #[arg(long)]
    delta: f64,
    /// Method of computation.
    #[arg(long, value_enum, default_value = "exact")]
    accountant: AccountantChoice,
    /// Number of units that the guarantee protects together.
    #[arg(long, value_name = "K", default_value_t = 1)]
    group: u64,
    /// Number of simulated privacy losses in each direction, for --accountant monte-carlo
    /// [default: 1000000].
    #[arg(long, visible_alias = "simulation-samples")]
    samples: Option<usize>,
    /// Seed of the random losses, for --accountant monte-carlo [default: 0].
    #[arg(long)]
    seed: Option<u64>,
    /// Probability that the bound fails, part of δ, for --accountant monte-carlo [default: 1e-9].
    #[arg(long)]
    failure_probability: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The accountant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AccountantChoice {
    /// Certified bracket, with the exact value as the estimate.
    Exact,
    /// Certified bracket.
    Pld,
    /// Rényi divergences (an upper bound).
    Rdp,
    /// Central-limit approximation (no guarantee; one segment, Poisson sampling).
    #[value(alias = "gdp")]
    Clt,
    /// Random privacy losses (a bound whose failure probability is part of δ).
    MonteCarlo,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    if arguments.accountant != AccountantChoice::MonteCarlo {
        let given = [
            ("--samples", arguments.samples.is_some()),
            ("--seed", arguments.seed.is_some()),
            ("--failure-probability", arguments.failure_probability.is_some()),
        ];
        if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            return Err(invalid(name, "has no effect without --accountant monte-carlo"));
        }
    }
    let events = arguments.training.read()?;
    let relation = events.relation;
    let delta = arguments.delta;
    let answer = match arguments.accountant {
        AccountantChoice::Exact if arguments.group != 1 => {
            events.ledger()?.group_epsilon(arguments.group, delta)?
        }
        _ if arguments.group != 1 => {
            return Err(invalid("--group", "needs --accountant exact"));
        }
        AccountantChoice::Exact => exact(&events, delta)?,
        _ if events.is_insecure() => events.ledger()?.epsilon(delta)?,
        AccountantChoice::Pld => PldAccountant::new(events.counted(), relation)?.epsilon(delta)?,
        AccountantChoice::Rdp => RdpAccountant::new(events.counted(), relation)?.epsilon(delta)?,
        AccountantChoice::Clt => return central_limit(&events, arguments),
        AccountantChoice::MonteCarlo => MonteCarloAccountant::new(events.counted(), relation)?
            .with_samples(arguments.samples.unwrap_or(1_000_000))
            .with_seed(arguments.seed.unwrap_or(0))
            .with_failure_probability(arguments.failure_probability.unwrap_or(1e-9))?
            .epsilon(delta)?,
    };
    if arguments.json {
        return Ok(json_text(&json!({
            "epsilon": number(answer.upper),
            "lower": number(answer.lower),
            "upper": number(answer.upper),
            "estimate": number(answer.estimate),
            "delta": answer.delta,
            "accountant": answer.method,
            "relation": relation,
            "order": answer.order,
            "notes": answer.notes,
        })));
    }
    let mut text = format!(
        "{answer}\n  relation:  {relation}\n  method:    {}\n  bracket:   [{}, {}]\n  \
         estimate:  {}\n",
        answer.method,
        Rounded::down(answer.lower),
        Rounded::up(answer.upper),
        Rounded::nearest(answer.estimate),
    );
    if let Some(order) = answer.order {
        text += &format!("  order:     {order:.3}\n");
    }
    for note in &answer.notes {
        text += &format!("  note:      {note}\n");
    }
    Ok(text)
}

/// Returns the best guarantee, with the exact value as its estimate. The slow search for the exact
/// value follows if the quick one fails. A note says if there is no exact value.
fn exact(events: &Events, delta: f64) -> Result<Epsilon, AccountantError> {
    let mut answer = events.ledger()?.epsilon(delta)?;
    match answer.method {
        Method::Exact | Method::ClosedForm | Method::Nothing => return Ok(answer),
        Method::Pld if answer.upper.is_finite() => {}
        _ => {
            answer.notes.push("no exact value is known".to_string());
            return Ok(answer);
        }
    }
    let found = ExactAccountant::new(events.counted(), events.relation)
        .and_then(|accountant| accountant.epsilon(delta))
        .map(|epsilon| epsilon.estimate);
    match found {
        Ok(value)
            if value >= answer.lower * (1.0 - 1e-9) && value <= answer.upper * (1.0 + 1e-9) =>
        {
            answer.estimate = value.clamp(answer.lower, answer.upper);
            answer.method = Method::Exact;
        }
        Ok(value) => answer.notes.push(format!("the exact value {value} is not in the bracket")),
        Err(_) => answer.notes.push("no exact value was found; the bracket is certain".to_string()),
    }
    Ok(answer)
}

fn central_limit(events: &Events, arguments: &Arguments) -> Output {
    if events.relation == NeighboringRelation::ReplaceOne {
        return Err(invalid(
            "--relation",
            "must be add-or-remove-one or replace-special with --accountant clt, got replace-one; \
             use --accountant exact",
        ));
    }
    let [(DpEvent::PoissonSampled { sampling_probability, event }, steps)] = &events.events[..]
    else {
        return Err(invalid(
            "--accountant",
            "clt needs exactly one segment with Poisson sampling; use exact",
        ));
    };
    let DpEvent::Gaussian { noise_multiplier } = **event else {
        return Err(invalid("--accountant", "clt needs Gaussian releases; use exact"));
    };
    let limit = CentralLimitEstimate::poisson(*sampling_probability, noise_multiplier, *steps)?;
    let estimate = limit.epsilon(arguments.delta)?;
    if arguments.json {
        return Ok(json_text(&json!({
            "epsilon": Value::Null, "lower": 0.0, "upper": "inf",
            "estimate": number(estimate.without_guarantee()),
            "delta": arguments.delta, "accountant": "clt", "relation": events.relation,
            "order": Value::Null, "notes": ["central-limit approximation: no guarantee"],
        })));
    }
    Ok(format!("epsilon is {estimate} at delta = {:e}\n", arguments.delta))
}
