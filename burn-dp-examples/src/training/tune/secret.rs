//! The secret state of a search: the number of runs, their options, and their scores.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp_accountant::search::PrivateSearch;
use burn_dp_accountant::{DpEvent, strict_json};
use serde::{Deserialize, Serialize};

use super::TuneOptions;
use crate::training::checksum::checksum;
use crate::training::options::typed;
use crate::training::output::{keep_ledger, remove_results};
use crate::training::place::{SEARCH_STATE, search_folder};
use crate::training::progress::counted;
use crate::training::settings_text::differences;
use crate::training::{
    AVERAGED_MODEL_FILE, Checkpoints, EarlierLedgers, MODEL_FILE, TrainError, files,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// The options of the search, which a resumed search must share, by name.
    options: BTreeMap<String, String>,
    /// The checksum of its data, which a resumed search must share too.
    data: String,
    /// The options of each run.
    runs: Vec<Vec<String>>,
    /// The score of each run, once it is complete.
    scores: Vec<Option<f64>>,
    /// The checksums of the models of each run, by file, once it is complete.
    #[serde(default)]
    models: BTreeMap<usize, BTreeMap<String, String>>,
    /// Whether everything is released, so that only the deletion remains.
    #[serde(default)]
    is_released: bool,
}

/// A search in progress.
pub(super) struct Search {
    folder: PathBuf,
    content: Content,
}

impl Search {
    /// Draws the number of runs and the options of each, and stores them before the first run; or
    /// continues the search of the output folder.
    ///
    /// # Arguments
    ///
    /// - `data`: a checksum of the examples, whose runs must have one distribution
    ///
    /// # Privacy
    ///
    /// Keys, scores, the checksum and unreleased models are in a folder of the user alone, next to
    /// the output folder, which may be published.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if there is an unfinished search that is not resumed, if
    /// there is none to resume, or if its options or its data differ, and [`TrainError::Io`] if the
    /// folder of the search has other files.
    pub(super) fn open(
        options: &TuneOptions,
        noise_multiplier: f64,
        earlier: &EarlierLedgers,
        data: &str,
        candidates: &[Vec<String>],
    ) -> Result<Self, TrainError> {
        let folder = search_folder(&options.output)?;
        let path = folder.join(SEARCH_STATE);
        let settings = settings(options, noise_multiplier, earlier)?;
        let found = match std::fs::read(&path) {
            Ok(bytes) => Ok(strict_json::read(&bytes).map_err(|error| TrainError::Record {
                path: path.clone(),
                reason: format!(
                    "is damaged or of another version of the program ({error}); restore it from a \
                     backup, or delete {} and begin a new search: what this one spent stays spent",
                    folder.display()
                ),
            })?),
            Err(error) => Err(error),
        };
        if let Ok(content @ Content { is_released: true, .. }) = &found {
            // It was interrupted while it deleted secret files.
            Self { folder, content: content.clone() }.remove()?;
            if options.resume {
                let reason = format!(
                    "finds a search that has ended; its results are in {}",
                    options.output.display()
                );
                return Err(TrainError::option("--resume", reason));
            }
            return Self::open(options, noise_multiplier, earlier, data, candidates);
        }
        match (found, options.resume) {
            (Ok(content), true) => {
                let differences = differences(&content.options, &settings);
                if !differences.is_empty() {
                    let reason = format!(
                        "continues a search with unchanged options, but {}; repeat the former \
                         options, or begin a new search in another --output",
                        differences.join(", ")
                    );
                    return Err(TrainError::option("--resume", reason));
                }
                if content.data != data {
                    let reason = "continues a search on the data that it began with: the same \
                                  records in the same order";
                    return Err(TrainError::option("--resume", reason));
                }
                Ok(Self { folder, content })
            }
            (Ok(_), false) => {
                let reason = format!(
                    "{} has an unfinished search; add --resume, or give another folder: a new \
                     search spends a budget of its own",
                    options.output.display()
                );
                Err(TrainError::option("--output", reason))
            }
            (Err(error), resume) if error.kind() == std::io::ErrorKind::NotFound => {
                if resume {
                    let reason = format!("{} has no unfinished search", options.output.display());
                    return Err(TrainError::option("--resume", reason));
                }
                let search = PrivateSearch::new(DpEvent::gaussian(1.0), options.run_count());
                let number = search.and_then(|search| search.draw_runs()).map_err(DpError::from)?;
                let draw = |_| {
                    let index = PrivateSearch::draw_candidate(candidates.len());
                    Ok(candidates[index.map_err(DpError::from)?].clone())
                };
                let runs = (0..number).map(draw).collect::<Result<Vec<_>, TrainError>>()?;
                let scores = vec![None; runs.len()];
                let data = data.to_string();
                let content = Content {
                    options: settings,
                    data,
                    runs,
                    scores,
                    models: BTreeMap::new(),
                    is_released: false,
                };
                let search = Self { folder, content };
                make_private_folder(&search.folder)?;
                // Before the search is stored: one that is resumed finds no ledger but its own.
                keep_ledger(&options.output)?;
                search.store()?;
                Ok(search)
            }
            (Err(source), _) => Err(TrainError::Io { path, source }),
        }
    }

