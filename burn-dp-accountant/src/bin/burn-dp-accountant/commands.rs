//! What the commands print.

use burn_dp_accountant::{
    AccountantError, Budget, Calibration, CentralLimitEstimate, DpEvent, ExactAccountant,
    LedgerHeader, Method, PldAccountant, PrivacyLedger, PrivacyStatement, RdpAccountant, RunPlan,
    ScalingLaw, TotalAmountOfNoise, UnitOfPrivacy,
};
use serde_json::{Value, json};

use crate::arguments::{
    Accountant, Calibrate, Command, Delta, Epsilon, Events, Statement, Tan, Tradeoff, released,
};
use crate::plot;

type Output = Result<String, AccountantError>;

pub(crate) fn run(command: &Command) -> Output {
    match command {
        Command::Epsilon(arguments) => epsilon(arguments),
        Command::Delta(arguments) => delta(arguments),
        Command::Calibrate(arguments) => calibrate(arguments),
        Command::Tradeoff(arguments) => tradeoff(arguments),
        Command::Tan(arguments) => tan(arguments),
        Command::Statement(arguments) => statement(arguments),
    }
}

fn invalid(name: &'static str, reason: String) -> AccountantError {
    AccountantError::InvalidArgument { name, reason }
}

fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { json!("inf") }
}

fn ledger_of(events: &Events) -> Result<PrivacyLedger, AccountantError> {
    if let Some(ledger) = &events.ledger {
        return Ok(ledger.clone());
    }
    let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, events.relation));
    for (event, count) in events.counted() {
        ledger.record_many(event, count)?;
    }
    Ok(ledger)
}

fn epsilon(arguments: &Epsilon) -> Output {
    let events = arguments.training.read()?;
    let relation = events.relation;
    let insecure = events.ledger.as_ref().is_some_and(|ledger| {
        ledger.header().noise_source != burn_dp_accountant::NoiseSource::Secure
    });
    let answer = match arguments.accountant {
        Accountant::Exact => exact(&events, arguments.delta)?,
        _ if insecure => ledger_of(&events)?.epsilon(arguments.delta)?,
        Accountant::Pld => {
            PldAccountant::new(events.counted(), relation)?.epsilon(arguments.delta)?
        }
        Accountant::Rdp => {
            RdpAccountant::new(events.counted(), relation)?.epsilon(arguments.delta)?
        }
        Accountant::Gdp => return central_limit(&events, arguments),
    };
    if arguments.json {
        let value = json!({
            "epsilon": number(answer.upper),
            "lower": number(answer.lower),
            "upper": number(answer.upper),
            "estimate": number(answer.estimate),
            "delta": answer.delta,
            "accountant": answer.method,
            "relation": relation,
            "order": answer.order,
            "notes": answer.notes,
        });
        return Ok(format!("{value:#}\n"));
    }
    let mut text = format!(
        "{answer}\n  relation:  {relation}\n  method:    {}\n  bracket:   [{}, {}]\n  estimate:  {}\n",
        answer.method, answer.lower, answer.upper, answer.estimate
    );
    if let Some(order) = answer.order {
        text += &format!("  order:     {order:.3}\n");
    }
    for note in &answer.notes {
        text += &format!("  note:      {note}\n");
    }
    Ok(text)
}

/// The best guarantee, with the exact value as its estimate. Where the quick way to it does not suffice
/// the patient one is taken; what gives no exact value says why.
fn exact(events: &Events, delta: f64) -> Result<burn_dp_accountant::Epsilon, AccountantError> {
    let mut answer = ledger_of(events)?.epsilon(delta)?;
    match answer.method {
        Method::Exact | Method::ClosedForm | Method::Nothing => return Ok(answer),
        Method::Pld if answer.upper.is_finite() => {}
        method => {
            answer.notes.push(format!("no exact value; the method was: {method}"));
            return Ok(answer);
        }
    }
    let found = ExactAccountant::new(events.counted(), events.relation)
        .and_then(|accountant| accountant.epsilon(delta));
    match found {
        Ok(value)
            if value >= answer.lower * (1.0 - 1e-9) && value <= answer.upper * (1.0 + 1e-9) =>
        {
            answer.estimate = value.clamp(answer.lower, answer.upper);
            answer.method = Method::Exact;
        }
        Ok(value) => answer.notes.push(format!("the exact value {value} is not in the bracket")),
        Err(error) => {
            answer
                .notes
                .push(format!("no exact value; the method was: {}; {error}", answer.method));
        }
    }
    Ok(answer)
}

