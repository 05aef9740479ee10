//! The output folder of a run.

use std::fmt;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp_accountant::PrivacyLedger;
use serde::Serialize;

use super::options::RunOptions;
use super::{TrainError, checks, files, statement};
use crate::plot::{self, Panel, Series};

/// Name of the file with the trained parameters, a Burn record.
pub const MODEL_FILE: &str = "model.bpk";
/// Name of the file with the averaged parameters, a Burn record.
pub const AVERAGED_MODEL_FILE: &str = "averaged-model.bpk";
/// Name of the file with the privacy statement as JSON.
pub const STATEMENT_JSON: &str = "privacy.json";
/// Name of the file with the privacy statement as text.
pub const STATEMENT_TEXT: &str = "privacy.txt";
/// Name of the file with the ledger, which a later run on the same data counts.
pub const LEDGER_FILE: &str = "ledger.json";
/// Name of the plot of accuracy and ε over the steps of a private run.
pub const TRAINING_PLOT: &str = "training.svg";
/// Name of the file with the figures of a run.
pub const FIGURES_FILE: &str = "run.json";
/// Name of the file with the results of a private search.
pub(super) const SEARCH_FILE: &str = "tune.json";

/// Name of the plot of the test accuracy of batch clipping.
pub(super) const ACCURACY_PLOT: &str = "accuracy.svg";
/// Name of the plot of the loss of user-level training.
pub(super) const LOSS_PLOT: &str = "loss.svg";
/// Name of the plot of the clipping threshold.
pub(super) const THRESHOLD_PLOT: &str = "threshold.svg";
/// Name of the plot of the norms of public users.
pub(super) const NORMS_PLOT: &str = "update-norms.svg";
/// Name of the plot of the mean norms of private users.
pub(super) const PRIVATE_MEANS_PLOT: &str = "private-means.svg";
/// Name of the plot of their medians.
pub(super) const PRIVATE_MEDIANS_PLOT: &str = "private-medians.svg";

/// Names of the plots that some kinds of training write.
pub(super) const PLOTS: [&str; 6] = [
    ACCURACY_PLOT,
    LOSS_PLOT,
    THRESHOLD_PLOT,
    NORMS_PLOT,
    PRIVATE_MEANS_PLOT,
    PRIVATE_MEDIANS_PLOT,
];
/// Names of the folders of models that `finetune` writes.
const MODEL_FOLDERS: [&str; 2] = ["model", "adapter"];

/// Names of the files that a run writes to its folder, whatever the name of its figures.
const RESULTS: [&str; 6] =
    [MODEL_FILE, AVERAGED_MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT, LEDGER_FILE, TRAINING_PLOT];

/// The output folder, and the file of the figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The folder.
    pub folder: PathBuf,
    json: PathBuf,
    /// Whether the run was interrupted before.
    resumed: bool,
    /// Whether the run prints more than its table: one of a search does not.
    pub(super) prints: bool,
}

/// A measurement on the test set during a private run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// Steps so far.
    pub step: usize,
    /// Share of correct predictions.
    pub accuracy: f64,
    /// Infinite if nothing is guaranteed.
    pub epsilon: f64,
}

impl Output {
    /// Checks that the folder and the file can be written. Writes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the folder is a file, or the file is a folder, another
    /// result of the run, or in a folder that does not exist.
    pub fn new(options: &RunOptions) -> Result<Self, TrainError> {
        let folder = options.output.clone();
        let json = options.json.clone().unwrap_or_else(|| folder.join(FIGURES_FILE));
        checks::folder("--output", &folder)?;
        checks::file("--json", &json, Some(&folder))?;
        check_json(&folder, &json)?;
        Ok(Self { folder, json, resumed: options.resume, prints: !options.is_of_search })
    }

