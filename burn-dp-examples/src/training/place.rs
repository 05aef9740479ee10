//! The output folder of a program, which is free of the results of others.

use std::fmt;
use std::path::{Path, PathBuf};

use burn_dp::checkpoint::Checkpointer;
use serde_json::Value;

use super::output::{
    AVERAGED_MODEL_FILE, FIGURES_FILE, MODEL_FILE, PLOTS, SEARCH_FILE, STATEMENT_JSON,
    STATEMENT_TEXT, TRAINING_PLOT,
};
use super::{Checkpoints, TrainError};

/// The configuration of a model for Python.
pub const CONFIG: &str = "config.json";
/// The entry of a configuration that `finetune pretrain` wrote.
pub const PRETRAINED: &str = "pretrained_by";
/// The setting that only runs of `finetune` have.
pub const TASK: &str = "the task";

/// The state of an unfinished search, in its [folder](search_folder).
pub(super) const SEARCH_STATE: &str = "search.json";

/// Names that every program refuses from others: a statement must be about the model next to it.
const SHARED: [&str; 5] =
    [MODEL_FILE, AVERAGED_MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT, FIGURES_FILE];

/// A program that writes to an output folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `train`.
    Train,
    /// `tune`.
    Tune,
    /// The private training of `finetune`.
    Finetune,
    /// `finetune pretrain`.
    Pretrain,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Tune => "tune",
            Self::Finetune => "finetune",
            Self::Pretrain => "finetune pretrain",
        })
    }
}

/// Checks that a folder has no results of another program, and no files of others that a run of
/// this one would replace. The content of a file decides which program wrote it.
///
/// # Arguments
///
/// - `replaced`: paths that a run may replace, in addition to those that all programs have
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the path, its origin and a remedy, and
/// [`TrainError::Privacy`] for a folder without a name.
pub fn check(
    program: Program,
    folder: &Path,
    replaced: impl IntoIterator<Item = PathBuf>,
) -> Result<(), TrainError> {
    let reason = match trace(folder)? {
        Some(Trace { owner, .. }) if owner == program => return Ok(()),
        Some(Trace { owner, origin, path, remedy }) => {
            format!("{} is from {origin} of `{owner}`; {remedy}", path.display())
        }
        None => {
            let of_train = [TRAINING_PLOT, SEARCH_FILE].into_iter().chain(PLOTS);
            let of_train = of_train.filter(|_| matches!(program, Program::Train | Program::Tune));
            let names = SHARED.into_iter().chain(of_train).map(|name| folder.join(name));
            let mut paths = replaced.into_iter().chain(names);
            let Some(path) = paths.find(|path| path.symlink_metadata().is_ok()) else {
                return Ok(());
            };
            format!(
                "{} was not written by `{program}`, which would replace it or mix it with its \
                 results; give another folder, or remove that file",
                path.display()
            )
        }
    };
    let reason = format!("{} is not free for `{program}`: {reason}", folder.display());
    Err(TrainError::option("--output", reason))
}

/// What shows that a folder belongs to a program.
struct Trace {
    owner: Program,
    origin: &'static str,
    path: PathBuf,
    remedy: &'static str,
}

/// Returns the trace of the program whose folder it is, if there is one.
fn trace(folder: &Path) -> Result<Option<Trace>, TrainError> {
    let path = search_folder(folder)?.join(SEARCH_STATE);
    if path.exists() {
        let remedy = "finish it with `tune --resume`, or give another folder";
        let origin = "an unfinished search";
        return Ok(Some(Trace { owner: Program::Tune, origin, path, remedy }));
    }
    if let Some(settings) = Checkpoints::settings_in(folder) {
        let owner = if settings.contains_key(TASK) { Program::Finetune } else { Program::Train };
        let (origin, path) = ("an interrupted run", folder.join("checkpoints"));
        let remedy = "finish that run, or give another folder";
        return Ok(Some(Trace { owner, origin, path, remedy }));
    }
    let json = |name: &str| -> Value {
        let bytes = std::fs::read(folder.join(name)).ok();
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    };
    let (search, run, config) = (json(SEARCH_FILE), json(FIGURES_FILE), json(CONFIG));
    let is_of_train = run["private"].is_boolean() || run["delta"].is_number();
    let found = [
        (Program::Tune, SEARCH_FILE, search["mean_runs"].is_number()),
        (Program::Finetune, FIGURES_FILE, run["task"].is_string()),
        (Program::Train, FIGURES_FILE, is_of_train),
        (Program::Pretrain, CONFIG, config[PRETRAINED].is_string()),
    ];
    let found = found.into_iter().find(|(.., is_found)| *is_found);
    Ok(found.map(|(owner, name, _)| Trace {
        owner,
        origin: "an earlier run",
        path: folder.join(name),
        remedy: "give another folder, or remove the results of that run",
    }))
}

