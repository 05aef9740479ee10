//! A short soak.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use serde_json::Value;

#[test]
fn killed_runs_end_like_undisturbed_ones() {
    let folder = tempfile::tempdir().unwrap();
    // The program is killed in the middle of its second process at the latest.
    for (subject, kills) in [("loop", 5), ("program", 8)] {
        let json = folder.path().join(format!("{subject}.json"));
        let output = Command::new(env!("CARGO_BIN_EXE_soak"))
            .args(["--kills", &kills.to_string(), "--seed", "7", "--no-signals"])
            .args(["--subject", subject, "--json"])
            .arg(&json)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let figures: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        assert!(figures["kills"].as_u64().unwrap() >= kills, "{figures}");
        let by_phase = figures["kills_by_phase"].as_object().unwrap();
        let sum: u64 = by_phase.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(figures["kills"].as_u64(), Some(sum));
        // Otherwise the log was not where the soak looks for it.
        assert!(figures["releases_in_log"][subject].as_u64().unwrap() > 0, "{figures}");
    }
}

#[test]
fn an_unknown_kind_of_run_is_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_soak")).args(["--subject", "x"]).output().unwrap();
    assert!(!output.status.success());
}