    /// Creates the folder. The results of an earlier run stay until [`models`](Self::models). Its
    /// ledger is renamed before the first checkpoint of a new run, so that a resumed run finds no
    /// ledger but its own.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if the folder cannot be written.
    pub fn begin(&self) -> Result<(), TrainError> {
        files::make_folder(&self.folder)?;
        files::remove_incomplete(&self.folder)?;
        if self.resumed { Ok(()) } else { keep_ledger(&self.folder) }
    }

    /// Returns the path of a file with this name.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the parameters of the model and of its average, if there is one, in place of the
    /// models of an earlier run. They are complete before the earlier ones are removed, and the
    /// statement of the earlier run is never next to another model.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if a model cannot be recorded, and [`TrainError::Io`] if a
    /// file cannot be written.
    pub fn models<M: Module>(&self, model: M, average: Option<M>) -> Result<(), TrainError> {
        let record = |name, model| files::record_model(&self.file(name), model);
        let average = average.map(|average| record(AVERAGED_MODEL_FILE, average)).transpose()?;
        let model = record(MODEL_FILE, model)?;
        let stale = [STATEMENT_JSON, STATEMENT_TEXT, TRAINING_PLOT, AVERAGED_MODEL_FILE];
        let stale = stale.iter().chain(&PLOTS).chain(&[SEARCH_FILE, FIGURES_FILE]);
        stale.copied().try_for_each(|name| files::remove(&self.file(name)))?;
        average.into_iter().chain([model]).try_for_each(files::Complete::publish)
    }

    /// Writes the ledger of a run, before its [models](Self::models), so that no model is without
    /// its record; `None` for a run without privacy. The ledger of another run is kept.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if the file cannot be written or the other one cannot be renamed,
    /// and [`TrainError::Privacy`] if the ledger cannot be encoded.
    pub fn ledger(&self, ledger: Option<&PrivacyLedger>) -> Result<(), TrainError> {
        write_ledger(&self.folder, ledger, self.resumed)
    }

    /// Writes the privacy statement of a finished run in both forms, and prints its summary; and
    /// the ledger once more, which now says that the run is over.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if a file cannot be written, and [`TrainError::Privacy`] if the
    /// statement cannot be made.
    pub fn statement(
        &self,
        ledger: &PrivacyLedger,
        deltas: &[f64],
        group: Option<u64>,
    ) -> Result<(), TrainError> {
        let statement = &statement::statement(ledger, deltas, group)?;
        let text = ledger.to_json().map_err(DpError::from)?;
        files::write(&self.file(LEDGER_FILE), text.as_bytes())?;
        files::write_json(&self.file(STATEMENT_JSON), statement)?;
        let path = self.file(STATEMENT_TEXT);
        files::write(&path, statement.to_string().as_bytes())?;
        self.print(format_args!(
            "\n{}  not covered:              {} points, in {}",
            statement.summary(),
            statement.not_covered.len(),
            path.display()
        ));
        Ok(())
    }

    /// Plots accuracy and ε over the steps, and prints the path. Without measurements there is no
    /// plot.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if the file cannot be written.
    pub fn plot(&self, title: &str, measurements: &[Measurement]) -> Result<(), TrainError> {
        if self.resumed {
            self.print("note: plot and times are of the part since the resumption");
        }
        if measurements.is_empty() {
            return Ok(());
        }
        let series = |name: &str, of: fn(&Measurement) -> f64| {
            let points = measurements.iter().map(|measured| (measured.step as f64, of(measured)));
            Series::new(name, points.filter(|(_, value)| value.is_finite()))
        };
        let accuracy = [series("test accuracy", |measured| measured.accuracy)];
        let epsilon = [series("epsilon spent, upper bound", |measured| measured.epsilon)];
        let mut panels = vec![Panel { y: "test accuracy", series: &accuracy }];
        if !epsilon[0].points.is_empty() {
            panels.push(Panel { y: "epsilon", series: &epsilon });
        }
        let path = self.file(TRAINING_PLOT);
        plot::panels(&path, [title, "step"], &panels)?;
        self.print(format_args!("plot: {}", path.display()));
        Ok(())
    }

