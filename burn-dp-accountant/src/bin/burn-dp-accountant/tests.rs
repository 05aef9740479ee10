//! The commands with good and bad input.

#![allow(clippy::unwrap_used)]

use burn_dp_accountant::{
    AccountantError, DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, UnitOfPrivacy,
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
fn usage_lines_name_the_program_that_was_started() {
    for (program, expected) in [
        (Some("cargo xtask"), "Usage: cargo xtask epsilon "),
        (None, "Usage: burn-dp-accountant epsilon "),
    ] {
        let command = crate::named(program.map(String::from));
        let help = command.try_get_matches_from(["program", "epsilon", "--help"]).unwrap_err();
        assert!(help.to_string().contains(expected), "{help}");
    }
}

#[test]
fn an_option_has_its_name_in_other_programs_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (file, picture) = (at("s.json"), at("s.svg"));
    output(&format!("strategy --kind tree --steps 8 --output {file} --plot {picture}")).unwrap();
    assert!(std::fs::exists(&picture).unwrap());
    let end = "--epochs 2 --sigma 3 --delta 1e-5";
    let names = ["--sampler shuffled --strategy", "--sampling shuffled --correlated-noise"];
    let [one, other] = names.map(|names| output(&format!("epsilon {names} {file} {end}")).unwrap());
    assert_eq!(one, other);
    let name = "--q 0.01 --steps 100 --sigma 1 --delta 1e-5 --accountant";
    let [one, other] = ["clt", "gdp"].map(|one| output(&format!("epsilon {name} {one}")).unwrap());
    assert_eq!(one, other);
}

#[test]
fn bad_input_is_named_with_its_value() {
    let segment = "--sampling-probability 0.01 --noise-multiplier 1 --steps 10";
    for (arguments, name) in [
        ("epsilon --q nan --sigma 1 --steps 10 --delta 1e-5", "sampling_probability"),
        ("epsilon --q 1.5 --sigma 1 --steps 10 --delta 1e-5", "got 1.5"),
        ("epsilon --q 0.1 --sigma -1 --steps 10 --delta 1e-5", "noise_multiplier"),
        ("epsilon --delta 1e-5", "--sampling-probability must be given, or --ledger FILE"),
        ("epsilon --q 0.1 --sigma 1 --delta 1e-5", "--steps must be given, or --ledger FILE"),
        (
            "epsilon --q 0.1 --q 0.2 --sigma 1 --sigma 2 --steps 9 --delta 1e-5",
            "--steps must be given once for each of the 2 segments, got 1",
        ),
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

#[test]
fn arguments_of_the_library_are_named_as_options() {
    for (arguments, expected) in [
        (
            "epsilon --q 0.1 --sigma -1 --steps 9 --delta 1e-5",
            "--noise-multiplier must be positive",
        ),
        ("epsilon --q 0.1 --sigma 1 --steps 9 --delta 0", "--delta must be between 0 and 1"),
        ("epsilon --q 0.1 --sigma 1 --steps 9 --delta 1e-5 --group 0", "--group must be at"),
        (
            "epsilon --sampler balls-in-bins --bins 0 --sigma 1 --delta 1e-5",
            "--bins must be at least 1, got 0",
        ),
        (
            "epsilon --batch-size 200 --dataset-size 100 --sigma 1 --steps 9 --delta 1e-5",
            "--batch-size must be at most --dataset-size = 100, got 200",
        ),
        (
            "epsilon --sampler fixed-size --batch-size 9 --dataset-size 5 --sigma 1 --steps 9 \
             --delta 1e-5",
            "--batch-size must be at most --dataset-size = 5",
        ),
    ] {
        let message = crate::message(&output(arguments).unwrap_err());
        assert!(message.starts_with(expected), "{arguments}: {message}");
    }
    // Whole words: `batch_size` is a part of two other names.
    let reason = "must be at least expected_batch_size = 3, got max_batch_size = 2".to_string();
    let error = AccountantError::InvalidArgument { name: "max_batch_size", reason };
    let expected = "--max-batch-size must be at least expected_batch_size = 3, got \
                    --max-batch-size = 2";
    assert_eq!(crate::message(&error), expected);
}

#[test]
fn a_file_that_is_no_ledger_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let ledger = |content: &str| {
        std::fs::write(&path, content).unwrap();
        refusal(&format!("epsilon --delta 1e-5 --ledger {}", path.display()))
    };
    for content in ["{}", "no JSON", "{\"format_version\": 99}", "{\"format_version\": 3}"] {
        let error = ledger(content);
        assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
    }
    let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::ReplaceOne);
    let mut spent = PrivacyLedger::new(header);
    spent.record(&DpEvent::gaussian(1.0)).unwrap();
    let statement = burn_dp_accountant::PrivacyStatement::from_ledger(&spent, &[1e-5]).unwrap();
    let error = ledger(&statement.to_json().unwrap());
    assert!(error.contains("is a privacy statement, not a ledger"), "{error}");
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
fn a_statement_has_no_delta_that_publishes_a_unit_outright() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.json");
    for (units, expected) in [(200_000.0, vec![1e-6, 1e-8]), (1e9, vec![1e-10])] {
        let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
        let mut ledger = PrivacyLedger::new(header.with_fact("dataset_size", units));
        ledger.record_many(&DpEvent::dp_sgd_step(0.01, 1.0), 10).unwrap();
        ledger.save(&path).unwrap();
        let statement = json(&format!("statement --json --ledger {}", path.display()));
        let epsilons = statement["epsilons"].as_array().unwrap();
        let found: Vec<_> = epsilons.iter().map(|one| one["delta"].as_f64().unwrap()).collect();
        assert_eq!(found, expected);
        let error = refusal(&format!("statement --delta 1e-5 --ledger {}", path.display()));
        assert!(error.contains("--delta must be below one over the number"), "{error}");
    }
}

