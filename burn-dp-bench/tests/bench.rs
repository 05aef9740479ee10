//! The benchmark of steps from its command line to its figures.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(line: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(line.split_whitespace()).current_dir(folder.path()).output().unwrap()
}

#[test]
fn every_algorithm_has_a_row_with_times_ratio_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("steps.json");
    let line = "step --models mlp --batch 4,8 --repetitions 3 --json";
    let output = bench(&format!("{line} {}", json.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    let algorithms = ["non-private", "book-keeping", "materialize", "reweight", "nxbp"];
    let expected: Vec<_> =
        [4, 8].into_iter().flat_map(|batch| algorithms.map(|name| (batch, name))).collect();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["batch"].as_u64().unwrap(), row["algorithm"].as_str().unwrap()))
        .collect();
    assert_eq!(found, expected);
    for row in rows {
        assert_eq!((&row["model"], &row["backend"]), (&"mlp".into(), &"flex".into()));
        let number = |field: &str| row[field].as_f64().unwrap();
        assert!(0.0 < number("ms_min") && number("ms_min") <= number("ms"), "{row}");
        assert!(number("ratio") > 0.0, "{row}");
        if cfg!(target_os = "linux") {
            // More than the parameters alone, less than a machine has.
            assert!((1.0..1e5).contains(&number("peak_mib")), "{row}");
        }
    }
    assert_eq!(rows[0]["ratio"], 1.0);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(algorithms.iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn deep_networks_and_networks_of_sequences_are_measured_too() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("steps.json");
    let models = ["rnn", "lstm", "transformer", "resnet18", "vgg11"];
    let line = "--batch 2 --repetitions 1 --algorithms book-keeping --json";
    let output = bench(&format!("step --models {} {line} {}", models.join(","), json.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let found: Vec<_> = rows.as_array().unwrap().iter().map(|row| &row["model"]).collect();
    let expected: Vec<_> = models.iter().flat_map(|&model| [model, model]).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_picture_shows_the_private_steps_next_to_the_peers() {
    let folder = tempfile::tempdir().unwrap();
    let (svg, peers) = (folder.path().join("steps.svg"), folder.path().join("peers.jsonl"));
    let line = r#"{"framework": "torch", "model": "mlp", "batch": 4, "device": "cpu",
        "algorithm": "ghost", "ms": 3.0, "ms_min": 2.0, "ratio": 1.5}"#;
    let lines = [line.replace('\n', " "), line.replace('\n', " ").replace("mlp", "cnn")];
    std::fs::write(&peers, lines.join("\n")).unwrap();
    let line = "step --models mlp --batch 4 --repetitions 1 --algorithms book-keeping";
    let paths = format!("--svg {} --peers {}", svg.display(), peers.display());
    let output = bench(&format!("{line} {paths}"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    assert!(message.contains("not drawn: 1 of the lines of --peers"), "{message}");
    let picture = std::fs::read_to_string(&svg).unwrap();
    for label in ["mlp, batch 4", "burn-dp, book-keeping", "torch, ghost", "ordinary 2.00 ms"] {
        assert!(picture.contains(label), "{label}");
    }

    std::fs::write(&peers, "{\"framework\": \"torch\"}").unwrap();
    let output = bench(&format!("{line} {paths}"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("peers.jsonl:1: missing field `model`"), "{message}");
}

#[test]
fn the_learner_is_compared_with_a_custom_loop() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("learner.json");
    let line = "learner --batch 4 --steps 3 --repetitions 1 --json";
    let output = bench(&format!("{line} {}", json.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let number = |field: &str| rows[0][field].as_f64().unwrap();
    assert!(number("custom_loop_ms") > 0.0);
    assert_eq!(number("ratio"), number("learner_ms") / number("custom_loop_ms"));
}

#[test]
fn an_impossible_option_is_refused_by_name() {
    for (line, expected) in [
        ("step --batch 0", "--batch must be at least 1, got 0"),
        ("step --image-size 0 --models vgg11", "--image-size must be at least 1, got 0"),
        ("learner --steps 0", "--steps must be at least 1, got 0"),
        ("step --models magic", "invalid value 'magic'"),
        ("step --algorithms magic", "invalid value 'magic'"),
        ("step --peers peers.jsonl", "--svg <FILE>"),
        ("step --svg none/steps.svg", "--svg none does not exist"),
        ("step --svg steps.svg --algorithms non-private", "--svg needs a private algorithm"),
        ("step --svg steps.svg --peers none.jsonl", "none.jsonl: "),
        ("step --json none/steps.json --models mlp --batch 1 --repetitions 1", "none"),
    ] {
        let output = bench(line);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(expected), "`{line}`: {message}");
    }
}
