//! A short soak.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use serde_json::Value;

#[test]
fn killed_runs_end_like_undisturbed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("soak.json");
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        .args(["--kills", "5", "--seed", "7", "--subject", "loop", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert!(figures["kills"].as_u64().unwrap() >= 5, "{figures}");
    let by_phase = figures["kills_by_phase"].as_object().unwrap();
    let sum: u64 = by_phase.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(figures["kills"].as_u64(), Some(sum));
}

#[test]
fn an_unknown_kind_of_run_is_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_soak")).args(["--subject", "x"]).output().unwrap();
    assert!(!output.status.success());
}