#[test]
fn a_size_that_is_no_number_of_units_is_not_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.json");
    for size in ["abc", "0", "-5"] {
        let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
        let mut ledger = PrivacyLedger::new(header.with_fact("dataset_size", size));
        ledger.record_many(&DpEvent::dp_sgd_step(0.01, 1.0), 10).unwrap();
        ledger.save(&path).unwrap();
        let error = refusal(&format!("statement --delta 0.5 --ledger {}", path.display()));
        assert!(error.contains(&format!("dataset_size `{size}`")), "{error}");
    }
}

#[test]
fn a_plot_does_not_replace_its_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scores.json");
    let scores = r#"{"in": [1.0, 2.0], "out": [0.0, 0.5]}"#;
    std::fs::write(&path, scores).unwrap();
    let file = path.display();
    let error = refusal(&format!("audit --scores {file} --delta 0 --split-seed 3"));
    assert!(error.contains("no effect without --rule split, got 3"), "{error}");
    let error = refusal(&format!("audit --scores {file} --delta 0 --plot {file}"));
    assert!(error.contains("is the input"), "{error}");
    // Nor the ledger of a run, whatever reads it.
    let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
    let text = PrivacyLedger::new(header).to_json().unwrap();
    let ledger = folder.path().join("ledger.json");
    std::fs::write(&ledger, &text).unwrap();
    let file = ledger.display();
    for line in [
        format!("tradeoff --ledger {file} --plot {file}"),
        format!("strategy --kind tree --steps 8 --output {file}"),
        format!("strategy --kind tree --steps 8 --svg {file}"),
    ] {
        let error = refusal(&line);
        assert!(error.contains("is the ledger of a run"), "{line}: {error}");
    }
    assert_eq!(std::fs::read_to_string(&ledger).unwrap(), text);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), scores);
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
    assert_eq!(estimates.as_array().unwrap().len(), names.len());
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

#[test]
fn strategies_have_their_known_losses() {
    // correlated_noise.json: rows p018 and p038, and the optimal Toeplitz strategy.
    for (arguments, field, expected) in [
        ("--kind banded --steps 64 --bands 8", "mean_loss_sq", 7.096761916882549),
        ("--kind blt --steps 100 --buffers 2 --objective max", "max_loss_sq", 6.433948383324536),
        ("--kind toeplitz --steps 1000", "max_loss_sq", 3.2650030807f64.powi(2)),
        ("--kind identity --steps 10", "max_loss_sq", 10.0),
        ("--kind tree --steps 16", "sensitivity", 5f64.sqrt()),
        ("--kind blt --steps 10 --theta 0.9 --omega 0.3", "max_sq_error", 2.43570541179496),
        ("--kind dense --steps 4", "mean_loss_sq", 1.718536024135356),
        (
            "--kind banded-inverse --steps 12 --bands 2 --square-root --participations 3 \
          --separation 4",
            "sensitivity",
            2.0827450557471936,
        ),
        (
            "--kind banded-inverse --steps 12 --bands 2 --participations 3 --separation 4",
            "mean_loss_sq",
            10.219304081570197,
        ),
        // Row p066.
        (
            "--kind dense --steps 4 --participations 2 --separation 2 --fixed-order",
            "mean_loss_sq",
            3.648693740918605,
        ),
        ("--kind identity --steps 8 --separation 4 --fixed-order", "sensitivity", 2f64.sqrt()),
        // Rates of 1, 2/3 and 1/3: the errors are 1, 13/9 and 14/9.
        ("--kind identity --steps 3 --schedule linear", "max_sq_error", 14.0 / 9.0),
        ("--kind identity --steps 3 --schedule constant --warmup 2", "max_sq_error", 2.25),
    ] {
        let found = json(&format!("strategy --json {arguments}"));
        let value = found[field].as_f64().unwrap();
        assert!((value / expected - 1.0).abs() < 1e-6, "{arguments}: {value} {expected}");
        for field in ["kind", "steps", "max_sq_error", "mean_sq_error", "mean_loss_sq"] {
            assert!(found.get(field).is_some(), "{field} in {found}");
        }
    }
}

