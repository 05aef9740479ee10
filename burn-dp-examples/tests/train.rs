//! The training program from its command line to its files.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Runs the program in a folder of its own.
fn train(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_train"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .env_remove("BURN_DP_DATA")
        .output()
        .unwrap()
}

/// The message of a run that must be refused without leaving anything behind.
fn refusal(line: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = train(folder.path(), line);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "`{line}` must be refused: {message}");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "`{line}` left something behind: {message}");
    message
}

/// The figures of a run that must succeed, and the folder that it wrote to.
fn figures(line: &str) -> (TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    let output = train(folder.path(), &format!("{line} --output out --json figures.json"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "`{line}` failed: {message}");
    let text = std::fs::read_to_string(folder.path().join("figures.json")).unwrap();
    (folder, serde_json::from_str(&text).unwrap())
}

const SMALL: &str = "--model mlp --train-size 1000 --test-size 200 --batch-size 50";

#[test]
fn impossible_options_are_refused_before_anything_is_written() {
    for (line, expected) in [
        ("--epsilon 0", "--epsilon must be a number greater than 0, got 0"),
        ("--delta 0.5", "--delta must be less than 1/N = 1/12000"),
        ("--batch-size 12001", "--batch-size must be at most the 12000 images"),
        ("--noise-multiplier 0 --epsilon 3", "no budget such as --epsilon 3 can be met"),
        ("--noise-multiplier 0", "--noise-multiplier must be greater than 0, got 0"),
        ("--steps 3 --epochs 3", "--steps 3 and --epochs 3 contradict"),
        ("--non-private --epsilon 3", "--epsilon 3 has no meaning together with --non-private"),
        ("--model rnn", "invalid value 'rnn'"),
        ("mnist --data-dir nowhere", "nowhere holds none of train-images-idx3-ubyte.gz"),
    ] {
        let message = refusal(line);
        assert!(message.contains(expected), "`{line}`: {message}");
    }
}

#[test]
fn a_damaged_file_is_refused_before_anything_is_written() {
    let data = tempfile::tempdir().unwrap();
    for name in ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"] {
        std::fs::write(data.path().join(name), b"not an IDX file").unwrap();
    }
    let message = refusal(&format!("mnist --data-dir {}", data.path().display()));
    assert!(message.contains("train-images-idx3-ubyte: the magic number is"), "{message}");
}

#[test]
fn ordinary_training_learns_and_claims_no_privacy() {
    let (folder, figures) = figures(&format!("{SMALL} --non-private --epochs 5"));
    assert!(folder.path().join("out/model.bpk").is_file());
    assert_eq!(figures["private"], false);
    assert_eq!(figures["epsilon"], Value::Null);
    assert_eq!(figures["steps"], 100);
    let accuracy = figures["test_accuracy"].as_f64().unwrap();
    // Guessing gives 0.1; a thousand drawings do not suffice for more than 0.9.
    assert!((0.4..0.9).contains(&accuracy), "accuracy {accuracy}");
}
