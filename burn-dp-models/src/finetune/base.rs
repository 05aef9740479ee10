//! The folder of the pre-trained model of a run.

use std::collections::BTreeMap;
use std::path::Path;

use burn_dp_examples::training::place::{self, Program};
use burn_dp_examples::training::{LEDGER_FILE, TrainError, kept_ledgers};

use super::export::{self, ADAPTER, MODEL, PREPROCESSOR};
use super::options::FinetuneOptions;

/// Checks that the results of a run replace neither its pre-trained model nor files of others.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if they have the same folder, or if the output folder is not
/// [free](place::check).
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
    place::check(Program::Finetune, output, export::written(output))
}

/// Returns whether an earlier private run made the pre-trained model, and its ledger, which is next
/// to the model, is not counted. A later run in that folder has renamed it when it began.
pub(super) fn has_uncounted_ledger(options: &FinetuneOptions) -> bool {
    let whole = |path: &Path| path.canonicalize().ok();
    let folder = whole(&options.model);
    let ledger = folder.as_deref().and_then(Path::parent).and_then(|folder| {
        // The last run whose ledger was kept made the model.
        let kept = kept_ledgers(folder).map_while(|path| whole(&path));
        whole(&folder.join(LEDGER_FILE)).or_else(|| kept.last())
    });
    let mut given = options.privacy.earlier_ledger.iter().map(|path| whole(path));
    ledger.is_some() && !given.any(|path| path == ledger)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::PathBuf;

    use clap::{Args, Command, FromArgMatches};

    use super::*;

    #[test]
    fn the_ledger_beside_a_model_is_found_also_while_a_later_run_trains() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("model")).unwrap();
        let is_uncounted = |given: Option<&str>| {
            let mut words: Vec<PathBuf> = vec!["finetune".into(), "--model".into(), path("model")];
            words
                .extend(given.into_iter().flat_map(|name| ["--earlier-ledger".into(), path(name)]));
            let command = FinetuneOptions::augment_args(Command::new("finetune"));
            let matches = command.try_get_matches_from(words).unwrap();
            has_uncounted_ledger(&FinetuneOptions::from_arg_matches(&matches).unwrap())
        };
        assert!(!is_uncounted(None));
        for name in ["ledger-1.json", "ledger-2.json", LEDGER_FILE] {
            std::fs::write(path(name), "").unwrap();
            assert!(is_uncounted(None) && !is_uncounted(Some(name)), "{name}");
        }
        assert!(is_uncounted(Some("ledger-2.json")));
    }
}