#[test]
fn searches_know_the_learning_rates() {
    for kind in ["banded --bands 4", "blt --buffers 2", "banded-inverse --bands 3", "dense"] {
        let loss = |arguments: &str| {
            let found = json(&format!("strategy --json --kind {kind} --steps 40 {arguments}"));
            (found["mean_loss_sq"].as_f64().unwrap(), found)
        };
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("s.json").display().to_string();
        let rates = "--schedule cosine --warmup 4 --momentum 0.9";
        let (known, _) = loss(rates);
        // The strategy of constant rates, on the same workload.
        loss(&format!("--momentum 0.9 --output {saved}"));
        let constant = json(&format!("strategy --json --strategy {saved} {rates}"));
        let constant = constant["mean_loss_sq"].as_f64().unwrap();
        assert!(known < constant * (1.0 - 1e-4), "{kind}: {known} {constant}");
    }
}

#[test]
fn a_trade_off_curve_has_the_gaussian_that_dominates_it() {
    // One Gaussian release is its own fit; sampling is not Gaussian, and the fit loses something.
    let regret = |line: &str| {
        let text = output(line).unwrap();
        let (_, regret) = text.trim_end().rsplit_once("regret ").unwrap();
        regret.parse::<f64>().unwrap()
    };
    let gaussian = regret("tradeoff --q 1 --sigma 2 --steps 1");
    assert!(gaussian < 0.01, "{gaussian}");
    let sampled = regret("tradeoff --q 0.05 --sigma 0.8 --steps 20");
    assert!(sampled > 2.0 * gaussian, "{sampled}");
    let text = output("tradeoff --q 1 --sigma 2 --steps 1").unwrap();
    assert!(text.contains("mu = 0.50") && text.contains("regret"), "{text}");
}

#[test]
fn strategy_files_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (saved, picture) = (file("s.json"), file("s.svg"));
    let search = "--kind blt --steps 50 --buffers 1 --json";
    let found = json(&format!("strategy {search} --output {saved} --svg {picture}"));
    assert_eq!(json(&format!("strategy --strategy {saved} --json")), found);
    assert!(std::fs::read_to_string(&picture).unwrap().contains("independent noise"));
    let cached = format!("strategy {search} --cache {}", folder.path().display());
    assert_eq!((json(&cached), json(&cached)), (found.clone(), found));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
    std::fs::write(file("c.txt"), "[1.0, 0.5,\n0.25]").unwrap();
    let given = format!("--coefficients {}", file("c.txt"));
    let banded = json(&format!("strategy --kind banded --steps 9 {given} --json"));
    assert_eq!(banded["coefficients"], serde_json::json!([1.0, 0.5, 0.25]));
    let dense = json(&format!("strategy --kind dense --steps 2 {given} --json"));
    assert_eq!(dense["coefficients"], serde_json::json!([[1.0], [0.5, 0.25]]));
    let text = output("strategy --kind banded --steps 40 --bands 4 --normalize-columns").unwrap();
    assert!(text.contains("normalized columns") && text.contains("independent noise"), "{text}");
    std::fs::write(file("bad.txt"), "1.0 x").unwrap();
    let bad = format!("strategy --kind banded --steps 9 --coefficients {}", file("bad.txt"));
    assert!(refusal(&bad).contains("got \"x\""), "{}", refusal(&bad));
}

#[test]
fn impossible_strategies_are_named_with_a_way_out() {
    for (arguments, part) in [
        ("--kind banded --steps 10", "--coefficients FILE"),
        ("--kind banded --steps 10 --bands 11", "number of steps, 10, and"),
        ("--kind tree --steps 10 --bands 2", "--bands must not be given with --kind tree"),
        ("--kind identity --steps 0", "got 0"),
        ("--kind dense --steps 500", "got 500; use a buffered"),
        ("--kind blt --steps 10 --buffers 99", "between 1 and 16, got 99"),
        ("--kind blt --steps 10 --theta 2 --omega 1", "between 0 and 1, got 2"),
        ("--kind identity --steps 10 --participations 0", "times must be at least 1"),
        ("--kind identity --steps 10 --momentum 1", "momentum must be"),
        ("--strategy no-such-file.json", "no-such-file.json"),
        ("--kind dense --steps 8 --separation 4 --participations 3 --fixed-order", "be 2, the"),
        ("--kind blt --steps 20000 --schedule linear", "at most 10000 steps in a search"),
    ] {
        let error = refusal(&format!("strategy {arguments}"));
        assert!(error.contains(part), "{arguments}: {error}");
    }
}

