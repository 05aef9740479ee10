//! Figures of the papers, from the command line.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const COMMIT: &str = "1a2b3c4d";

fn experiment(name: &str, output: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_experiment"));
    command.args([name, "--quick", "--output"]).arg(output);
    command.env("BURN_DP_COMMIT", COMMIT).output().unwrap()
}

#[test]
fn figures_are_written_with_their_verdicts_and_their_commit() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tan-privacy", "tan-data-size"] {
        let output = experiment(name, folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("- **Held**: "), "{name}");
        let file = |ending: &str| folder.path().join(format!("{name}.{ending}"));
        let json = std::fs::read_to_string(file("json")).unwrap();
        let figure: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(figure["experiment"], name);
        assert_eq!(figure["preset"], "quick");
        assert_eq!(figure["commits"], serde_json::json!([COMMIT]));
        for line in figure["series"].as_array().unwrap() {
            assert!(!line["points"].as_array().unwrap().is_empty(), "{name}: {line}");
        }
        for verdict in figure["verdicts"].as_array().unwrap() {
            assert!(verdict["claim"].is_string() && verdict["holds"].is_boolean(), "{verdict}");
            assert!(!verdict["numbers"].as_object().unwrap().is_empty(), "{verdict}");
        }
        assert!(file("svg").is_file() && !file("measured.json").exists(), "{name}");
    }
}

#[test]
fn a_figure_that_cannot_be_written_is_refused_before_it_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = experiment("clipping-models", &file);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("--output"), "{error}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_figure_on_a_backend_that_is_not_built_is_refused_before_it_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    for name in ["clipping-models", "all"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_experiment"));
        command.args([name, "--quick", "--backend", "cuda", "--output"]).arg(&output);
        let result = command.output().unwrap();
        let error = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(!result.status.success() && error.contains("--backend"), "{name}: {error}");
        assert!(!output.exists(), "{name}");
    }
}