fn central_limit(events: &Events, arguments: &Epsilon) -> Output {
    let [(DpEvent::PoissonSampled { sampling_probability, event }, steps)] = &events.events[..]
    else {
        return Err(invalid("--accountant", "gdp needs exactly one segment".to_string()));
    };
    let DpEvent::Gaussian { noise_multiplier } = **event else {
        return Err(invalid("--accountant", "gdp needs Gaussian releases".to_string()));
    };
    let limit = CentralLimitEstimate::poisson(*sampling_probability, noise_multiplier, *steps)?;
    let estimate = limit.epsilon(arguments.delta)?;
    if arguments.json {
        let value = json!({
            "epsilon": Value::Null, "lower": 0.0, "upper": "inf",
            "estimate": number(estimate.without_guarantee()),
            "delta": arguments.delta, "accountant": "gdp", "relation": events.relation,
            "order": Value::Null, "notes": ["central-limit approximation: no guarantee"],
        });
        return Ok(format!("{value:#}\n"));
    }
    Ok(format!("epsilon is {estimate} at delta = {:e}\n", arguments.delta))
}

fn delta(arguments: &Delta) -> Output {
    let events = arguments.training.read()?;
    let bracket =
        PldAccountant::new(events.counted(), events.relation)?.delta(arguments.epsilon)?;
    if arguments.json {
        let value = json!({
            "delta": bracket.upper, "lower": bracket.lower, "upper": bracket.upper,
            "estimate": bracket.estimate, "epsilon": bracket.epsilon,
            "relation": events.relation, "notes": bracket.notes,
        });
        return Ok(format!("{value:#}\n"));
    }
    Ok(format!(
        "delta = {:e} at epsilon = {}\n  relation:  {}\n  bracket:   [{:e}, {:e}]\n",
        bracket.upper, bracket.epsilon, events.relation, bracket.lower, bracket.upper
    ))
}

fn calibrate(arguments: &Calibrate) -> Output {
    let budget = Budget::new(arguments.epsilon, arguments.delta)?;
    let calibration = Calibration::new(budget).with_relation(arguments.relation.into());
    let given = (arguments.sampling_probability, arguments.steps, arguments.noise_multiplier);
    let (name, value) = match (given, arguments.dataset_size) {
        ((Some(q), None, Some(sigma)), None) => {
            ("steps", json!(calibration.steps(&DpEvent::dp_sgd_step(q, sigma))?))
        }
        ((Some(q), Some(steps), None), None) => {
            let sigma = calibration.noise_multiplier(steps, |s| DpEvent::dp_sgd_step(q, s))?;
            ("noise_multiplier", json!(sigma))
        }
        ((None, Some(steps), Some(sigma)), size) => {
            DpEvent::gaussian(sigma).validate()?;
            let event = |q| DpEvent::dp_sgd_step(q, sigma);
            match size {
                Some(size) => {
                    let batch = calibration.expected_batch_size(size, steps, event)?;
                    ("expected_batch_size", json!(batch))
                }
                None => {
                    let q = calibration.sampling_probability(steps, event)?;
                    ("sampling_probability", json!(q))
                }
            }
        }
        _ => {
            let reason = "two of the three must be given, the third is searched (with \
                          --dataset-size as a batch size)";
            return Err(invalid(
                "--sampling-probability, --steps, --noise-multiplier",
                reason.to_string(),
            ));
        }
    };
    if arguments.json {
        let value = json!({ name: value, "epsilon": budget.epsilon(), "delta": budget.delta() });
        return Ok(format!("{value:#}\n"));
    }
    Ok(format!("{name} = {value}\n"))
}