    fn store(&self) -> Result<(), TrainError> {
        files::write_json(&self.folder.join(SEARCH_STATE), &self.content)
    }

    /// Returns the next run and its options.
    pub(super) fn next(&self) -> Option<(usize, Vec<String>)> {
        let index = self.content.scores.iter().position(Option::is_none)?;
        Some((index, self.content.runs[index].clone()))
    }

    /// Returns the options of a run.
    pub(super) fn candidate(&self, index: usize) -> &[String] {
        &self.content.runs[index]
    }

    /// Returns the folder of a run.
    pub(super) fn folder(&self, index: usize) -> PathBuf {
        self.folder.join(format!("run-{index}"))
    }

    /// Stores the score of a run, and the checksums of its models.
    pub(super) fn finish(&mut self, index: usize, score: f64) -> Result<(), TrainError> {
        self.content.models.insert(index, self.checksums(index)?);
        self.content.scores[index] = Some(score);
        self.store()
    }

    fn checksums(&self, index: usize) -> Result<BTreeMap<String, String>, TrainError> {
        let mut found = BTreeMap::new();
        for name in [MODEL_FILE, AVERAGED_MODEL_FILE] {
            let path = self.folder(index).join(name);
            match std::fs::read(&path) {
                Ok(bytes) => {
                    found.insert(name.to_string(), blake3::hash(&bytes).to_string());
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(TrainError::Io { path, source }),
            }
        }
        Ok(found)
    }

    /// Checks that the models of a run, whose release is the result of the search, are those that
    /// it wrote.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if they are damaged or missing.
    pub(super) fn check_models(&self, index: usize) -> Result<(), TrainError> {
        let found = self.checksums(index)?;
        if self.content.models.get(&index) == Some(&found) && found.contains_key(MODEL_FILE) {
            return Ok(());
        }
        Err(TrainError::Record {
            path: self.folder(index),
            reason: "a model of the run to release is missing or damaged; restore the folder from \
                     a backup and add --resume, or begin a new search in another --output: what \
                     this one spent stays spent"
                .into(),
        })
    }

    /// Returns the first run with the best score; `None` if there was no run.
    pub(super) fn best(&self) -> Option<(usize, f64)> {
        let scores = self.content.scores.iter().enumerate();
        let scores = scores.filter_map(|(index, score)| Some((index, (*score)?)));
        scores.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    /// Removes the search and its runs, because unreleased results must not remain. Files of others
    /// are kept, and then the folders that contain them.
    pub(super) fn remove(mut self) -> Result<(), TrainError> {
        self.content.is_released = true;
        self.store()?;
        (0..self.content.runs.len()).try_for_each(|index| remove_run(&self.folder(index)))?;
        files::remove_incomplete(&self.folder)?;
        // This file is deleted last, so that the deletion can be continued until then.
        files::remove(&self.folder.join(SEARCH_STATE))?;
        remove_empty(&self.folder)
    }
}

/// Removes everything that a run wrote: its checkpoints, its results and its key.
fn remove_run(folder: &Path) -> Result<(), TrainError> {
    if folder.is_dir() {
        Checkpoints::new(folder, &())?.remove()?;
        remove_results(folder)?;
        remove_empty(folder)?;
    }
    files::remove(&Checkpointer::new(folder).key_file()?)
}

/// Removes a folder, unless it contains files of others.
fn remove_empty(folder: &Path) -> Result<(), TrainError> {
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed.map_err(|source| TrainError::Io { path: folder.into(), source }),
    }
}

/// Creates a folder that only its owner can read.
fn make_private_folder(path: &Path) -> Result<(), TrainError> {
    let io = |source| TrainError::Io { path: path.into(), source };
    if path.exists() {
        // A killed process left it without a search; a folder with files of others is kept.
        files::remove_incomplete(path)?;
        std::fs::remove_dir(path).map_err(io)?;
    }
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(io)
}

/// Returns the options of a search and of its runs, by name.
fn settings(
    options: &TuneOptions,
    noise_multiplier: f64,
    earlier: &EarlierLedgers,
) -> Result<BTreeMap<String, String>, TrainError> {
    let own = [
        ("--choose", options.choose.join("; ")),
        ("--runs", typed(options.runs)),
        ("--mean-runs", options.mean_runs.to_string()),
        ("--epsilon", options.epsilon.to_string()),
        ("--delta", options.delta.to_string()),
        ("the noise multiplier of a run", noise_multiplier.to_string()),
    ];
    let shape = options.shape.map(|shape| ("--shape", shape.to_string()));
    let ledgers = earlier.to_json()?;
    let number = counted(ledgers.len(), "ledger");
    let compared = || format!("{number} of checksum {}", &checksum(&ledgers)[..16]);
    let ledgers = (!ledgers.is_empty()).then(|| ("--earlier-ledger", compared()));
    let given = options.given()?;
    let of_runs = given.iter().map(|(name, value)| match (name, value) {
        ("--dataset", _) => ("the data set", value.to_string()),
        (_, "") => (name, "set".to_string()),
        _ => (name, value.to_string()),
    });
    let all = own.into_iter().chain(shape).chain(ledgers).chain(of_runs);
    Ok(all.map(|(name, value)| (name.to_string(), value)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::nn::LinearConfig;
    use burn::optim::SgdConfig;
    use burn::tensor::Device;
    use burn_dp::optim::PrivacyPlanConfig;
    use clap::Parser;

    use super::*;
    use crate::training::{
        FIGURES_FILE, LEDGER_FILE, STATEMENT_JSON, STATEMENT_TEXT, TRAINING_PLOT,
    };

    fn options(output: &std::path::Path, more: &[&str]) -> TuneOptions {
        let words = ["tune", "--choose", "lr=1,2", "--output", output.to_str().unwrap()];
        TuneOptions::try_parse_from(words.iter().chain(more)).unwrap()
    }

    fn open(options: &TuneOptions, noise_multiplier: f64) -> Result<Search, TrainError> {
        let candidates = [vec!["--lr=1".into()], vec!["--lr=2".into()]];
        Search::open(options, noise_multiplier, &EarlierLedgers::default(), "data", &candidates)
    }

    #[test]
    fn an_interrupted_search_continues_with_its_draws() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let resume = options(&output, &["--resume"]);
        let error = open(&resume, 2.0).err().unwrap().to_string();
        assert!(error.contains("no unfinished search"), "{error}");
        let new = options(&output, &[]);
        let mut first = open(&new, 2.0).unwrap();
        assert_eq!(first.next().unwrap().0, 0);
        first.finish(0, 0.5).unwrap();
        let content = first.content.clone();
        drop(first);
        // A new search would draw again.
        let error = open(&new, 2.0).err().unwrap().to_string();
        assert!(error.contains("unfinished search") && error.contains("--resume"), "{error}");
        let error = open(&resume, 3.0).err().unwrap().to_string();
        assert!(error.contains("but the noise multiplier of a run was 2 and is now 3;"), "{error}");
        let more = ["--resume", "--epsilon", "2", "--", "mnist", "--mirror", "--steps=5"];
        let error = open(&options(&output, &more), 2.0).err().unwrap().to_string();
        let expected = "but --epsilon was 3 and is now 2, --mirror was not set and is now set, \
                        --steps was not set and is now 5, the data set was not set and is now \
                        mnist; repeat";
        assert!(error.contains(expected), "{error}");
        let other = [vec!["--lr=1".into()], vec!["--lr=2".into()]];
        let error = Search::open(&resume, 2.0, &EarlierLedgers::default(), "other", &other);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("on the data that it began with"), "{error}");
        let second = open(&resume, 2.0).unwrap();
        assert_eq!(second.content, content);
        second.remove().unwrap();
        assert!(!search_folder(&output).unwrap().exists());

        // An interrupted deletion is completed, whatever comes next.
        let half_deleted = || {
            let mut search = open(&new, 2.0).unwrap();
            files::make_folder(&search.folder(0)).unwrap();
            search.content.is_released = true;
            search.store().unwrap();
        };
        half_deleted();
        let error = open(&resume, 2.0).err().unwrap().to_string();
        assert!(error.contains("a search that has ended"), "{error}");
        assert!(!search_folder(&output).unwrap().exists());
        half_deleted();
        let search = open(&new, 2.0).unwrap();
        assert!(!search.folder(0).exists() && !search.content.is_released);
    }

    #[test]
    fn a_search_of_another_version_is_named_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        open(&options(&output, &[]), 2.0).unwrap();
        let path = search_folder(&output).unwrap().join(SEARCH_STATE);
        let content = std::fs::read_to_string(&path).unwrap();
        let other = r#"{"options": ["lr=1,2", "8"], "runs": [], "scores": []}"#;
        let repeated = content.replacen("{", r#"{"data": "x","#, 1);
        for damaged in [&content[..content.len() / 2], other, &repeated] {
            std::fs::write(&path, damaged).unwrap();
            let error = open(&options(&output, &["--resume"]), 2.0).err().unwrap().to_string();
            assert!(error.contains("search.json: is damaged or of another version"), "{error}");
            assert!(error.contains("restore it from a backup, or delete"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
        }
    }

    // Sharp edge: the output folder of an interrupted search is published.
    #[test]
    fn keys_and_secrets_of_a_search_are_outside_of_the_output_folder() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.v1");
        let secret = folder.path().join("out.v1.search");
        // From a process that was killed while it wrote its first file.
        files::make_folder(&secret).unwrap();
        std::fs::write(secret.join(".burn-dp-incomplete-x1"), "{").unwrap();
        let search = open(&options(&output, &[]), 2.0).unwrap();
        assert!(!output.exists() && secret.join(SEARCH_STATE).exists());
        let key = Checkpointer::new(search.folder(0)).key_file().unwrap();
        assert_eq!(key.parent().unwrap(), secret);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        std::fs::write(&key, "the key").unwrap();
        files::make_folder(&search.folder(0)).unwrap();
        search.remove().unwrap();
        assert!(!secret.exists());
        // What somebody put there during the search is kept.
        let search = open(&options(&output, &[]), 2.0).unwrap();
        std::fs::write(&key, "the key").unwrap();
        // No search has that many runs.
        let others = ["notes.txt", "run-.key", "run-123456789", "run-best"];
        others.iter().for_each(|name| files::make_folder(&secret.join(name)).unwrap());
        search.remove().unwrap();
        let left = std::fs::read_dir(&secret).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, others.map(std::ffi::OsString::from));
        std::fs::remove_dir_all(&secret).unwrap();
        // A folder of others is not the folder of a search, which is deleted at its end.
        files::make_folder(&secret.join("of others")).unwrap();
        assert!(open(&options(&output, &[]), 2.0).is_err());
        assert!(secret.join("of others").exists());
    }

    #[test]
    fn everything_of_a_run_is_removed_and_files_of_others_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let search = open(&options(&folder.path().join("out"), &[]), 2.0).unwrap();
        let run = search.folder(0);
        let checkpoints = Checkpoints::new(&run, &()).unwrap();
        let plan = PrivacyPlanConfig::new(20, 5.0).with_steps(9).with_noise_multiplier(1.0);
        let optim = plan.init().unwrap().optimizer(SgdConfig::new().init());
        let model = LinearConfig::new(1, 1).init(&Device::flex().autodiff());
        checkpoints.begin(&model, &optim).unwrap();
        drop(optim);
        let results = [
            MODEL_FILE,
            AVERAGED_MODEL_FILE,
            STATEMENT_JSON,
            STATEMENT_TEXT,
            LEDGER_FILE,
            "ledger-1.json",
            "ledger-2.json",
            TRAINING_PLOT,
            FIGURES_FILE,
            ".burn-dp-incomplete-x1",
        ];
        let others = ["checkpoints/notes.txt", "ledger-best.json", "model.safetensors"];
        for name in results.iter().chain(&others) {
            std::fs::write(run.join(name), name).unwrap();
        }
        let (secret, key) = (search.folder.clone(), Checkpointer::new(&run).key_file().unwrap());
        assert!(key.exists());
        search.remove().unwrap();
        let names = |folder: &Path| {
            let found = std::fs::read_dir(folder).unwrap();
            let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
            let mut names: Vec<String> = found.map(|entry| name(entry.unwrap())).collect();
            names.sort();
            names
        };
        assert_eq!(names(&secret), ["run-0"]);
        assert_eq!(names(&run), ["checkpoints", others[1], others[2]]);
        assert_eq!(names(&run.join("checkpoints")), ["notes.txt"]);
        for name in others {
            assert_eq!(std::fs::read_to_string(run.join(name)).unwrap(), name);
        }
    }

    #[test]
    fn the_first_of_the_best_runs_is_released() {
        let content = Content {
            options: BTreeMap::new(),
            data: String::new(),
            runs: vec![Vec::new(); 4],
            scores: vec![Some(0.1), Some(0.7), Some(0.7), Some(0.2)],
            models: BTreeMap::new(),
            is_released: false,
        };
        let mut search = Search { folder: PathBuf::new(), content };
        assert_eq!(search.best(), Some((1, 0.7)));
        search.content.scores.clear();
        assert_eq!(search.best(), None);
    }
}