/// Returns the folder of the secret state of a search, next to its output folder.
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] for an output folder without a name.
pub(super) fn search_folder(output: &Path) -> Result<PathBuf, TrainError> {
    Ok(Checkpointer::new(output).key_file()?.with_extension("search"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tempfile::TempDir;

    use super::*;

    const PROGRAMS: [Program; 4] =
        [Program::Train, Program::Tune, Program::Finetune, Program::Pretrain];

    /// A folder `out` with one file.
    fn output(name: &str, content: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        std::fs::create_dir(&output).unwrap();
        let path = output.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        (folder, output)
    }

    #[test]
    fn a_folder_is_free_for_the_program_that_wrote_it_and_for_no_other() {
        let settings = "checkpoints/settings.json";
        for (owner, name, content) in [
            (Program::Train, FIGURES_FILE, r#"{"private": false}"#),
            (Program::Train, FIGURES_FILE, r#"{"delta": 1e-5}"#),
            (
                Program::Train,
                settings,
                r#"{"program": "burn-dp-examples", "settings": {"--lr": "1"}}"#,
            ),
            (Program::Tune, SEARCH_FILE, r#"{"mean_runs": 8.0}"#),
            (Program::Tune, "../out.search/search.json", "{}"),
            (Program::Finetune, FIGURES_FILE, r#"{"private": true, "task": "generate"}"#),
            (
                Program::Finetune,
                settings,
                r#"{"program": "burn-dp-examples", "settings": {"the task": "generate"}}"#,
            ),
            (Program::Pretrain, CONFIG, r#"{"pretrained_by": "burn-dp-models 0.1.0"}"#),
        ] {
            let (_folder, output) = output(name, content);
            // A result, which has the name of a file that every program refuses from others.
            std::fs::write(output.join(MODEL_FILE), "").unwrap();
            for program in PROGRAMS {
                let checked = check(program, &output, []);
                if program == owner {
                    checked.unwrap();
                    continue;
                }
                let error = checked.unwrap_err().to_string();
                let place = format!("{} is not free for `{program}`: ", output.display());
                assert!(error.starts_with(&format!("--output {place}")), "{error}");
                let shown = if name == settings { "checkpoints" } else { name };
                let shown = shown.trim_start_matches("../out.search/");
                assert!(error.contains(&format!("{shown} is from ")), "{error}");
                assert!(error.contains(&format!(" of `{owner}`; ")), "{error}");
                assert!(error.contains("give another folder"), "{error}");
            }
        }
    }

    #[test]
    fn files_that_no_run_wrote_are_not_replaced() {
        let is_refused = |program, name: &str, replaced: Option<&str>| {
            let (_folder, output) = output(name, r#"{"epsilon": 1}"#);
            let replaced = replaced.map(|name| output.join(name));
            match check(program, &output, replaced) {
                Ok(()) => false,
                Err(error) => {
                    let error = error.to_string();
                    let named = format!("{} was not written by", output.join(name).display());
                    assert!(error.contains(&named), "{error}");
                    assert!(error.ends_with("another folder, or remove that file"), "{error}");
                    true
                }
            }
        };
        for program in PROGRAMS {
            for name in SHARED {
                assert!(is_refused(program, name, None), "{program}: {name}");
            }
            let has_plots = matches!(program, Program::Train | Program::Tune);
            for name in [TRAINING_PLOT, SEARCH_FILE].into_iter().chain(PLOTS) {
                assert_eq!(is_refused(program, name, None), has_plots, "{program}: {name}");
            }
            assert!(is_refused(program, "model/config.json", Some("model/config.json")));
            // A run keeps them. A ledger is renamed.
            for name in ["notes.txt", "ledger.json", "model/config.json", "checkpoints/x"] {
                assert!(!is_refused(program, name, None), "{program}: {name}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_nothing_is_not_replaced() {
        let (_folder, output) = output("notes.txt", "");
        std::os::unix::fs::symlink(output.join("elsewhere"), output.join(MODEL_FILE)).unwrap();
        let error = check(Program::Train, &output, []).unwrap_err().to_string();
        assert!(error.contains("model.bpk was not written by `train`"), "{error}");
    }
}
