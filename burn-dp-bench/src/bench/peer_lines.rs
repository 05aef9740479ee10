//! Measurements of other frameworks: the lines that the scripts in `peers` print.

use std::path::Path;

use burn_dp_examples::training::TrainError;
use serde::Deserialize;
use serde_json::Value;

/// The name of the ordinary step in the lines.
const ORDINARY: &str = "nonprivate";

/// A measured step of another framework.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Peer {
    /// Name of the framework.
    pub(super) framework: String,
    /// Name of the network.
    pub(super) model: String,
    /// Number of examples in a step.
    pub(super) batch: usize,
    /// Name of the algorithm.
    pub(super) algorithm: String,
    /// Median time of a step, in milliseconds.
    pub(super) ms: f64,
    /// Shortest time of a step, in milliseconds.
    pub(super) ms_min: f64,
    /// Median time over the median time of the ordinary step of the framework.
    pub(super) ratio: f64,
}

/// Reads the private steps from a file with one JSON object per line. Empty lines and ordinary
/// steps are skipped, and so are algorithms that failed, which are named on standard error.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the file cannot be read, and [`TrainError::Option`] with the file
/// and the number of the first line that is not a measurement.
pub(super) fn read(path: &Path) -> Result<Vec<Peer>, TrainError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TrainError::Io { path: path.into(), source })?;
    let mut peers = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{}:{}", path.display(), index + 1);
        let bad = |reason: String| {
            let way_out = "a line is what burn-dp-bench/peers/bench_torch.py prints";
            TrainError::option("--peers", format!("{place}: {reason}; {way_out}"))
        };
        let value: Value = serde_json::from_str(line)
            .map_err(|error| bad(error.to_string().replace(" at line 1 column ", " at column ")))?;
        if let Some(error) = value.get("error") {
            let name = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("?");
            let names = ["framework", "algorithm", "model"].map(name).join(", ");
            eprintln!("{place}: not drawn, because {names} failed: {error}");
            continue;
        }
        let peer: Peer = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
        for (name, number) in [("ms", peer.ms), ("ms_min", peer.ms_min), ("ratio", peer.ratio)] {
            if number <= 0.0 {
                return Err(bad(format!("`{name}` must be greater than 0, got {number}")));
            }
        }
        if peer.algorithm != ORDINARY {
            peers.push(peer);
        }
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LINE: &str = r#"{"framework": "torch", "model": "mlp", "batch": 8, "device": "cpu",
        "algorithm": "ghost", "ms": 2.5, "ms_min": 2.0, "ratio": 1.25}"#;

    fn read_text(text: &str) -> Result<Vec<Peer>, TrainError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_line_is_a_measurement_and_ordinary_or_failed_steps_are_left_out() {
        let line = LINE.replace('\n', " ");
        let ordinary = line.replace("ghost", ORDINARY);
        let failed = r#"{"framework": "jax", "model": "mlp", "algorithm": "x", "error": "none"}"#;
        let peers = read_text(&format!("{ordinary}\n\n{line}\n{failed}\n")).unwrap();
        let expected = Peer {
            framework: "torch".into(),
            model: "mlp".into(),
            batch: 8,
            algorithm: "ghost".into(),
            ms: 2.5,
            ms_min: 2.0,
            ratio: 1.25,
        };
        assert_eq!(peers, [expected]);
    }

    #[test]
    fn a_bad_line_is_refused_with_file_and_line() {
        let line = LINE.replace('\n', " ");
        for (bad, reason) in [
            (line.replace("\"ms\": 2.5, ", ""), "missing field `ms`"),
            (line.replace("1.25", "null"), "expected f64"),
            (line.replace("2.5", "0"), "`ms` must be greater than 0, got 0"),
            (line.replace("\"batch\": 8", "\"batch\": -8"), "expected usize"),
            (line.replace('}', ""), "EOF while parsing an object at column"),
            ("[]".into(), "expected struct Peer"),
        ] {
            let error = read_text(&format!("{line}\n\n{bad}\n")).unwrap_err().to_string();
            assert!(error.starts_with("--peers ") && error.contains("peers.jsonl:3: "), "{error}");
            assert!(error.contains(reason), "{reason}: {error}");
        }
        let missing = read(Path::new("none.jsonl")).unwrap_err().to_string();
        assert!(missing.starts_with("none.jsonl: "), "{missing}");
    }
}
