//! Checkpoints of an interrupted private run, and its resumption.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn_dp::checkpoint::{Checkpoint, Checkpointer};
use burn_dp::optim::{DpOptimizer, PrivacyPlan};
use burn_dp_accountant::strict_json;
use serde::{Deserialize, Serialize};

use super::checksum::{checksum, settings_key};
use super::settings_text::{compared, differences};
use super::{TrainError, files};

/// Folder in the output folder. The run's files in it are deleted when the run has ended. The key
/// is next to the output folder, which may be published.
const FOLDER: &str = "checkpoints";

/// The setting with a checksum of the private data: it is never stored in plain form.
const CHECKSUM: &str = "the checksum of the data";

/// The settings that a resumed run must share, by option.
const SETTINGS_FILE: &str = "settings.json";

/// The program name in the settings file.
const PROGRAM: &str = "burn-dp-examples";

/// The start of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Start {
    /// At its first step.
    #[default]
    First,
    /// At its last checkpoint. The steps lost since then are repeated bit for bit.
    Resume,
    /// After its last released step, with the model of the last checkpoint: for steps that cannot
    /// be repeated bit for bit.
    SkipLostSteps,
}

/// The stored form of the settings. A file without the program's name was written by another
/// program.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    program: String,
    settings: BTreeMap<String, String>,
}

/// The checkpoints of one run.
///
/// # Privacy
///
/// A resumed run repeats the steps after its checkpoint with the same draws and the same noise.
/// With another learning rate, for example, the difference of the two results would have no noise.
/// All settings are therefore compared, not only those that ε depends on.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    settings: BTreeMap<String, String>,
    checkpointer: Checkpointer,
    start: Start,
}

impl Checkpoints {
    /// Creates the checkpoints of a run.
    ///
    /// # Arguments
    ///
    /// - `output`: the output folder
    /// - `settings`: the settings that the steps depend on, by option
    pub fn new(output: &Path, settings: &impl Serialize) -> Result<Self, TrainError> {
        let folder = output.join(FOLDER);
        Ok(Self {
            settings: compared(settings)?,
            checkpointer: Self::checkpointer(output)?,
            folder,
            start: Start::First,
        })
    }

    fn checkpointer(output: &Path) -> Result<Checkpointer, TrainError> {
        let key = Checkpointer::new(output).key_file()?;
        Ok(Checkpointer::new(output.join(FOLDER)).with_key_file(key))
    }

    /// Returns checkpoints that are resumed on the same private data only.
    pub fn with_data(mut self, data: &(impl Hash + ?Sized)) -> Self {
        self.settings.insert(CHECKSUM.into(), checksum(data));
        self
    }

    /// Sets where the run starts.
    pub fn with_start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// Returns the optimizer and the model of the last checkpoint, or of the beginning.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if there is something to resume and the run starts at its
    /// first step, or vice versa, if a setting differs from the interrupted run, or if another
    /// program wrote the file of the settings; and [`TrainError::Privacy`] if the checkpoint is
    /// rejected.
    pub fn begin_or_resume<M: Module>(
        &self,
        plan: PrivacyPlan,
        inner: ModuleOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), TrainError> {
        if self.start != Start::First {
            return self.resume(plan, inner, model);
        }
        self.refuse_interrupted_run()?;
        self.saved()?;
        Ok((plan.optimizer(inner), model))
    }

    /// Checks that ordinary training does not write into the folder of an interrupted private run.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if it does, and [`TrainError::Privacy`] if the folder cannot
    /// be read.
    pub fn refuse_in(output: &Path) -> Result<(), TrainError> {
        if !Self::are_in(output)? {
            return Ok(());
        }
        let reason = format!(
            "{} holds a private run that has not ended; give another folder",
            output.display()
        );
        Err(TrainError::option("--output", reason))
    }

    /// Returns whether a run with this output folder was interrupted after a checkpoint.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the folder cannot be read.
    pub fn are_in(output: &Path) -> Result<bool, TrainError> {
        Ok(Self::checkpointer(output)?.latest()?.is_some())
    }

