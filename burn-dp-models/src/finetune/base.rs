//! The folder of the pre-trained model of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn_dp_examples::training::{LEDGER_FILE, TrainError};

use super::export::{ADAPTER, MODEL, PREPROCESSOR};
use super::options::FinetuneOptions;

/// Checks that the results of a run do not replace its pre-trained model.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if they have the same folder.
pub(super) fn check_place(model: &Path, output: &Path) -> Result<(), TrainError> {
    let base = model.canonicalize().ok();
    let written = [MODEL, ADAPTER].map(|name| output.join(name));
    if base.is_some() && written.iter().any(|path| path.canonicalize().ok() == base) {
        let reason = format!(
            "{} is where this run writes its results; give another --output",
            model.display()
        );
        return Err(TrainError::option("--model", reason));
    }
    Ok(())
}

/// Returns the ledger next to the pre-trained model, if an earlier run made the model and its
/// ledger is not counted.
pub(super) fn uncounted_ledger(options: &FinetuneOptions) -> Option<PathBuf> {
    let folder = options.model.canonicalize().ok()?;
    let ledger = folder.parent()?.join(LEDGER_FILE).canonicalize().ok()?;
    let given = options.privacy.earlier_ledger.iter();
    let is_counted = given.filter_map(|path| path.canonicalize().ok()).any(|path| path == ledger);
    (!is_counted).then_some(ledger)
}

/// Returns the checksums of the files of a base model, its weights included: a resumed run
/// continues with the model that it started with.
pub(super) fn checksums(model: &Path) -> BTreeMap<String, u32> {
    let is_base = |name: &str| {
        let endings = [".safetensors", ".bin", ".pt", ".pth"];
        ["config.json", "tokenizer.json", PREPROCESSOR, "model.safetensors.index.json"]
            .contains(&name)
            || endings.iter().any(|ending| name.ends_with(ending))
    };
    let entries = std::fs::read_dir(model).into_iter().flatten().filter_map(Result::ok);
    let checksum = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| is_base(name))?;
        Some((name, crc32fast::hash(&std::fs::read(entry.path()).ok()?)))
    };
    entries.filter_map(checksum).collect()
}