    /// Writes the figures and prints the folder. They are always in the folder, too, where they
    /// show which program wrote it.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if a file cannot be written.
    pub fn figures(&self, figures: &impl Serialize) -> Result<(), TrainError> {
        let path = self.file(FIGURES_FILE);
        files::write_json(&path, figures)?;
        if self.json != path {
            files::write_json(&self.json, figures)?;
        }
        self.print(format_args!("files: {}", self.folder.display()));
        Ok(())
    }

    /// Prints a line about the run, unless it is one of a search.
    pub(super) fn print(&self, line: impl fmt::Display) {
        if self.prints {
            print_line!("{line}");
        }
    }
}

/// Checks that the figures do not replace another result of the run.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if they do.
fn check_json(folder: &Path, json: &Path) -> Result<(), TrainError> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let parent = json.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = whole(parent.unwrap_or(Path::new(".")));
    let name = json.file_name().unwrap_or_default().to_string_lossy();
    let is_result = parent == whole(folder)
        && (RESULTS.contains(&&*name) || name.starts_with("ledger-") && name.ends_with(".json"));
    let is_other = match json.symlink_metadata() {
        // Writing replaces the name, so a link or a device would be lost.
        Ok(found) if !found.is_file() => Some("is not an ordinary file"),
        Ok(_) if is_ledger(json) => Some("is the ledger of a run, which may be its only record"),
        _ => None,
    };
    if let Some(what) = is_other {
        let reason = format!("{} {what}; give another file", json.display());
        return Err(TrainError::option("--json", reason));
    }
    let key = Checkpointer::new(folder).key_file()?;
    let is_key =
        key.file_name() == json.file_name() && key.parent().map(whole) == Some(parent.clone());
    let is_result = is_result || is_key;
    let mut folders = MODEL_FOLDERS.iter().chain(&["checkpoints"]);
    if is_result || folders.any(|name| parent.starts_with(whole(&folder.join(name)))) {
        let reason = format!("{} is another result of the run; give another file", json.display());
        return Err(TrainError::option("--json", reason));
    }
    Ok(())
}

fn is_ledger(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| PrivacyLedger::from_json(&text).is_ok())
}