    /// Checks that no other run was interrupted in the folder: its checkpoints would mix with the
    /// new ones.
    fn refuse_interrupted_run(&self) -> Result<(), TrainError> {
        match self.checkpointer.latest()? {
            None => Ok(()),
            Some(_) if self.checkpointer.is_in_use() => {
                let reason = format!(
                    "{} holds a run that another process trains; give another folder",
                    self.folder.display()
                );
                Err(TrainError::option("--output", reason))
            }
            Some(_) => {
                let key = self.checkpointer.key_file()?;
                let reason = format!(
                    "must be given, because {} holds an interrupted run; or give another --output, \
                     or delete that folder and {}: what that run released stays spent",
                    self.folder.display(),
                    key.display()
                );
                Err(TrainError::option("--resume", reason))
            }
        }
    }

    fn resume<M: Module>(
        &self,
        plan: PrivacyPlan,
        inner: ModuleOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), TrainError> {
        let checkpoint = self.latest()?;
        // The checksum of the data is stored under the key.
        checkpoint.verify()?;
        let is_compared = self.compare_settings()?;
        let checkpoint = match self.start {
            Start::SkipLostSteps => checkpoint.skip_lost_steps(),
            Start::First | Start::Resume => checkpoint,
        };
        let (optim, model) = checkpoint.restore(plan, inner, model)?;
        // Before its first release a run that was killed may have no checksum, and needs none.
        if !is_compared && optim.plan().own_releases(&optim.ledger()) > 0 {
            return Err(self.damaged_settings());
        }
        Ok((optim, model))
    }

    fn latest(&self) -> Result<Checkpoint, TrainError> {
        self.checkpointer.latest()?.ok_or_else(|| {
            let reason = format!(
                "finds no checkpoint in {}: that run has ended, or was interrupted before its \
                 first step; leave --resume out to begin",
                self.folder.display()
            );
            TrainError::option("--resume", reason)
        })
    }

    /// Returns whether everything was compared: `false` if the checksum of the data is missing.
    fn compare_settings(&self) -> Result<bool, TrainError> {
        let Ok(Some(mut saved)) = self.saved() else { return Err(self.damaged_settings()) };
        let mut settings = self.publishable()?;
        let is_compared = settings.keys().all(|name| saved.contains_key(name));
        // Without a key there is nothing to repeat.
        if !(saved.contains_key(CHECKSUM) && settings.contains_key(CHECKSUM)) {
            saved.remove(CHECKSUM);
            settings.remove(CHECKSUM);
        }
        let differences = differences(&saved, &settings);
        if differences.is_empty() {
            return Ok(is_compared);
        }
        let same = match saved.get(CHECKSUM) == settings.get(CHECKSUM) {
            true => "",
            false => ": the same records in the same order",
        };
        let reason = format!(
            "continues a run with unchanged settings, but {}; give the former {}{same}, or begin \
             a new run in another --output",
            differences.join(", "),
            if differences.len() == 1 { "value" } else { "values" }
        );
        Err(TrainError::option("--resume", reason))
    }

    fn damaged_settings(&self) -> TrainError {
        let reason = format!(
            "compares the settings with {}, which is missing, damaged or of another program; \
             restore the file from a backup, or begin a new run in another --output: what the \
             interrupted run released stays spent",
            self.settings_file().display()
        );
        TrainError::option("--resume", reason)
    }

    fn settings_file(&self) -> PathBuf {
        self.folder.join(SETTINGS_FILE)
    }

    /// Returns the settings of the interrupted run in an output folder, if there is one.
    pub(super) fn settings_in(output: &Path) -> Option<BTreeMap<String, String>> {
        let bytes = std::fs::read(output.join(FOLDER).join(SETTINGS_FILE)).ok()?;
        let saved: Saved = strict_json::read(&bytes).ok()?;
        (saved.program == PROGRAM).then_some(saved.settings)
    }