fn tradeoff(arguments: &Tradeoff) -> Output {
    if let Some(alpha) = arguments.alpha.iter().find(|alpha| !(0.0..=1.0).contains(*alpha)) {
        return Err(invalid("--alpha", format!("must be between 0 and 1, got {alpha}")));
    }
    let events = arguments.training.read()?;
    let curve = PldAccountant::new(events.counted(), events.relation)?.tradeoff(1_000)?;
    if let Some(path) = &arguments.plot {
        plot::tradeoff(&curve, path)?;
    }
    let points: Vec<(f64, f64)> =
        arguments.alpha.iter().map(|&alpha| (alpha, curve.type_two_error(alpha))).collect();
    if arguments.json {
        let points: Vec<Value> =
            points.iter().map(|(a, b)| json!({ "alpha": a, "beta": b })).collect();
        return Ok(format!("{:#}\n", Value::from(points)));
    }
    let mut text = "type I error   smallest type II error (no test does better)\n".to_string();
    for (alpha, beta) in points {
        text += &format!("{alpha:<14} {beta:.6}\n");
    }
    Ok(text)
}

fn tan(arguments: &Tan) -> Output {
    let run = RunPlan {
        expected_batch_size: arguments.batch_size,
        noise_multiplier: arguments.noise_multiplier,
        steps: arguments.steps,
    };
    let q = arguments.batch_size / arguments.dataset_size as f64;
    let noise = TotalAmountOfNoise::new(q, arguments.noise_multiplier, arguments.steps)?;
    let small = run.scaled_down(arguments.factor)?;
    let event = DpEvent::dp_sgd_step(q, arguments.noise_multiplier);
    let relation = burn_dp_accountant::NeighboringRelation::AddOrRemoveOne;
    let exact =
        PldAccountant::new([(&event, arguments.steps)], relation)?.epsilon(arguments.delta)?;
    let approximate = noise.approximate_epsilon(arguments.delta)?;
    let prediction = if arguments.run.is_empty() {
        None
    } else {
        let runs: Vec<(f64, f64)> =
            arguments.run.iter().map(|text| parse_run(text)).collect::<Result<_, _>>()?;
        Some(ScalingLaw::fit(&runs)?.predict(arguments.batch_size))
    };
    if arguments.json {
        let value = json!({
            "eta": noise.eta(), "sigma_total": noise.sigma(), "epsilon_tan": approximate,
            "epsilon": number(exact.upper), "delta": arguments.delta,
            "small_batch_size": small.expected_batch_size,
            "small_noise_multiplier": small.noise_multiplier, "steps": small.steps,
            "predicted_accuracy": prediction.map(|(value, low, high)| json!([value, low, high])),
        });
        return Ok(format!("{value:#}\n"));
    }
    let mut text = format!(
        "eta = {:.6}, total amount of noise = {:.6}\nepsilon = {} (guarantee), about {:.4} by TAN, at delta = {:e}\nsmall run: expected batch {}, noise multiplier {}, {} steps (choose hyper-parameters here; never release it)\n",
        noise.eta(),
        noise.sigma(),
        exact.upper,
        approximate,
        arguments.delta,
        small.expected_batch_size,
        small.noise_multiplier,
        small.steps
    );
    if arguments.noise_multiplier < burn_dp_accountant::PRIVACY_WALL {
        text +=
            "the noise multiplier is below 2: beyond the privacy wall, TAN's epsilon is too low\n";
    }
    if let Some((value, low, high)) = prediction {
        text += &format!("predicted accuracy: {value:.4} (95 % interval {low:.4} to {high:.4})\n");
    }
    Ok(text)
}

fn parse_run(text: &str) -> Result<(f64, f64), AccountantError> {
    let parsed = text.split_once(':').and_then(|(batch, accuracy)| {
        Some((batch.trim().parse().ok()?, accuracy.trim().parse().ok()?))
    });
    parsed.ok_or_else(|| invalid("--run", format!("must be BATCH:ACCURACY, got {text:?}")))
}