#[test]
fn every_sampler_has_its_epsilon() {
    let epsilon = |line: &str| {
        let found = json(&format!("epsilon --delta 1e-5 --json {line}"));
        found["epsilon"].as_f64().unwrap_or_else(|| panic!("{line}: {found}"))
    };
    // Golden rows: bandmf_cyclic_poisson, truncated_poisson_eps, and Poisson itself.
    for (line, truth) in [
        (
            "--sampler cyclic-poisson --parts 10 --dataset-size 1000 --batch-size 10 --sigma 2 \
             --steps 100",
            0.7984673858437389,
        ),
        (
            "--sampler cyclic-poisson --parts 10 --q 0.1 --sigma 4 --steps 100 \
             --coefficients 1.6,1.2",
            0.7984673858437389,
        ),
        (
            "--sampler truncated-poisson --relation replace-special --q 0.05 --dataset-size 1000 \
             --max-batch-size 60 --sigma 1 --steps 1",
            4.009156237119291,
        ),
        (
            "--sampler poisson --dataset-size 10000 --batch-size 100 --sigma 1 --steps 1000",
            1.8282366665166045,
        ),
    ] {
        let found = epsilon(line);
        assert!(
            (found / truth - 1.0).abs() < 1e-4 && found >= truth * (1.0 - 1e-9),
            "{line}: {found}"
        );
    }
    let bins = epsilon("--sampler balls-in-bins --bins 100 --epochs 4 --sigma 2");
    let same = epsilon("--sampler balls-in-bins --bins 100 --steps 400 --sigma 2");
    let fresh = epsilon("--sampler balls-in-bins --bins 100 --epochs 4 --fresh-bins --sigma 2");
    assert!(bins == same && fresh < bins, "{bins} {same} {fresh}");
    let two = epsilon("--sampler balls-in-bins --bins 100 --participations 2 --sigma 2");
    assert!(two > epsilon("--sampler balls-in-bins --bins 100 --sigma 2"));
    let allocated = epsilon("--sampler random-allocation --bins 100 --epochs 4 --sigma 2");
    assert_eq!(allocated, fresh);
    let shuffled = epsilon("--sampler shuffled --epochs 4 --sigma 4");
    let whole = epsilon("--q 1 --sigma 1 --steps 1");
    assert!((shuffled / whole - 1.0).abs() < 1e-6, "{shuffled} {whole}");
    let apart = "--sampler min-separation --separation 5 --sigma 2 --steps 40";
    let (poisson, given) =
        (epsilon("--q 0.1 --sigma 2 --steps 40"), epsilon(&format!("{apart} --q 0.1")));
    assert!((given / poisson - 1.0).abs() < 1e-4, "{given} {poisson}");
    // p = 10 / (140 - 4 x 10).
    let sized = epsilon(&format!("{apart} --dataset-size 140 --batch-size 10"));
    assert!((sized / given - 1.0).abs() < 1e-9, "{sized} {given}");
    let users = "--q 0.05 --sigma 3 --steps 50 --examples-per-unit 3";
    let three = epsilon(users);
    let far = "--sampler truncated-poisson --dataset-size 1000 --max-batch-size";
    let uncut = epsilon(&format!("{far} 1000 {users}"));
    assert!(three > epsilon("--q 0.05 --sigma 3 --steps 50"), "{three}");
    assert!((uncut / three - 1.0).abs() < 1e-4, "{uncut} {three}");
    let (rare, near) =
        (epsilon(&format!("{far} 100 {users}")), epsilon(&format!("{far} 55 {users}")));
    assert!(three * (1.0 - 1e-6) <= rare && rare < 1.01 * three, "{rare} {three}");
    assert!(near > 1.2 * three, "{near} {three}");
    let double = epsilon("--q 0.05 --sigma 1.5 --steps 50 --examples-per-unit 3");
    assert!(near < double, "{near} {double}");
    let replace = "--dataset-size 1000 --batch-size 10 --steps 10 --sigma 2";
    let fixed = epsilon(&format!("--sampler fixed-size {replace}"));
    let with = epsilon(&format!("--sampler with-replacement {replace}"));
    assert!(0.0 < fixed && fixed < with, "{fixed} {with}");
    let group = epsilon("--q 0.01 --sigma 1 --steps 100 --group 2");
    assert!(group > 2.0 * epsilon("--q 0.01 --sigma 1 --steps 100"), "{group}");
}

#[test]
fn a_simulation_names_its_seed() {
    let line = "--sampler balls-in-bins --bins 6 --participations 2 --sigma 1.5 --delta 1e-2";
    let options = "--accountant monte-carlo --samples 20000 --seed 5 --json";
    let found = json(&format!("epsilon {line} {options}"));
    assert_eq!(found["accountant"], "monte_carlo");
    assert!(found["notes"].to_string().contains("seed 5"), "{found}");
    assert!(found["upper"].as_f64().unwrap() > found["estimate"].as_f64().unwrap(), "{found}");
    for option in ["--samples 7", "--seed 0", "--failure-probability 1e-3"] {
        let error = refusal(&format!("epsilon {line} {option}"));
        assert!(error.contains("no effect without --accountant monte-carlo"), "{error}");
    }
}

#[test]
fn correlated_noise_of_random_steps_is_certified_and_simulated() {
    for (line, ratio) in [
        ("--sampler balls-in-bins --bins 20 --epochs 3 --coefficients 1,0.5,0.25", 1.0),
        ("--sampler random-allocation --bins 20 --epochs 3 --coefficients 1,0.5,0.25", 0.8),
        ("--sampler min-separation --separation 10 --q 0.02 --steps 60 --coefficients 1,0.5", 0.8),
    ] {
        let found = |options: &str| {
            let found = json(&format!("epsilon {line} --sigma 2 --delta 1e-3 --json {options}"));
            (found["upper"].as_f64().unwrap(), found)
        };
        let (certified, _) = found("--accountant exact");
        let (simulated, found) = found("--accountant monte-carlo --samples 200000");
        assert_eq!(found["accountant"], "monte_carlo");
        assert!(simulated < ratio * certified, "{line}: {simulated} {certified}");
    }
}