    /// Returns the settings of the run that wrote the file, if there is one.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if another program wrote the file.
    fn saved(&self) -> Result<Option<BTreeMap<String, String>>, TrainError> {
        let path = self.settings_file();
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| TrainError::Io { path: path.clone(), source })?,
        };
        let saved: Option<Saved> = strict_json::read(&bytes).ok();
        match saved.filter(|saved| saved.program == PROGRAM) {
            Some(saved) => Ok(Some(saved.settings)),
            None => {
                let reason = format!(
                    "needs a place for the settings of the run, but {} is damaged or of another \
                     program; move that file away, or give another --output",
                    path.display()
                );
                Err(TrainError::option("--output", reason))
            }
        }
    }

    /// Writes the settings of the run and its first checkpoint, so that every release is in the log
    /// on disk before it takes place.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if another program wrote the file of the settings, and
    /// [`TrainError::Io`] and [`TrainError::Privacy`] if a file cannot be written.
    pub fn begin<M: Module>(&self, model: &M, optim: &DpOptimizer) -> Result<(), TrainError> {
        files::make_folder(&self.folder)?;
        files::remove_incomplete(&self.folder)?;
        self.saved()?;
        // The run is resumed from its checkpoint, if there is one. Without, a key that is there is
        // the one of an earlier run, and the first checkpoint replaces it.
        if self.checkpointer.latest()?.is_none() {
            let mut settings = self.settings.clone();
            settings.retain(|name, _| !is_private(name));
            self.write_settings(settings)?;
            self.save(model, optim)?;
        }
        self.write_settings(self.publishable()?)
    }

    fn write_settings(&self, settings: BTreeMap<String, String>) -> Result<(), TrainError> {
        let saved = Saved { program: PROGRAM.into(), settings };
        files::write_json(&self.settings_file(), &saved)
    }

    /// Returns the settings in the form that is stored in a folder that may be published: values
    /// that depend on the private data are hashed with the key of the run, and left out while there
    /// is no key.
    fn publishable(&self) -> Result<BTreeMap<String, String>, TrainError> {
        let mut settings = self.settings.clone();
        let key = settings_key(self.checkpointer.key_file()?)?;
        match key {
            None => settings.retain(|name, _| !is_private(name)),
            Some(key) => {
                for (_, value) in settings.iter_mut().filter(|(name, _)| is_private(name)) {
                    *value = blake3::keyed_hash(&key, value.as_bytes()).to_hex()[..16].to_string();
                }
            }
        }
        Ok(settings)
    }

    /// Saves a checkpoint and replaces the last one.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if it cannot be written; the last one is then kept.
    pub fn save<M: Module>(&self, model: &M, optim: &DpOptimizer) -> Result<(), TrainError> {
        Ok(self.checkpointer.save(model, optim)?)
    }

    /// Deletes the files of the run. Other files in the folder are kept.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] and [`TrainError::Privacy`] if a file cannot be deleted.
    pub fn remove(self) -> Result<(), TrainError> {
        let (settings, is_ours) = (self.settings_file(), matches!(self.saved(), Ok(Some(_))));
        self.checkpointer.remove_run()?;
        // After the checkpoints, because a run that is killed before is resumed with its settings.
        if is_ours {
            files::remove(&settings)?;
        }
        // Fails if the folder has other files.
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }
}

