//! Runs that are stopped within the training, and resumed.

#![cfg(debug_assertions)]

use std::path::Path;
use std::process::Output;

use super::ended::aborted;
use super::{words, write_images};

fn process(folder: &Path, line: &str, variable: Option<(&str, &str)>) -> Output {
    super::process(&words(folder, line, 120), variable)
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The published results of a run that depend on its steps.
fn results(folder: &Path) -> Vec<Vec<u8>> {
    let out = folder.join("out");
    let weights = ["model/model.safetensors", "adapter/adapter_model.safetensors"];
    let weights = weights.iter().filter_map(|name| std::fs::read(out.join(name)).ok()).collect();
    let figures: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let kept = ["before", "after", "steps", "units", "generated", "epsilon", "noise_multiplier"];
    let kept = kept.map(|name| figures[name].to_string().into_bytes());
    let statement: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("privacy.json")).unwrap()).unwrap();
    let releases = statement["releases"].to_string().into_bytes();
    assert!(releases.len() > 10, "{statement}");
    let mut results: Vec<Vec<u8>> = weights;
    results.extend(kept);
    results.push(releases);
    results
}

/// Steps in the log of a run that was stopped.
fn released(folder: &Path) -> Option<usize> {
    let log = std::fs::read_to_string(folder.join("out/checkpoints/releases.log")).ok()?;
    Some(log.lines().count().saturating_sub(1))
}

/// Runs of four steps a pass.
const RUNS: [(&str, &str); 6] = [
    ("classify --label stars --labels up,down --batch-size 32 --model bert-classify", "full"),
    ("classify --label stars --labels up,down --batch-size 32 --model gpt2-classify", "probe"),
    ("generate --batch-size 32 --model gpt2-generate --samples 1 --sample-length 4", "lora"),
    ("generate --batch-size 32 --model gpt2-generate --samples 0 --packed-base int4", "lora"),
    ("images --batch-size 10 --model vit-classify", "head"),
    ("images --batch-size 10 --model resnet-classify --image-size 32", "probe"),
];

fn line((line, way): (&str, &str)) -> String {
    let rank = if way == "lora" { "--lora 2" } else { "" };
    format!("{line} --train {way} {rank} --steps 10 --noise-multiplier 1 --insecure-seed 3")
}

#[test]
fn a_run_killed_within_a_checkpoint_continues_bit_for_bit() {
    for run in RUNS {
        let (whole, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let line = line(run);
        for folder in [&whole, &folder] {
            write_images(folder.path());
        }
        let output = process(whole.path(), &line, None);
        assert!(output.status.success(), "{}", error_of(&output));
        // Its checkpoint is from step 4.
        let stop = Some(("BURN_DP_TEST_ABORT_IN_CHECKPOINT", "8"));
        let output = process(folder.path(), &line, stop);
        assert!(aborted(output.status), "{}", error_of(&output));
        assert_eq!(released(folder.path()), Some(8));
        assert!(!folder.path().join("out/privacy.json").exists());

        let error = error_of(&process(folder.path(), &line, None));
        assert!(error.contains("--resume must be given"), "{error}");
        for (changed, expected) in [
            ("--noise-multiplier 2", "--noise-multiplier was 1 and is now 2"),
            ("--physical-batch-size 3", "--physical-batch-size was 16 and is now 3"),
            ("--seed 4", "--seed was 0 and is now 4"),
            ("--precision bf16", "--precision was f32 and is now bf16"),
        ] {
            let name = changed.split(' ').next().unwrap();
            let kept = line.replace("--noise-multiplier 1", "");
            let kept = if name == "--noise-multiplier" { &kept } else { &line };
            let output = process(folder.path(), &format!("{kept} --resume {changed}"), None);
            assert!(error_of(&output).contains(expected), "{}", error_of(&output));
        }
        let output = process(folder.path(), &format!("{line} --resume"), None);
        assert!(output.status.success(), "{}", error_of(&output));
        assert_eq!(results(folder.path()), results(whole.path()), "{line}");
        assert!(!folder.path().join("out/checkpoints").exists());
    }
}

#[test]
fn a_run_killed_between_checkpoints_repeats_its_steps_bit_for_bit() {
    for run in RUNS {
        let (whole, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&whole, &folder] {
            write_images(folder.path());
        }
        let line = line(run);
        assert!(process(whole.path(), &line, None).status.success());
        // Before the first checkpoint of a pass, after it, and while lost steps are repeated.
        for (more, step, expected) in [("", "3", 3), ("--resume", "6", 6), ("--resume", "5", 6)] {
            let stop = Some(("BURN_DP_TEST_ABORT_AFTER_STEP", step));
            let output = process(folder.path(), &format!("{line} {more}"), stop);
            assert!(aborted(output.status), "{}", error_of(&output));
            assert_eq!(released(folder.path()), Some(expected));
        }
        let output = process(folder.path(), &format!("{line} --resume"), None);
        assert!(output.status.success(), "{}", error_of(&output));
        assert_eq!(results(folder.path()), results(whole.path()), "{line}");
    }
}

#[test]
fn skipped_steps_stay_paid_and_their_updates_are_lost() {
    let line = line(RUNS[2]);
    let (whole, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(process(whole.path(), &line, None).status.success());
    // Its checkpoint is from step 4, and the log has 6 steps.
    let stop = Some(("BURN_DP_TEST_ABORT_AFTER_STEP", "6"));
    let output = process(folder.path(), &line, stop);
    assert!(aborted(output.status), "{}", error_of(&output));
    let output = process(folder.path(), &format!("{line} --skip-lost-steps"), None);
    assert!(error_of(&output).contains("--resume"), "{}", error_of(&output));
    assert_eq!(released(folder.path()), Some(6));

    let line = format!("{line} --resume --skip-lost-steps");
    // Steps 7 and 8 run, and step 8 has a checkpoint.
    let stop = Some(("BURN_DP_TEST_ABORT_AFTER_STEP", "8"));
    assert!(aborted(process(folder.path(), &line, stop).status));
    assert_eq!(released(folder.path()), Some(8));
    let output = process(folder.path(), &line, None);
    assert!(output.status.success(), "{}", error_of(&output));
    let [skipped, whole] = [folder, whole].map(|folder| results(folder.path()));
    // The weights, and the steps and releases.
    assert_ne!(skipped.first(), whole.first());
    assert_eq!(skipped.last(), whole.last());
    assert!(skipped.contains(&b"10".to_vec()));
}