#[test]
fn a_strategy_file_of_any_kind_is_accounted_for() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = [
        ("--kind blt --theta 0.9,0.5 --omega 0.2,0.1", "s0"),
        ("--kind tree", "s1"),
        ("--kind dense --coefficients", "s2"),
        ("--kind banded-inverse --bands 3 --square-root", "s3"),
        ("--kind banded --coefficients", "s4"),
    ];
    let banded = [1.0, 0.6, 0.3];
    let coefficients = folder.path().join("c.txt");
    let end = "--delta 1e-5 --json";
    for (kind, name) in kinds {
        // The lower triangle of the banded matrix, or its coefficients.
        let entry = |row: usize, column: usize| banded.get(row - column).copied().unwrap_or(0.0);
        let numbers: Vec<f64> = match name {
            "s2" => (0..24).flat_map(|i| (0..=i).map(move |j| entry(i, j))).collect(),
            _ => banded.to_vec(),
        };
        let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
        std::fs::write(&coefficients, numbers.join(" ")).unwrap();
        let file = if kind.ends_with("coefficients") { coefficients.to_str().unwrap() } else { "" };
        let path = folder.path().join(name).display().to_string();
        output(&format!("strategy --steps 24 {kind} {file} --output {path}")).unwrap();
        let sensitivity = |pattern: &str| {
            let found = json(&format!("strategy --strategy {path} {pattern} --json"));
            found["sensitivity"].as_f64().unwrap()
        };
        let epsilon = |line: &str| {
            let found = json(&format!("epsilon {line} --strategy {path} --sigma 3 {end}"));
            found["epsilon"].as_f64().unwrap()
        };
        // Under replacement, a run is one release of twice the sensitivity.
        let one = |sensitivity: f64| {
            let sigma = 3.0 / (2.0 * sensitivity);
            json(&format!("epsilon --q 1 --sigma {sigma} --steps 1 {end}"))["epsilon"]
                .as_f64()
                .unwrap()
        };
        for (sampler, pattern) in [
            ("shuffled --epochs 3", "--participations 3"),
            ("shuffled-once --epochs 3", "--separation 8 --fixed-order"),
        ] {
            let found = epsilon(&format!("--sampler {sampler}"));
            let expected = one(sensitivity(pattern));
            assert!((found / expected - 1.0).abs() < 1e-6, "{kind} {sampler}: {found} {expected}");
            let line = format!("calibrate --sampler {sampler} --strategy {path}");
            let sigma = json(&format!("{line} --epsilon {found} {end}"));
            let sigma = sigma["noise_multiplier"].as_f64().unwrap();
            assert!((sigma / 3.0 - 1.0).abs() < 1e-3, "{kind} {sampler}: {sigma}");
        }
        let bins = epsilon("--sampler balls-in-bins --bins 8");
        let all = epsilon("--sampler balls-in-bins --bins 8 --relation replace-one");
        assert!(bins < all, "{kind}: {bins} {all}");
        assert_eq!(epsilon("--sampler balls-in-bins --bins 8 --epochs 3"), bins);
        assert_eq!(epsilon("--sampler balls-in-bins --bins 8 --steps 24"), bins);
        let apart = "--sampler min-separation --separation 8 --q 0.1";
        assert!(epsilon(&format!("{apart} --steps 8")) < epsilon(apart));
    }
    let file = |name: &str| format!("--strategy {}", folder.path().join(name).display());
    // The banded strategy of a file is the one of its coefficients.
    for sampler in [
        "cyclic-poisson --parts 3 --q 0.1",
        "balls-in-bins --bins 8",
        "random-allocation --bins 8",
        "shuffled --epochs 3",
        "shuffled-once --epochs 3",
    ] {
        let epsilon = |noise: &str| {
            let line = format!("epsilon --sampler {sampler} --sigma 3 --steps 24 {noise} {end}");
            json(&line)["epsilon"].as_f64().unwrap()
        };
        let (found, expected) = (epsilon(&file("s4")), epsilon("--coefficients 1,0.6,0.3"));
        assert!((found / expected - 1.0).abs() < 1e-9, "{sampler}: {found} {expected}");
    }
    for (line, part) in [
        ("--sampler poisson --q 0.1 --steps 24", "how often a unit takes part"),
        ("--sampler cyclic-poisson --parts 2 --q 0.1", "at least the number of bands"),
        ("--sampler shuffled --epochs 3 --steps 48", "48"),
        ("--sampler shuffled --epochs 5", "must divide the 24 steps into equal epochs, got 5"),
        ("--sampler shuffled-once --epochs 0", "got 0"),
        ("--sampler balls-in-bins --bins 5", "must be --bins = 5 times --epochs, got 24"),
    ] {
        let error = refusal(&format!("epsilon {line} --sigma 3 --delta 1e-5 {}", file("s4")));
        assert!(error.contains(part), "{line}: {error}");
    }
    let missing = "epsilon --sampler shuffled --epochs 2 --sigma 1 --delta 1e-5 --strategy none";
    assert!(refusal(missing).contains("none"));
}

