//! The commands with good and bad input.

#![allow(clippy::unwrap_used)]

use burn_dp_accountant::{
    DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, UnitOfPrivacy,
};
use clap::Parser;
use serde_json::Value;

use crate::Cli;

fn output(arguments: &str) -> crate::output::Output {
    let arguments = ["program"].into_iter().chain(arguments.split_whitespace());
    Cli::try_parse_from(arguments).unwrap().command.run()
}

fn refusal(arguments: &str) -> String {
    output(arguments).unwrap_err().to_string()
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
    serde_json::from_str(&output(arguments).unwrap()).unwrap()
}

#[test]
fn exact_value_of_rare_losses_is_found() {
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
fn each_parameter_is_calibrated_within_the_budget() {
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
fn empty_ledger_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.json");
    let relation = NeighboringRelation::AddOrRemoveOne;
    PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation)).save(&path).unwrap();
    for command in ["epsilon --delta 1e-5", "delta --epsilon 1", "tradeoff", "statement"] {
        let error = refusal(&format!("{command} --ledger {}", path.display()));
        assert!(error.contains("at least one release"), "{command}: {error}");
    }
}

#[test]
fn text_has_meaningful_digits_on_the_safe_side() {
    let segment = "--q 0.004266666666666667 --sigma 1.1 --steps 14062";
    let text = output(&format!("epsilon {segment} --delta 1e-5")).unwrap();
    assert!(text.starts_with("epsilon = 2.3816"), "{text}");
    let longest = text.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap();
    assert!(longest <= 6, "{text}");
    let exact = json(&format!("epsilon {segment} --delta 1e-5 --json"));
    let printed: f64 = text["epsilon = ".len()..].split(' ').next().unwrap().parse().unwrap();
    assert!(printed >= exact["upper"].as_f64().unwrap(), "{text} {exact}");
    let noise = output("calibrate --epsilon 2 --delta 1e-5 --q 0.01 --steps 1000").unwrap();
    let full = json("calibrate --epsilon 2 --delta 1e-5 --q 0.01 --steps 1000 --json");
    let noise: f64 = noise["noise_multiplier = ".len()..].trim().parse().unwrap();
    let full = full["noise_multiplier"].as_f64().unwrap();
    assert!(noise >= full && noise < full * (1.0 + 1e-5), "{noise} {full}");
}

#[test]
fn an_audit_prints_each_estimator_with_its_rule() {
    let folder = tempfile::tempdir().unwrap();
    let (file, svg) = (folder.path().join("scores.json"), folder.path().join("roc.svg"));
    let scores = serde_json::json!({ "in": vec![1.0; 50], "out": vec![0.0; 50] });
    std::fs::write(&file, scores.to_string()).unwrap();
    let line = format!("audit --scores {} --delta 0 --plot {}", file.display(), svg.display());
    let estimates = json(&format!("{line} --json"));
    let names = ["clopper_pearson", "one_run", "one_run_fdp", "gdp", "auc", "tpr_at_fpr"];
    for (estimate, name) in estimates.as_array().unwrap().iter().zip(names) {
        assert_eq!(estimate["estimator"], name);
        assert_eq!(estimate["significance"], 0.05);
        assert!(estimate["epsilon_lower"].is_number(), "{estimate}");
        assert!(estimate["threshold_rule"].is_string(), "{estimate}");
    }
    let one_run = estimates[1]["epsilon_lower"].as_f64().unwrap();
    assert!((one_run - 3.492965).abs() < 1e-4, "{one_run}");
    assert!(output(&line).unwrap().contains("epsilon >= 3.492"), "{}", output(&line).unwrap());
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("false positive rate") && drawn.contains("polyline"), "{drawn}");
}

#[test]
fn scores_that_cannot_be_audited_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scores.json");
    let line = format!("audit --scores {}", file.display());
    for (text, options, name) in [
        (r#"{"in": [1, NaN], "out": [0]}"#, "--delta 0", "NaN"),
        (r#"{"in": [], "out": [0]}"#, "--delta 0", "in must hold at least one score"),
        (r#"{"in": [1], "out": [0]}"#, "--delta 1", "delta must be at least 0"),
        (r#"{"in": [1], "out": [0]}"#, "--delta 0 --significance 0.7", "got 0.7"),
        (r#"{"in": [1], "out": [0]}"#, "--delta 0 --threshold 1", "--rule fixed"),
        (r#"{"in": [1], "out": [0]}"#, "--delta 0 --fpr 2", "got 2"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = refusal(&format!("{line} {options}"));
        assert!(error.contains(name), "{text} {options}: {error}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(refusal(&format!("{line} --delta 0")).contains("scores.json"));
}
