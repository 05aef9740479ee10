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
    let line = "step --models mlp --batch 4,8 --seconds 0.01 --blocks 1 --json";
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
            assert!(number("cpu_ms") > 0.0, "{row}");
        }
    }
    assert_eq!(rows[0]["ratio"], 1.0);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(algorithms.iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn stock_layers_are_measured_with_one_thread_and_with_more() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("steps.json");
    let cores = std::thread::available_parallelism().unwrap().get();
    let line =
        "step --models gru,transformer-block --batch 2 --seconds 0.01 --blocks 1 --algorithms burn";
    let output = bench(&format!("{line} --threads 1,{cores} --json {}", json.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let found = rows.as_array().unwrap().iter().map(|row| {
        let name = |field: &str| row[field].as_str().unwrap();
        (name("model"), row["threads"].as_u64().unwrap() as usize, name("algorithm"))
    });
    let found: Vec<_> = found.collect();
    let expected = ["gru", "transformer-block"].into_iter().flat_map(|model| {
        [1, cores].into_iter().flat_map(move |threads| {
            ["non-private", "burn"].map(|algorithm| (model, threads, algorithm))
        })
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn deep_networks_and_networks_of_sequences_are_measured_too() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("steps.json");
    let models = ["rnn", "lstm", "transformer", "resnet18", "vgg11"];
    let line = "--batch 2 --seconds 0.01 --blocks 1 --algorithms book-keeping --json";
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
    let line = "step --models mlp --batch 4 --seconds 0.01 --blocks 1 --algorithms book-keeping";
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
#[cfg(feature = "train")]
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

/// Creates an interpreter that has PyTorch and Opacus. Its ghost clipping cannot be started, and
/// its materialized gradients fail in the second block.
#[cfg(unix)]
fn interpreter(folder: &std::path::Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let script = r#"#!/bin/sh
        if [ "$1" = -c ]; then echo torch opacus; exit 0; fi
        case "$*" in *ghost*) echo "no ghosts here" >&2; exit 1;; esac
        echo '{"ready": true, "base_mib": 1.0}'
        while read word number; do
            case "$again$*" in yes*materialize*) echo "too large" >&2; exit 9;; esac
            again=yes
            echo '{"ms": [4.0, 2.0, 3.0]}'
        done
    "#;
    let path = folder.join("python");
    std::fs::write(&path, script.replace("\n        ", "\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
#[cfg(unix)]
fn steps_of_other_frameworks_are_compared_and_failures_cost_no_other_row() {
    let folder = tempfile::tempdir().unwrap();
    let python = interpreter(folder.path());
    let (json, svg) = (folder.path().join("peers.json"), folder.path().join("peers.svg"));
    let line = "peers --models mlp --batch 4 --seconds 0.01 --blocks 1 --threads 1";
    let files = format!("--json {} --svg {}", json.display(), svg.display());
    let output = bench(&format!("{line} --python {} {files}", python.display()));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    for expected in [
        "opacus, ghost is left out for mlp: no ghosts here",
        "opacus, materialize is left out for mlp: too large",
        "jax-privacy is left out: JAX-Privacy not found in",
        "fastdp is left out: fastDP not found in",
    ] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let rows: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    let name = |row: &Value, field: &str| row[field].as_str().unwrap().to_string();
    let found: Vec<_> =
        rows.iter().map(|row| (name(row, "system"), name(row, "algorithm"))).collect();
    let expected = [
        ("burn-dp", "non-private"),
        ("burn-dp", "book-keeping"),
        ("burn", "non-private"),
        ("torch", "non-private"),
    ];
    assert_eq!(found, expected.map(|(system, name)| (system.into(), name.into())));
    for row in rows {
        assert_eq!(
            (&row["model"], &row["batch"], &row["threads"]),
            (&"mlp".into(), &4.into(), &1.into())
        );
        let number = |field: &str| row[field].as_f64().unwrap();
        assert!(0.0 < number("ms_min") && number("ms_min") <= number("ms"), "{row}");
        if cfg!(target_os = "linux") {
            assert!(number("cpu_ms") >= 0.0 && number("peak_mib") > 0.0, "{row}");
        }
    }
    assert_eq!((&rows[3]["ms"], &rows[3]["ms_min"]), (&3.0.into(), &2.0.into()));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("geometric mean") && table.contains("/ PyTorch, ordinary"), "{table}");
    assert!(std::fs::read_to_string(svg).unwrap().contains("torch, non-private"));
}

#[test]
fn without_python_our_own_steps_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let line = "peers --models mlp --batch 2 --seconds 0.01 --blocks 1 --systems burn-dp,torch";
    let output = bench(&format!("{line} --venv {}", folder.path().display()));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    assert!(message.contains("no Python in") && message.contains("--install"), "{message}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("book-keeping"));
}

#[test]
fn growth_along_an_axis_is_fitted() {
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("growth.json"), folder.path().join("growth.svg"));
    let line = "scaling --axes depth --values 1,2 --algorithms non-private,book-keeping \
                --seconds 0.01 --blocks 1";
    let output = bench(&format!("{line} --json {} --svg {}", json.display(), svg.display()));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    let figures: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let found: Vec<_> = figures["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| (point["value"].as_u64().unwrap(), point["algorithm"].as_str().unwrap()))
        .collect();
    let names = ["non-private", "book-keeping"];
    assert_eq!(found, [1, 2].map(|value| names.map(|name| (value, name))).concat());
    for growth in figures["growth"].as_array().unwrap() {
        assert!(growth["ms_exponent"].as_f64().unwrap().is_finite(), "{growth}");
        if cfg!(target_os = "linux") {
            assert!(growth["mib_exponent"].as_f64().unwrap().is_finite(), "{growth}");
        }
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("depth of transformer-block"));
}

#[test]
fn an_impossible_option_is_refused_by_name() {
    for (line, expected) in [
        ("step --batch 0", "--batch must be at least 1, got 0"),
        ("step --image-size 0 --models vgg11", "--image-size must be at least 1, got 0"),
        #[cfg(feature = "train")]
        ("learner --steps 0", "--steps must be at least 1, got 0"),
        ("step --models magic", "invalid value 'magic'"),
        ("step --algorithms magic", "invalid value 'magic'"),
        ("step --threads 0", "--threads must be between 1 and "),
        ("step --models resnet50 --algorithms burn", "burn is not possible with resnet50"),
        ("step --peers peers.jsonl", "--svg <FILE>"),
        ("step --svg none/steps.svg", "--svg none does not exist"),
        ("step --svg steps.svg --algorithms non-private", "--svg needs a private algorithm"),
        ("step --svg steps.svg --peers none.jsonl", "none.jsonl: "),
        ("step --json none/steps.json --models mlp --batch 1 --seconds 0.01 --blocks 1", "none"),
        ("peers --models transformer", "--models transformer has no counterpart"),
        ("peers --batch 0", "--batch must be at least 1, got 0"),
        ("peers --blocks 0", "--blocks must be at least 1, got 0"),
        ("peers --seconds 0", "--seconds must be a number greater than 0, got 0"),
        ("peers --threads 0", "--threads must be between 1 and "),
        ("peers --systems magic", "invalid value 'magic'"),
        ("peers --systems torch --venv none", "--systems leaves nothing"),
        ("peers --python /no/such/python", "--python /no/such/python: cannot be started"),
        ("peers --install --venv v --python /no/such/python", "--install /no/such/python cannot"),
        ("peers --json none/peers.json", "--json none does not exist"),
        ("scaling --values 2,4", "--values needs a single axis"),
        ("scaling --axes image --values 4,16", "--values must be at least 8 pixels"),
        ("scaling --axes batch --values 0", "--values must be at least 1, got 0"),
        ("scaling --axes magic", "invalid value 'magic'"),
    ] {
        let output = bench(line);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(expected), "`{line}`: {message}");
    }
}