#[test]
fn noise_of_every_sampler_is_calibrated() {
    // Golden row bandmf_calibrate.
    let target = "calibrate --epsilon 2 --delta 1e-5 --json --steps 100";
    let cyclic = "--sampler cyclic-poisson --parts 10 --dataset-size 1000 --batch-size 10";
    let found = json(&format!("{target} {cyclic}"))["noise_multiplier"].as_f64().unwrap();
    assert!((found / 1.1924943516951605 - 1.0).abs() < 3e-5, "{found}");
    let bins = "--sampler balls-in-bins --bins 20";
    let sigma = json(&format!("{target} {bins}"))["noise_multiplier"].as_f64().unwrap();
    let again = json(&format!("epsilon {bins} --steps 100 --sigma {sigma} --delta 1e-5 --json"));
    let again = again["epsilon"].as_f64().unwrap();
    assert!(again <= 2.0 && again > 1.99, "{sigma} {again}");
}

#[test]
fn sampler_options_are_refused_by_name() {
    let end = "--sigma 1 --steps 10 --delta 1e-5";
    for (line, name) in [
        ("--q 0.1 --max-batch-size 5", "truncated-poisson"),
        ("--q 0.1 --bins 5", "balls-in-bins"),
        ("--sampler truncated-poisson --q 0.1 --dataset-size 10", "--max-batch-size"),
        ("--sampler cyclic-poisson --q 0.1", "--parts is needed"),
        ("--sampler cyclic-poisson --q 0.1 --parts 2 --coefficients 1,1,1", "fewer bands"),
        ("--sampler cyclic-poisson --parts 5 --dataset-size 20 --batch-size 10", "20 / 5"),
        ("--sampler balls-in-bins --bins 3", "3 times --epochs, got 10"),
        ("--sampler balls-in-bins --bins 5 --participations 6", "participations"),
        (
            "--sampler fixed-size --dataset-size 10 --batch-size 2 --relation add-or-remove-one",
            "replace-one",
        ),
        ("--sampler fixed-size --dataset-size 10 --batch-size 2 --separation 3", "min-separation"),
        ("--sampler min-separation --q 0.1", "--separation is needed"),
        (
            "--sampler min-separation --separation 4 --dataset-size 10 --batch-size 5",
            "smaller batch or separation",
        ),
        ("--sampler min-separation --q 0.1 --separation 4 --epochs 2", "shuffled"),
        ("--sampler shuffled --epochs 2", "give --epochs"),
        ("--sampler shuffled-once --epochs 2", "give --epochs"),
        ("--sampler shuffled --epochs 2 --relation add-or-remove-one", "replace-special"),
        ("--q 0.1 --coefficients 1,0.5", "how often a unit takes part"),
        ("--sampler balls-in-bins --bins 5 --participations 2 --coefficients 1,0.5", "must be 1"),
        ("--sampler balls-in-bins --bins 5 --coefficients=-1,0.5", "positive number"),
        ("--sampler balls-in-bins --bins 5 --examples-per-unit 2", "--group"),
        ("--q 0.1 --examples-per-unit 0", "got 0"),
        (
            "--sampler truncated-poisson --q 0.1 --dataset-size 100 --max-batch-size 20 \
             --examples-per-unit 2 --relation replace-one",
            "add-or-remove-one",
        ),
        ("--sampler fixed-size --dataset-size 10 --batch-size 12", "got 12"),
        ("--sampler balls-in-bins --bins 5 --sigma 2", "must be given once"),
        ("--q 0.1 --group 2 --accountant rdp", "--accountant exact"),
    ] {
        let error = refusal(&format!("epsilon {line} {end}"));
        assert!(error.contains(name), "{line}: {error}");
    }
    let error =
        refusal("calibrate --epsilon 1 --delta 1e-5 --sampler balls-in-bins --bins 5 --sigma 1");
    assert!(error.contains("leave it out"), "{error}");
}

#[test]
fn a_ledger_whose_noise_can_be_reproduced_guarantees_nothing_in_any_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.json");
    let relation = NeighboringRelation::AddOrRemoveOne;
    let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
    ledger.record(&DpEvent::gaussian(10.0)).unwrap();
    ledger.mark_insecure("fixed seed 7");
    ledger.save(&path).unwrap();
    let path = path.display();
    let delta = json(&format!("delta --epsilon 1 --json --ledger {path}"));
    for field in ["delta", "lower", "upper", "estimate"] {
        assert_eq!(delta[field], 1.0, "{delta}");
    }
    assert!(delta["notes"].to_string().contains("fixed seed 7"), "{delta}");
    let text = output(&format!("delta --epsilon 1 --ledger {path}")).unwrap();
    assert!(text.starts_with("delta = 1.00000 ") && text.contains("fixed seed 7"), "{text}");
    let error = refusal(&format!("tradeoff --alpha 0.1 --ledger {path}"));
    assert!(error.contains("fixed seed 7"), "{error}");
    let epsilon = json(&format!("epsilon --delta 1e-5 --json --ledger {path}"));
    assert!(epsilon["notes"].to_string().contains("fixed seed 7"), "{epsilon}");
}

