//! The comparison with the original Python libraries.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use burn_dp_examples::training::{TrainError, files};
use serde::Serialize;

use super::options::CheckOptions;
use crate::ModelError;
use crate::reference::{Comparison, compare, write_for_python};

/// The script, in the folder of this crate.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/reference.py");

/// Maximum difference of a score after a round trip through files.
const TOLERANCE: f64 = 1e-5;

/// All results.
#[derive(Debug, Serialize)]
struct Results {
    /// Models of Python, by name.
    models: BTreeMap<String, Comparison>,
    /// Largest difference of the scores of files that Python loaded, by name.
    loaded_by_python: BTreeMap<String, f64>,
}

/// Compares models that Python writes, and files that Python loads, and prints both tables.
///
/// # Errors
///
/// Returns [`TrainError`] if Python or one of its libraries is missing, or with the first case that
/// does not agree.
pub(super) fn run(options: &CheckOptions) -> Result<(), TrainError> {
    let folder = tempfile::tempdir().map_err(|source| io(Path::new("."), source))?;
    let (models, written) = (folder.path().join("models"), folder.path().join("written"));
    python(options, &["write", &models.to_string_lossy(), "--large"])?;
    burn_dp_examples::print_line!(
        "{:<18}{:>12}{:>10}{:>12}{:>12}{:>12}",
        "model",
        "parameters",
        "examples",
        "scores",
        "norms",
        "clipped sum"
    );
    let mut results = Results { models: BTreeMap::new(), loaded_by_python: BTreeMap::new() };
    for name in names(&models)? {
        let found = compare(&models.join(&name))?;
        burn_dp_examples::print_line!(
            "{name:<18}{:>12}{:>10}{:>12.1e}{:>12.1e}{:>12.1e}",
            found.parameters,
            found.examples,
            found.scores,
            found.norms,
            found.sums
        );
        results.models.insert(name, found);
    }
    burn_dp_examples::print_line!(
        "largest differences: of a score, of a norm (relative), of a value of the sum over C"
    );

    for name in results.models.keys() {
        write_for_python(&models.join(name), &written)?;
    }
    let output = python(options, &["verify", &written.to_string_lossy()])?;
    let line = output.lines().last().unwrap_or_default();
    results.loaded_by_python =
        serde_json::from_str(line).map_err(|error| ModelError::new(SCRIPT, error))?;
    burn_dp_examples::print_line!("\n{:<28}{:>12}", "loaded by Python", "scores");
    for (name, difference) in &results.loaded_by_python {
        burn_dp_examples::print_line!("{name:<28}{difference:>12.1e}");
    }
    if let Some(path) = &options.json {
        files::write_json(path, &results)?;
    }
    if results.models.is_empty() || results.loaded_by_python.is_empty() {
        return Err(ModelError::new(SCRIPT, "wrote or loaded no model to compare").into());
    }
    let models = results.models.iter().filter(|(_, found)| !found.agrees());
    let loaded = results.loaded_by_python.iter().filter(|(_, worst)| **worst > TOLERANCE);
    match models.map(|(name, _)| name).chain(loaded.map(|(name, _)| name)).next() {
        None => Ok(()),
        Some(name) => {
            Err(ModelError::new(name, "differs from Python by more than rounding").into())
        }
    }
}

/// Runs the script and returns what it prints.
fn python(options: &CheckOptions, arguments: &[&str]) -> Result<String, TrainError> {
    let output = Command::new(&options.python)
        .arg(SCRIPT)
        .args(arguments)
        .env("TRANSFORMERS_OFFLINE", "1")
        .output()
        .map_err(|source| io(&options.python, source))?;
    if !output.status.success() {
        let reason = format!(
            "the script failed; it needs torch, torchvision, transformers, tokenizers, peft and \
             safetensors:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return Err(ModelError::new(&options.python, reason).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into())
}

fn names(folder: &Path) -> Result<Vec<String>, TrainError> {
    let entries = std::fs::read_dir(folder).map_err(|source| io(folder, source))?;
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    Ok(names)
}

fn io(path: &Path, source: std::io::Error) -> TrainError {
    TrainError::Io { path: path.into(), source }
}