/// Writes the ledger of a run to its folder. An existing ledger of another run is
/// [kept](keep_ledger).
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the file cannot be written or the other one cannot be renamed, and
/// [`TrainError::Privacy`] if the ledger cannot be encoded.
pub(super) fn write_ledger(
    folder: &Path,
    ledger: Option<&PrivacyLedger>,
    resumed: bool,
) -> Result<(), TrainError> {
    let path = folder.join(LEDGER_FILE);
    let text = ledger.map(|ledger| ledger.to_json().map_err(DpError::from)).transpose()?;
    let io = |source| TrainError::Io { path: path.clone(), source };
    match std::fs::read(&path) {
        // Written by this run before it was interrupted; a new run with equal settings is a
        // different one.
        Ok(found) if resumed && is_of(ledger, &found) => {}
        Ok(_) => keep_ledger(folder)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    text.map_or(Ok(()), |text| files::write(&path, text.as_bytes()))
}

/// Renames the ledger in a folder, if there is one, to `ledger-1.json`, `ledger-2.json`, and so on,
/// because it may be the only record of those releases.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if it cannot be renamed.
pub(super) fn keep_ledger(folder: &Path) -> Result<(), TrainError> {
    let path = folder.join(LEDGER_FILE);
    if !path.is_file() {
        return Ok(());
    }
    let unused = |path: &PathBuf| !path.exists();
    let kept = kept_ledgers(folder).find(unused).unwrap_or_else(|| path.clone());
    std::fs::rename(&path, &kept).map_err(|source| TrainError::Io { path, source })?;
    print_line!(
        "the ledger of an earlier run is kept as {}; if that run was on the same data, its cost \
         adds up (--earlier-ledger), even if only the better model is published (`cargo xtask \
         statement` with a --ledger for each)",
        kept.display()
    );
    Ok(())
}

/// Returns the paths that kept ledgers have, in order.
pub fn kept_ledgers(folder: &Path) -> impl Iterator<Item = PathBuf> {
    (1u32..).map(|number| folder.join(format!("ledger-{number}.json")))
}

/// Removes the results of a run from its folder. Files of others are kept.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if a file cannot be removed.
pub(super) fn remove_results(folder: &Path) -> Result<(), TrainError> {
    files::remove_incomplete(folder)?;
    let mut results = RESULTS.iter().chain([&FIGURES_FILE]);
    results.try_for_each(|name| files::remove(&folder.join(name)))?;
    let kept: Vec<_> = kept_ledgers(folder).take_while(|path| path.is_file()).collect();
    // The last one first, so that an interrupted removal can be continued.
    kept.iter().rev().try_for_each(|path| files::remove(path))
}

/// Returns whether a file is a ledger with the same releases.
fn is_of(ledger: Option<&PrivacyLedger>, found: &[u8]) -> bool {
    let found = std::str::from_utf8(found).ok();
    let found = found.and_then(|text| PrivacyLedger::from_json(text).ok());
    found.zip(ledger).is_some_and(|(found, ledger)| found.entries() == ledger.entries())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;
    use burn_dp_accountant::{DpEvent, LedgerHeader, NeighboringRelation, UnitOfPrivacy};

    use super::*;
    use crate::models::MlpConfig;

    fn output(folder: &Path) -> Output {
        let json = folder.join("run.json");
        Output { folder: folder.into(), json, resumed: false, prints: true }
    }

    fn message(result: Result<(), TrainError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_written_is_named_and_the_former_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(folder.path());
        let measured = [Measurement { step: 1, accuracy: 0.5, epsilon: 1.0 }];
        for name in [TRAINING_PLOT, "run.json"] {
            std::fs::create_dir(output.file(name)).unwrap();
        }
        assert!(message(output.plot("title", &measured)).contains(TRAINING_PLOT));
        assert!(message(output.figures(&7)).contains("run.json"));
        assert!(output.file(TRAINING_PLOT).is_dir() && output.file("run.json").is_dir());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn figures_are_in_the_folder_and_in_a_file_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let output = Output { json: at("elsewhere.json"), ..output(&at("out")) };
        output.begin().unwrap();
        output.figures(&7).unwrap();
        for name in ["out/run.json", "elsewhere.json"] {
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), "7\n");
        }
    }

    #[test]
    fn plots_and_figures_of_an_earlier_run_are_not_next_to_a_new_model() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(folder.path());
        let others = [TRAINING_PLOT, SEARCH_FILE, FIGURES_FILE].into_iter().chain(PLOTS);
        for name in others.clone() {
            std::fs::write(output.file(name), "").unwrap();
        }
        output.models(MlpConfig::new().init(&Device::flex()), None).unwrap();
        assert!(output.file(MODEL_FILE).exists());
        for name in others {
            assert!(!output.file(name).exists(), "{name}");
        }
    }

    #[test]
    fn figures_do_not_replace_other_results() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let check = |json: &str| check_json(&output, &folder.path().join(json));
        for existing in [false, true] {
            for name in ["privacy.json", "ledger.json", "ledger-3.json", "model/config.json"] {
                let error = message(check(&format!("out/{name}")));
                assert!(error.contains("another result of the run"), "{error}");
            }
            for name in ["out/run.json", "out/figures/run.json", "privacy.json", "runs.json"] {
                check(name).unwrap();
            }
            assert_eq!(check("out/../out/ledger.json").is_err(), existing);
            std::fs::create_dir_all(output.join("model")).unwrap();
        }
    }

    #[test]
    fn figures_do_not_replace_keys_ledgers_links_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let check = |name: &str| message(check_json(&at("out"), &at(name)));
        assert!(check("out.key").contains("another result of the run"));
        let relation = NeighboringRelation::AddOrRemoveOne;
        let ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        std::fs::write(at("other.json"), ledger.to_json().unwrap()).unwrap();
        assert!(check("other.json").contains("is the ledger of a run"));
        std::fs::create_dir(at("folder")).unwrap();
        assert!(check("folder").contains("is not an ordinary file"));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("target"), at("link.json")).unwrap();
            assert!(check("link.json").contains("is not an ordinary file"));
        }
        std::fs::write(at("run.json"), "{}").unwrap();
        check_json(&at("out"), &at("run.json")).unwrap();
    }

    #[test]
    fn the_ledger_of_another_run_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(folder.path());
        let relation = NeighboringRelation::AddOrRemoveOne;
        let [first, second] = [2.0, 3.0].map(|sigma| {
            let mut ledger =
                PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
            ledger.record(&DpEvent::gaussian(sigma)).unwrap();
            ledger
        });
        let load = |name: &str| PrivacyLedger::load(output.file(name)).unwrap();
        output.ledger(None).unwrap();
        output.ledger(Some(&first)).unwrap();
        // A resumed run rewrites its own ledger.
        Output { resumed: true, ..output.clone() }.ledger(Some(&first)).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        output.ledger(Some(&second)).unwrap();
        output.models(MlpConfig::new().init(&Device::flex()), None).unwrap();
        assert_eq!(load(LEDGER_FILE).entries(), second.entries());
        assert_eq!(load("ledger-1.json").entries(), first.entries());
        // A non-private model must not sit next to a ledger that appears to belong to it.
        output.ledger(None).unwrap();
        assert!(!output.file(LEDGER_FILE).exists());
        assert_eq!(load("ledger-2.json").entries(), second.entries());
        // A second run with the same settings makes the same number of releases again.
        (0..2).for_each(|_| output.ledger(Some(&first)).unwrap());
        assert_eq!(load("ledger-3.json").entries(), first.entries());
    }

    // The second run has the settings of the first one, so their ledgers are equal.
    #[test]
    fn a_resumed_run_finds_no_ledger_but_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let new = output(folder.path());
        let resumed = Output { resumed: true, ..new.clone() };
        let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
        let of = |run: &str| {
            let mut ledger = PrivacyLedger::new(header.clone().with_fact("run", run));
            ledger.record(&DpEvent::gaussian(2.0)).unwrap();
            ledger
        };
        let run = |name: &str| PrivacyLedger::load(new.file(name)).unwrap().header().clone();
        new.begin().unwrap();
        new.ledger(Some(&of("first"))).unwrap();
        // A kill right after the renaming, after the first checkpoint, and after the ledger.
        new.begin().unwrap();
        new.begin().unwrap();
        resumed.begin().unwrap();
        resumed.ledger(Some(&of("second"))).unwrap();
        resumed.begin().unwrap();
        resumed.ledger(Some(&of("second"))).unwrap();
        assert_eq!(run("ledger-1.json"), *of("first").header());
        assert_eq!(run(LEDGER_FILE), *of("second").header());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn models_of_an_earlier_run_stay_if_the_new_ones_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let output = output(&folder.path().join("out"));
        let model = || MlpConfig::new().init(&Device::flex());
        output.begin().unwrap();
        // Of an earlier search.
        std::fs::write(output.file(SEARCH_FILE), "{}").unwrap();
        output.models(model(), None).unwrap();
        assert!(!output.file(SEARCH_FILE).exists());
        let before = std::fs::read(output.file(MODEL_FILE)).unwrap();
        std::fs::create_dir(output.file(AVERAGED_MODEL_FILE)).unwrap();
        assert!(message(output.models(model(), Some(model()))).contains(AVERAGED_MODEL_FILE));
        assert_eq!(std::fs::read(output.file(MODEL_FILE)).unwrap(), before);

        let file = Output { folder: output.file(MODEL_FILE), ..output };
        assert!(message(file.begin()).contains(MODEL_FILE));
        assert!(message(file.models(model(), None)).contains(MODEL_FILE));
        assert_eq!(std::fs::read(&file.folder).unwrap(), before);
    }
}