#[test]
fn two_ledgers_are_compared_at_each_delta() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, sigma: f64| {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        ledger.record_many(&DpEvent::dp_sgd_step(0.01, sigma), 10).unwrap();
        let path = folder.path().join(name);
        ledger.save(&path).unwrap();
        path.display().to_string()
    };
    let (weak, strong) = (save("weak.json", 1.0), save("strong.json", 2.0));
    let statement = folder.path().join("statement.json");
    let text = output(&format!("statement --ledger {strong} --group 2 --json")).unwrap();
    assert!(text.contains("\"units\": 2"), "{text}");
    std::fs::write(&statement, text).unwrap();
    let rows = json(&format!("compare {weak} {} --json", statement.display()));
    assert_eq!(rows.as_array().unwrap().len(), 3);
    assert_eq!(rows[0]["stronger"], "second", "{rows}");
    let text = output(&format!("compare {weak} {strong} --delta 1e-5")).unwrap();
    assert!(text.contains("the second is stronger"), "{text}");
}

#[test]
fn a_search_over_runs_costs_more_than_a_run_and_less_than_all() {
    let run = "epsilon --q 0.01 --sigma 1 --steps 1000 --delta 1e-5 --json";
    let upper = |options: &str| json(&format!("{run} {options}"))["epsilon"].as_f64().unwrap();
    let (one, search) = (upper(""), upper("--runs geometric --mean-runs 20"));
    // dp_accounting 0.6.0 (row p021 of hyper_parameter_search.json) has 4.4807.
    assert!(one < search && search < 3.01, "{one} {search}");
    let renyi = upper("--runs geometric --mean-runs 20 --accountant rdp");
    assert!(renyi > 1.4 * search && renyi < 4.481, "{renyi}");
    assert_eq!(upper("--runs negative-binomial --shape 1 --mean-runs 20"), search);
    let bins = "epsilon --sampler balls-in-bins --bins 50 --epochs 2 --sigma 2 --delta 1e-5 --json";
    let bins = json(&format!("{bins} --runs poisson --mean-runs 3"));
    assert!(bins["lower"].as_f64() == Some(0.0) && bins["epsilon"].as_f64().unwrap() > 0.5);
    for (options, name) in [
        ("--runs negative-binomial --mean-runs 3", "--shape is needed"),
        ("--runs poisson --mean-runs 3 --shape 1", "--shape belongs to --runs negative-binomial"),
        ("--runs geometric --mean-runs 0.5", "mean must be at least 1"),
        ("--runs negative-binomial --mean-runs 3 --shape -1", "shape must be larger than -1"),
    ] {
        let error = refusal(&format!("{run} {options}"));
        assert!(error.contains(name), "{options}: {error}");
    }
}

#[test]
fn the_best_of_several_runs_is_not_stated_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, sigma: f64| {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        ledger.record(&DpEvent::gaussian(sigma)).unwrap();
        ledger.save(file(name)).unwrap();
    };
    write("ledger.json", 4.0);
    let (last, first, second) = (file("ledger.json"), file("ledger-1.json"), file("ledger-2.json"));
    let upper = |arguments: &str| {
        let statement = json(&format!("statement --json --delta 1e-5 {arguments}"));
        statement["epsilons"][0]["upper"].as_f64().unwrap()
    };
    let one = upper(&format!("--ledger {last}"));
    write("ledger-1.json", 5.0);
    write("ledger-2.json", 6.0);
    for given in ["", &format!("--ledger {first}")] {
        let error = refusal(&format!("statement --ledger {last} {given}"));
        assert!(error.contains("is one of 3 runs in its folder"), "{error}");
        assert!(error.contains(&second) && error.contains("--single-run"), "{error}");
    }
    assert_eq!(upper(&format!("--single-run --ledger {last}")), one);
    // Neither is one with a number in its name, whichever files of its folder are missing.
    let error = refusal(&format!("statement --ledger {first}"));
    assert!(error.contains("is one of 3 runs") && error.contains(&last), "{error}");
    assert!(upper(&format!("--single-run --ledger {first}")) < one);
    let all = format!("--ledger {last} --ledger {first} --ledger {second}");
    assert!(upper(&all) > 1.3 * one);
    let error = refusal(&format!("statement {all} --group 2"));
    assert!(error.contains("--group needs exactly one --ledger"), "{error}");
    // The same files by other paths.
    let [first_again, second_again] = ["./ledger-1.json", "./ledger-2.json"].map(file);
    upper(&format!("--ledger {last} --ledger {first_again} --ledger {second_again}"));
    std::fs::remove_file(&first).unwrap();
    let error = refusal(&format!("statement --ledger {last}"));
    assert!(error.contains("is one of 2 runs") && error.contains(&second), "{error}");
    // Other files are not runs of the folder.
    std::fs::remove_file(&second).unwrap();
    for name in ["ledger-of-a.json", "old-ledger-1.json", "ledger-1.json.bak"] {
        std::fs::copy(&last, file(name)).unwrap();
    }
    assert_eq!(upper(&format!("--ledger {last}")), one);
}