fn statement(arguments: &Statement) -> Output {
    let ledger = released(&arguments.ledger)?;
    let statement = PrivacyStatement::from_ledger(&ledger, &arguments.delta)?;
    Ok(if arguments.json { statement.to_json()? + "\n" } else { statement.to_string() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use burn_dp_accountant::NeighboringRelation;
    use clap::Parser;

    fn refusal(arguments: &str) -> String {
        let arguments = ["program"].into_iter().chain(arguments.split_whitespace());
        let cli = crate::arguments::Cli::try_parse_from(arguments).unwrap();
        run(&cli.command).unwrap_err().to_string()
    }

    #[test]
    fn bad_input_is_named_with_its_value() {
        let segment = "--sampling-probability 0.01 --noise-multiplier 1 --steps 10";
        for (arguments, name) in [
            ("epsilon --q nan --sigma 1 --steps 10 --delta 1e-5", "sampling_probability"),
            ("epsilon --q 1.5 --sigma 1 --steps 10 --delta 1e-5", "got 1.5"),
            ("epsilon --q 0.1 --sigma -1 --steps 10 --delta 1e-5", "noise_multiplier"),
            ("epsilon --delta 1e-5", "--ledger FILE"),
            (&format!("epsilon {segment} --delta 1"), "delta must be between 0 and 1"),
            (&format!("delta {segment} --epsilon -1"), "epsilon must be"),
            (&format!("tradeoff {segment} --alpha 2"), "--alpha must be between 0 and 1, got 2"),
            ("calibrate --epsilon 3 --delta 1e-5 --q 0.01", "two of the three must be given"),
            ("calibrate --epsilon 3 --delta 1e-5 --steps 9 --sigma -1", "noise_multiplier"),
        ] {
            let error = refusal(arguments);
            assert!(error.contains(name), "{arguments}: {error}");
        }
    }

    fn json(arguments: &str) -> Value {
        let arguments = ["program"].into_iter().chain(arguments.split_whitespace());
        let cli = crate::arguments::Cli::try_parse_from(arguments).unwrap();
        serde_json::from_str(&run(&cli.command).unwrap()).unwrap()
    }

    #[test]
    fn exact_values_of_rare_losses_are_found_and_others_say_why_not() {
        let rare = json("epsilon --q 1e-5 --sigma 1 --steps 1000 --delta 1e-9 --json");
        assert_eq!(rare["accountant"], "exact", "{rare}");
        let estimate = rare["estimate"].as_f64().unwrap();
        assert!((estimate / 0.00241620762339 - 1.0).abs() < 1e-9, "{rare}");
        assert_eq!(rare["epsilon"], rare["upper"]);
        for field in ["lower", "delta", "relation", "order", "notes"] {
            assert!(rare.get(field).is_some(), "{field} in {rare}");
        }
        // Only bounds are known for fixed-size sampling.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.json");
        let relation = NeighboringRelation::ReplaceOne;
        let header = LedgerHeader::new(UnitOfPrivacy::Example, relation);
        let mut ledger = PrivacyLedger::new(header);
        let event = DpEvent::SampledWithoutReplacement {
            dataset_size: 1_000,
            sample_size: 10,
            event: Box::new(DpEvent::gaussian(2.0)),
        };
        ledger.record_many(&event, 10).unwrap();
        ledger.save(&path).unwrap();
        let bound = json(&format!("epsilon --delta 1e-5 --json --ledger {}", path.display()));
        assert_ne!(bound["accountant"], "exact", "{bound}");
        let notes = bound["notes"].to_string();
        assert!(notes.contains("no exact value"), "{bound}");
    }

    #[test]
    fn each_of_the_parameters_can_be_searched_and_meets_the_budget() {
        let target = "calibrate --epsilon 2 --delta 1e-5 --json";
        for (given, name) in [
            ("--q 0.01 --steps 1000", "noise_multiplier"),
            ("--q 0.01 --sigma 1", "steps"),
            ("--steps 1000 --sigma 1", "sampling_probability"),
            ("--steps 1000 --sigma 1 --dataset-size 5000", "expected_batch_size"),
        ] {
            let found = json(&format!("{target} {given}"))[name].as_f64().unwrap();
            let used = match name {
                "noise_multiplier" => format!("{given} --sigma {found}"),
                "steps" => format!("{given} --steps {found}"),
                "sampling_probability" => format!("{given} --q {found}"),
                _ => format!("--steps 1000 --sigma 1 --q {}", found / 5000.0),
            };
            let epsilon = json(&format!("epsilon --delta 1e-5 --json {used}"));
            let epsilon = epsilon["epsilon"].as_f64().unwrap();
            assert!(epsilon <= 2.0 && epsilon > 1.9, "{given}: {name} {found} {epsilon}");
        }
    }

    #[test]
    fn an_empty_ledger_is_no_proof_of_privacy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.json");
        let relation = NeighboringRelation::AddOrRemoveOne;
        PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation))
            .save(&path)
            .unwrap();
        for command in ["epsilon --delta 1e-5", "delta --epsilon 1", "tradeoff", "statement"] {
            let error = refusal(&format!("{command} --ledger {}", path.display()));
            assert!(error.contains("at least one release"), "{command}: {error}");
        }
    }
}
