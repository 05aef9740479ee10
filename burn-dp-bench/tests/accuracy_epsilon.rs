//! The experiment `accuracy-epsilon` from its command line to its files.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn experiment(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_experiment"));
    command.arg("accuracy-epsilon").args(line.split_whitespace()).current_dir(folder);
    command.env_remove("BURN_DP_DATA").output().unwrap()
}

#[test]
fn every_budget_has_an_accuracy_and_smaller_budgets_have_more_noise() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--train-size 200 --test-size 50 --batch-size 50 --epochs 1 --epsilons 8,1 \
                --seeds 4 --json figures.json --output out";
    let output = experiment(folder.path(), line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let figures: Value = serde_json::from_str(&read("figures.json")).unwrap();
    assert_eq!(figures["experiment"], "accuracy-epsilon");
    assert_eq!((&figures["epochs"], &figures["seeds"]), (&1.into(), &vec![4].into()));
    let series = figures["series"].as_array().unwrap();
    let number = |index: usize, field: &str| series[index][field].as_f64().unwrap();
    let epsilons: Vec<_> = (0..series.len()).map(|index| number(index, "epsilon")).collect();
    assert_eq!(epsilons, [1.0, 8.0]);
    assert!(number(0, "noise_multiplier") > 1.5 * number(1, "noise_multiplier"), "{figures}");
    assert_eq!(number(0, "delta"), 1e-5);
    let accuracies = series.iter().map(|runs| &runs["accuracies"]).chain([&figures["non_private"]]);
    for accuracies in accuracies {
        let accuracies = accuracies.as_array().unwrap();
        assert_eq!(accuracies.len(), 1);
        assert!((0.0..=1.0).contains(&accuracies[0].as_f64().unwrap()), "{figures}");
    }

    let svg = read("out/accuracy-epsilon.svg");
    for label in ["epsilon at delta = 1e-5", "test accuracy, %", "not private", "200 examples"] {
        assert!(svg.contains(label), "{label}");
    }
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("noise multiplier") && table.contains("not private"), "{table}");
    // Each run has its own statement.
    assert!(read("out/epsilon-8-seed-4/privacy.txt").contains("epsilon"));
    assert!(!folder.path().join("out/ordinary-seed-4/privacy.txt").exists());
}

#[test]
fn a_quick_run_fills_in_what_is_not_given() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--quick --test-size 20 --epsilons 8 --seeds 0 --output out --svg figure.svg";
    let output = experiment(folder.path(), line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(folder.path().join("out/accuracy-epsilon.json")).unwrap();
    let figures: Value = serde_json::from_str(&text).unwrap();
    let sizes = (&figures["train_items"], &figures["test_items"], &figures["epochs"]);
    assert_eq!(sizes, (&1024.into(), &20.into(), &1.into()));
    assert!(folder.path().join("figure.svg").exists());
}