#[test]
fn no_option_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.json").display().to_string();
    let relation = NeighboringRelation::AddOrRemoveOne;
    let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
    ledger.record(&DpEvent::gaussian(1.0)).unwrap();
    ledger.save(&file).unwrap();
    for other in ["--relation replace-one", "--dataset-size 5", "--epochs 3", "--runs geometric"] {
        let line = format!("program epsilon --ledger {file} --delta 1e-5 {other}");
        assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{other}");
    }
    let sizes = "--dataset-size 1000 --batch-size 10";
    for (options, name) in [
        (
            format!("--sampler fixed-size {sizes} --steps 9 --q 0.5"),
            "--sampling-probability belongs",
        ),
        (format!("--sampler balls-in-bins --bins 10 {sizes}"), "--batch-size belongs to --sampler"),
        ("--sampler balls-in-bins --bins 10 --q 0.5".into(), "--sampling-probability belongs"),
        ("--sampler shuffled --epochs 3 --dataset-size 100".into(), "--dataset-size belongs"),
        ("--q 0.01 --steps 10 --dataset-size 70".into(), "--dataset-size is not needed"),
        (
            "--sampler cyclic-poisson --parts 0 --q 0.1 --steps 10".into(),
            "--parts must be at least",
        ),
        (
            "--q 0.01 --steps 100 --accountant clt --relation replace-one".into(),
            "--relation must be add-or-remove-one",
        ),
    ] {
        let error = refusal(&format!("epsilon --delta 1e-5 --sigma 1 {options}"));
        assert!(error.contains(name), "{options}: {error}");
    }
    let cyclic = "calibrate --epsilon 3 --delta 1e-5 --sampler cyclic-poisson --parts 0 --q 0.1";
    assert!(refusal(&format!("{cyclic} --steps 10")).contains("--parts must be at least 1"));
}

#[test]
fn tan_describes_a_run_or_finds_the_best_one_within_a_limit() {
    let json = |arguments: &str| -> Value {
        let text = output(&format!("tan --dataset-size 50000 --delta 1e-5 --json {arguments}"));
        serde_json::from_str(&text.unwrap()).unwrap()
    };
    let given = json("--steps 1000 --batch-size 512 --noise-multiplier 4 --simulations 2");
    assert_eq!((&given["batch_size"], &given["small_batch_size"]), (&512.0.into(), &16.0.into()));
    assert!(given["epsilon_with_simulations"].as_f64() > given["epsilon"].as_f64());
    // 512,000 examples in 1000 steps; the noise is the smallest that meets the budget.
    let found = json("--steps 1000 --max-examples 512000 --epsilon 3");
    assert_eq!(found["batch_size"], 512.0);
    let (epsilon, sigma) = (found["epsilon"].as_f64().unwrap(), &found["noise_multiplier"]);
    assert!((2.99..=3.0).contains(&epsilon), "{epsilon}");
    let again = json(&format!("--steps 1000 --batch-size 512 --noise-multiplier {sigma}"));
    assert_eq!(again["epsilon"], found["epsilon"]);
    let runs = "--run 16:0.5,32:0.55,64:0.6,128:0.65";
    let predicted = json(&format!("--steps 9 --batch-size 256 --noise-multiplier 4 {runs}"));
    assert!((predicted["predicted_accuracy"][0].as_f64().unwrap() - 0.7).abs() < 1e-9);
    let text =
        output("tan --dataset-size 5000 --delta 1e-5 --steps 9 --max-examples 90 --epsilon 1");
    assert!(text.unwrap().starts_with("large run: expected batch 10, noise multiplier "));
}

#[test]
fn tan_refuses_a_run_that_is_not_complete() {
    let start = "tan --dataset-size 50000 --delta 1e-5 --steps 1000";
    for (more, expected) in [
        ("--max-examples 500 --epsilon 3", "less than one per step"),
        ("--max-examples 500000 --epsilon -3", "epsilon"),
        ("--batch-size 9 --noise-multiplier 2 --run 3", "must be BATCH:ACCURACY"),
    ] {
        let error = refusal(&format!("{start} {more}"));
        assert!(error.contains(expected), "{more}: {error}");
    }
    for more in [
        "",
        "--batch-size 9",
        "--noise-multiplier 2",
        "--max-examples 9",
        "--epsilon 1",
        "--batch-size 9 --noise-multiplier 2 --max-examples 9 --epsilon 1",
    ] {
        let words = format!("program {start} {more}");
        assert!(Cli::try_parse_from(words.split_whitespace()).is_err(), "{more}");
    }
}