/// Returns whether a setting depends on the private data.
fn is_private(name: &str) -> bool {
    name == CHECKSUM
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::Device;
    use burn_dp::optim::PrivacyPlanConfig;
    use burn_dp::updates::UnitUpdate;
    use burn_dp_accountant::{
        DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, UnitOfPrivacy,
    };

    use super::*;
    use crate::training::TrainOptions;
    use crate::training::individual::IndividualSettings;

    /// A run without a step.
    fn new_run() -> (Linear, DpOptimizer) {
        let plan = PrivacyPlanConfig::new(20, 5.0).with_steps(9).with_noise_multiplier(1.0);
        let model = LinearConfig::new(1, 1).init(&Device::flex().autodiff());
        (model, plan.init().unwrap().optimizer(SgdConfig::new().init()))
    }

    fn begin(checkpoints: &Checkpoints) {
        let (model, optim) = new_run();
        checkpoints.begin(&model, &optim).unwrap();
    }

    #[test]
    fn the_folder_of_a_run_in_progress_is_not_called_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let checkpoints = checkpoints(&output, "");
        let (model, optim) = new_run();
        checkpoints.begin(&model, &optim).unwrap();
        let error = checkpoints.refuse_interrupted_run().unwrap_err().to_string();
        assert!(error.contains("a run that another process trains; give another"), "{error}");
        drop(optim);
        let error = checkpoints.refuse_interrupted_run().unwrap_err().to_string();
        assert!(error.contains("holds an interrupted run"), "{error}");
        let error = Checkpoints::refuse_in(&output).unwrap_err().to_string();
        assert!(error.contains("holds a private run that has not ended"), "{error}");
        checkpoints.remove().unwrap();
        Checkpoints::refuse_in(&output).unwrap();
    }

    fn checkpoints(output: &Path, line: &str) -> Checkpoints {
        let words = ["train"].into_iter().chain(line.split_whitespace());
        let options = TrainOptions::read(words).unwrap();
        Checkpoints::new(output, &IndividualSettings::new(options, None).unwrap()).unwrap()
    }

    #[test]
    fn every_setting_that_differs_is_named_with_both_values() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let begun = checkpoints(&output, "--lr 0.5 --epsilon 2");
        begin(&begun);
        assert!(begun.compare_settings().is_ok());
        for (line, expected) in [
            ("--lr 0.25 --epsilon 2", "--lr was 0.5 and is now 0.25"),
            ("--lr 0.5 --epsilon 3", "--epsilon was 2 and is now 3"),
            ("--lr 0.5 --epsilon 2 --seed 7", "--seed was 0 and is now 7"),
            ("--lr 0.5 --noise-multiplier 1", "--epsilon was 2 and is now not set"),
            ("--lr 0.5 --epsilon 2 --steps 5", "--epochs was"),
            ("--lr 0.5 --epsilon 2 --steps 5", "--steps was not set and is now 5"),
            (
                "--lr 1 --epsilon 3",
                "but --epsilon was 2 and is now 3, --lr was 0.5 and is now 1; give the former \
                 values",
            ),
        ] {
            let other = checkpoints(&output, line);
            let error = other.compare_settings().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_part_of_a_setting_is_compared_by_itself() {
        let layers = serde_json::json!({ "a": 1, "b": "c" });
        let settings = serde_json::json!({ "lr": 1.0, "a list": ["x", "y"], "layers": layers });
        let text = compared(&settings).unwrap();
        let expected =
            [("--layers, a", "1"), ("--layers, b", "c"), ("--lr", "1"), ("a list", "x,y")];
        assert!(text.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
    }

    #[test]
    fn settings_that_are_missing_or_damaged_are_named_at_a_resume() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(&folder.path().join("out"), "");
        begin(&checkpoints);
        let path = checkpoints.settings_file();
        let content = std::fs::read_to_string(&path).unwrap();
        // The last of two values would be the one that is compared.
        let repeated = content.replace("\"--lr\": ", "\"--lr\": \"9\", \"--lr\": ");
        let unknown = content.replacen('{', "{\"x\": 1,", 1);
        assert!(repeated != content && unknown != content);
        let cut = &content[..content.len() / 2];
        for damaged in [Some(cut), Some(&repeated), Some(&unknown), None] {
            match damaged {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let error = checkpoints.compare_settings().unwrap_err().to_string();
            assert!(error.starts_with("--resume compares the settings with"), "{error}");
            assert!(error.contains("settings.json") && error.contains("backup"), "{error}");
        }
    }

    #[test]
    fn nothing_to_resume_is_reported_with_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(&folder.path().join("out"), "");
        std::fs::create_dir_all(&checkpoints.folder).unwrap();
        let error = checkpoints.latest().unwrap_err().to_string();
        assert!(error.contains("finds no checkpoint in") && error.contains(FOLDER), "{error}");
        assert!(checkpoints.refuse_interrupted_run().is_ok());
    }

    /// A run whose checkpoints were lost after `steps` steps.
    fn abandoned(output: &Path, steps: u64) -> Checkpoints {
        let checkpoints = checkpoints(output, "");
        std::fs::create_dir_all(&checkpoints.folder).unwrap();
        let (model, optim) = new_run();
        let log = checkpoints.folder.join("releases.log");
        take_steps(model, optim.with_release_log(log).unwrap(), steps);
        checkpoints
    }

    fn take_steps(mut model: Linear, mut optim: DpOptimizer, steps: u64) {
        let sampler = optim.plan().sampler().unwrap();
        for step in 0..steps {
            let draw = sampler.draw(step).unwrap();
            let zero = |_: Linear, _: usize| Ok(UnitUpdate::zero());
            optim.unit_updates(&model, &draw, zero).unwrap();
            model = optim.step(0.1, model, draw).unwrap();
        }
    }

    #[test]
    fn a_run_begins_where_one_was_killed_before_its_first_release_and_not_after() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = abandoned(&folder.path().join("before"), 0);
        checkpoints.refuse_interrupted_run().unwrap();
        begin(&checkpoints);
        assert!(checkpoints.latest().is_ok());

        let checkpoints = abandoned(&folder.path().join("after"), 2);
        for error in
            [checkpoints.refuse_interrupted_run().unwrap_err(), checkpoints.latest().unwrap_err()]
        {
            let error = error.to_string();
            assert!(error.contains("releases.log") && error.contains("2 releases"), "{error}");
            assert!(error.contains("backup") && error.contains("new run"), "{error}");
        }
    }

    #[test]
    fn only_what_the_run_stored_is_deleted_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let checkpoints = checkpoints(&output, "");
        // From a process that was killed while it wrote the settings.
        std::fs::create_dir_all(&checkpoints.folder).unwrap();
        std::fs::write(checkpoints.folder.join(".burn-dp-incomplete-x1"), "{").unwrap();
        begin(&checkpoints);
        assert!(folder.path().join("out.key").exists());
        // From other tools and people.
        let foreign = ["checkpoint-500/weights", "partial-results/a", "notes.txt"];
        for name in foreign {
            let path = checkpoints.folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let left = checkpoints.folder.clone();
        checkpoints.remove().unwrap();
        for name in foreign {
            assert_eq!(std::fs::read_to_string(left.join(name)).unwrap(), name);
            std::fs::remove_file(left.join(name)).unwrap();
        }
        assert_eq!(std::fs::read_dir(&left).unwrap().count(), 2);
        assert!(!folder.path().join("out.key").exists());
    }

    #[test]
    fn a_checksum_of_private_data_is_stored_under_the_key_of_the_run_alone() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let of = |checksum: u32| {
            let settings = serde_json::json!({ CHECKSUM: checksum, "lr": 0.5 });
            Checkpoints::new(&output, &settings).unwrap()
        };
        let (model, optim) = new_run();
        of(3_141_592_653).begin(&model, &optim).unwrap();
        let stored = std::fs::read_to_string(output.join("checkpoints/settings.json")).unwrap();
        assert!(stored.contains(CHECKSUM) && !stored.contains("3141592653"), "{stored}");
        of(3_141_592_653).compare_settings().unwrap();
        let error = of(3_141_592_654).compare_settings().unwrap_err().to_string();
        assert!(error.contains(CHECKSUM) && error.contains("give the former value"), "{error}");
        assert!(!error.contains("314159"), "{error}");
        // A finished run has no key, or was killed while it erased it, and repeats nothing.
        let key = folder.path().join("out.key");
        let mut bytes = std::fs::read(&key).unwrap();
        for erased in [10, bytes.len()] {
            bytes[..erased].fill(0);
            std::fs::write(&key, &bytes).unwrap();
            of(3_141_592_654).compare_settings().unwrap();
        }
        std::fs::remove_file(&key).unwrap();
        of(3_141_592_654).compare_settings().unwrap();
    }

    #[test]
    fn other_records_and_records_in_another_order_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let of = |data: &[u8]| checkpoints(&folder.path().join("out"), "").with_data(data);
        begin(&of(&[1, 2, 3]));
        of(&[1, 2, 3]).compare_settings().unwrap();
        for other in [&[1, 3, 2][..], &[1, 2], &[1, 2, 4]] {
            let error = of(other).compare_settings().unwrap_err().to_string();
            assert!(error.contains("the same records in the same order"), "{error}");
        }
    }

    // A process that is killed here leaves settings that its own key did not hash.
    #[test]
    fn before_the_first_checkpoint_nothing_is_stored_under_the_key_of_an_earlier_run() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(&folder.path().join("out"), "").with_data(&[1u8, 2, 3]);
        std::fs::write(folder.path().join("out.key"), "a key\n").unwrap();
        let (model, optim) = new_run();
        // The run has its log in another folder, so that its first checkpoint fails.
        let optim = optim.with_release_log(folder.path().join("elsewhere.log")).unwrap();
        checkpoints.begin(&model, &optim).unwrap_err();
        let stored = std::fs::read_to_string(checkpoints.settings_file()).unwrap();
        assert!(stored.contains("--lr") && !stored.contains(CHECKSUM), "{stored}");
    }

    // A process that is killed after its first checkpoint leaves settings without a checksum.
    #[test]
    fn a_checksum_may_be_missing_before_the_first_release_and_not_after() {
        let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
        let mut earlier = PrivacyLedger::new(header);
        earlier.record(&DpEvent::gaussian(9.0)).unwrap();
        let plan = || {
            let config = PrivacyPlanConfig::new(20, 5.0).with_steps(9).with_noise_multiplier(1.0);
            config.with_earlier_releases(earlier.clone()).init().unwrap()
        };
        let inner = || SgdConfig::new().init();
        for steps in [0, 2] {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = checkpoints(&folder.path().join("out"), "").with_data(&[1u8, 2, 3]);
            let (model, optim) = (new_run().0, plan().optimizer(inner()));
            checkpoints.begin(&model, &optim).unwrap();
            take_steps(model, optim, steps);
            let mut settings = checkpoints.saved().unwrap().unwrap();
            settings.remove(CHECKSUM).unwrap();
            checkpoints.write_settings(settings).unwrap();

            let checkpoints = checkpoints.with_start(Start::Resume);
            let resumed = checkpoints.begin_or_resume(plan(), inner(), new_run().0);
            if steps > 0 {
                let error = resumed.err().unwrap().to_string();
                assert!(error.contains("settings.json, which is missing, damaged"), "{error}");
                continue;
            }
            let (optim, model) = resumed.unwrap();
            checkpoints.begin(&model, &optim).unwrap();
            assert!(checkpoints.saved().unwrap().unwrap().contains_key(CHECKSUM));
        }
    }

    #[test]
    fn settings_of_another_program_are_neither_replaced_nor_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(&folder.path().join("out"), "");
        let path = checkpoints.settings_file();
        for foreign in ["{\"--lr\": \"1\"}", "{\"program\": \"x\", \"settings\": {}}", "not JSON"] {
            std::fs::create_dir_all(&checkpoints.folder).unwrap();
            std::fs::write(&path, foreign).unwrap();
            let (model, optim) = new_run();
            let error = checkpoints.begin(&model, &optim).unwrap_err().to_string();
            assert!(error.starts_with("--output needs a place"), "{error}");
            assert!(error.contains("settings.json") && error.contains("move that file"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
        std::fs::remove_file(&path).unwrap();
        begin(&checkpoints);
        // Written by somebody else while the run trains.
        std::fs::write(&path, "of others").unwrap();
        checkpoints.remove().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of others");
    }

    #[test]
    fn a_run_whose_deletion_is_interrupted_has_its_settings() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(folder.path(), "");
        begin(&checkpoints);
        let entries = std::fs::read_dir(&checkpoints.folder).unwrap();
        let mut names = entries.map(|entry| entry.unwrap().path());
        let checkpoint = names.find(|path| path.is_dir()).unwrap();
        std::fs::write(checkpoint.join("of others"), "").unwrap();
        let settings = checkpoints.folder.join(SETTINGS_FILE);
        checkpoints.remove().unwrap_err();
        assert!(settings.exists());
    }
}
