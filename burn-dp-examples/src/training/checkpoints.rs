//! What an interrupted private run leaves behind, and how it goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn_dp::checkpoint::{Checkpoint, Checkpointer};
use burn_dp::optim::{DpOptimizer, PrivacyPlan};

use super::options::typed;
use super::{Length, Settings, TrainError, files};

/// Folder inside the output folder. It holds the key of the run and goes when the run has ended.
const FOLDER: &str = "checkpoints";

/// The settings that a resumed run must share, by option.
const SETTINGS_FILE: &str = "settings.json";

/// The checkpoints of one run.
///
/// # Privacy
///
/// A resumed run makes the steps after its checkpoint again, with the same draws and the same noise.
/// With another learning rate, say, the two results would differ by something that no noise covers.
/// So all settings are compared, not only those that ε depends on.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    folder: PathBuf,
    settings: BTreeMap<String, String>,
    checkpointer: Checkpointer,
    /// Whether to go on behind the last step that was released.
    skip_lost_steps: bool,
}

impl Checkpoints {
    /// The checkpoints of the run with these settings.
    pub(super) fn new(settings: &Settings) -> Self {
        let skip_lost_steps = settings.skip_lost_steps;
        Self { skip_lost_steps, ..Self::of(&settings.output, compared(settings)) }
    }

    /// The checkpoints of a run with this output folder and these settings, by option.
    pub(super) fn of(output: &Path, settings: BTreeMap<String, String>) -> Self {
        let folder = output.join(FOLDER);
        Self { settings, checkpointer: Checkpointer::new(&folder), folder, skip_lost_steps: false }
    }

    /// Refuses to begin where another run was interrupted: its checkpoints would be mixed up with
    /// the new ones.
    ///
    /// # Errors
    ///
    /// [`TrainError::Option`] when there is a checkpoint, and that of [`Checkpointer::latest`] when there is none
    /// and releases are on record.
    pub(super) fn refuse_interrupted_run(&self) -> Result<(), TrainError> {
        match self.checkpointer.latest()? {
            None => Ok(()),
            Some(_) => {
                let reason = format!(
                    "must be given, because {} holds an interrupted run; or delete that folder, or \
                     give another --output",
                    self.folder.display()
                );
                Err(TrainError::option("--resume", reason))
            }
        }
    }

    /// Goes on from the last checkpoint.
    ///
    /// # Errors
    ///
    /// [`TrainError::Option`] when there is no checkpoint or a setting differs from that of the run,
    /// naming it; those of [`Checkpoint::restore`].
    pub(super) fn resume<M: Module>(
        &self,
        plan: PrivacyPlan,
        inner: ModuleOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), TrainError> {
        let checkpoint = self.latest()?;
        self.compare_settings()?;
        let checkpoint =
            if self.skip_lost_steps { checkpoint.skip_lost_steps() } else { checkpoint };
        Ok(checkpoint.restore(plan, inner, model)?)
    }

    fn latest(&self) -> Result<Checkpoint, TrainError> {
        self.checkpointer.latest()?.ok_or_else(|| {
            let reason = format!(
                "finds no checkpoint in {}: the run there has ended, or its first pass over the \
                 data had not; leave --resume out to begin",
                self.folder.display()
            );
            TrainError::option("--resume", reason)
        })
    }

    fn compare_settings(&self) -> Result<(), TrainError> {
        let path = self.folder.join(SETTINGS_FILE);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| TrainError::Io { path: path.clone(), source })?;
        let saved: BTreeMap<String, String> = serde_json::from_str(&text)
            .map_err(|error| TrainError::Record { path, reason: error.to_string() })?;
        let unset = "not set".to_string();
        let names = saved.keys().chain(self.settings.keys());
        let differs = |name: &&String| saved.get(*name) != self.settings.get(*name);
        match names.into_iter().find(differs) {
            None => Ok(()),
            Some(name) => {
                let before = saved.get(name).unwrap_or(&unset);
                let now = self.settings.get(name).unwrap_or(&unset);
                let reason = format!(
                    "continues a run with the settings it began with, but {name} was {before} and \
                     is now {now}; give the former, or begin a new run in another --output"
                );
                Err(TrainError::option("--resume", reason))
            }
        }
    }

    /// Writes the settings of the run, before its first checkpoint.
    ///
    /// # Errors
    ///
    /// When the folder or the file cannot be written.
    pub(super) fn begin(&self) -> Result<(), TrainError> {
        files::make_folder(&self.folder)?;
        files::write_json(&self.folder.join(SETTINGS_FILE), &self.settings)
    }

    /// Saves a checkpoint in place of the last one.
    ///
    /// # Errors
    ///
    /// When it cannot be written; the last one is then still there.
    pub(super) fn save<M: Module>(&self, model: &M, optim: &DpOptimizer) -> Result<(), TrainError> {
        Ok(self.checkpointer.save(model, optim)?)
    }

    /// Deletes the checkpoints, and with them the key of the run.
    ///
    /// # Errors
    ///
    /// When the folder cannot be deleted.
    pub(super) fn remove(self) -> Result<(), TrainError> {
        std::fs::remove_dir_all(&self.folder)
            .map_err(|source| TrainError::Io { path: self.folder, source })
    }
}

/// The settings that the steps of a run depend on.
fn compared(settings: &Settings) -> BTreeMap<String, String> {
    let mut compared = BTreeMap::new();
    let mut set = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            compared.insert(name.to_string(), value);
        }
    };
    set("the data set", Some(typed(settings.dataset)));
    set("--train-size", settings.train_size.map(|size| size.to_string()));
    set("--model", Some(typed(settings.model)));
    for (name, value) in settings.inputs.compared() {
        set(name, Some(value));
    }
    set("--backend", Some(typed(settings.backend)));
    set("--batch-size", Some(settings.batch_size.to_string()));
    set("--physical-batch-size", Some(settings.physical_batch_size.to_string()));
    match settings.length {
        Length::Epochs(epochs) => set("--epochs", Some(epochs.to_string())),
        Length::Steps(steps) => set("--steps", Some(steps.to_string())),
    }
    set("--optimizer", Some(typed(settings.optimizer)));
    set("--lr", Some(settings.lr.to_string()));
    set("--schedule", Some(typed(settings.schedule)));
    set("--momentum", Some(settings.momentum.to_string()));
    set("--ema-decay", settings.ema_decay.map(|decay| decay.to_string()));
    set("--seed", Some(settings.seed.to_string()));
    if let Some(privacy) = settings.privacy {
        set("--epsilon", privacy.epsilon.map(|epsilon| epsilon.to_string()));
        set("--delta", Some(format!("{:e}", privacy.delta)));
        set("--noise-multiplier", privacy.noise_multiplier.map(|sigma| sigma.to_string()));
        set("--max-grad-norm", Some(privacy.max_grad_norm.to_string()));
        set("--clipping", Some(format!("{:?}", privacy.clipping)));
        set("--insecure-seed", privacy.insecure_seed.map(|seed| seed.to_string()));
    }
    compared
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::Device;
    use burn_dp::optim::PrivacyPlanConfig;
    use burn_dp::updates::UnitUpdate;
    use clap::Parser;

    use super::*;
    use crate::training::TrainOptions;

    fn checkpoints(output: &std::path::Path, line: &str) -> Checkpoints {
        let output = ["--output".to_string(), output.display().to_string()];
        let words = line.split_whitespace().map(String::from);
        let words = ["train".to_string()].into_iter().chain(words).chain(output);
        let options = TrainOptions::try_parse_from(words).unwrap();
        Checkpoints::new(&Settings::new(options, None).unwrap())
    }

    #[test]
    fn the_first_setting_that_differs_is_named_with_both_values() {
        let folder = tempfile::tempdir().unwrap();
        let begun = checkpoints(folder.path(), "--lr 0.5 --epsilon 2");
        begun.begin().unwrap();
        assert!(begun.compare_settings().is_ok());
        for (line, expected) in [
            ("--lr 0.25 --epsilon 2", "--lr was 0.5 and is now 0.25"),
            ("--lr 0.5 --epsilon 3", "--epsilon was 2 and is now 3"),
            ("--lr 0.5 --epsilon 2 --seed 7", "--seed was 0 and is now 7"),
            ("--lr 0.5 --noise-multiplier 1", "--epsilon was 2 and is now not set"),
            ("--lr 0.5 --epsilon 2 --steps 5", "--epochs was"),
        ] {
            let other = checkpoints(folder.path(), line);
            let error = other.compare_settings().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn nothing_to_resume_is_said_with_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(folder.path(), "");
        checkpoints.begin().unwrap();
        let error = checkpoints.latest().unwrap_err().to_string();
        assert!(error.contains("finds no checkpoint in") && error.contains(FOLDER), "{error}");
        assert!(checkpoints.refuse_interrupted_run().is_ok());
    }

    /// A run that was killed during its first checkpoint, after so many steps.
    fn killed(output: &Path, steps: u64) {
        let device = Device::flex().autodiff();
        let mut model: Linear = LinearConfig::new(1, 1).init(&device);
        let plan = PrivacyPlanConfig::new(20, 5.0).with_steps(9).with_noise_multiplier(1.0);
        let plan = plan.init().unwrap();
        let sampler = plan.sampler().unwrap();
        let optim = plan.optimizer(SgdConfig::new().init());
        let mut optim = optim.with_release_log(output.join(FOLDER).join("releases.log")).unwrap();
        for step in 0..steps {
            let draw = sampler.draw(step).unwrap();
            let zero = |_: Linear, _: &usize| Ok(UnitUpdate::zero());
            optim.unit_updates(&model, draw.private_indices(), zero).unwrap();
            model = optim.step(0.1, model, draw).unwrap();
        }
    }

    #[test]
    fn a_run_begins_where_one_was_killed_before_its_first_release_and_not_after() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(folder.path(), "");
        checkpoints.begin().unwrap();
        killed(folder.path(), 0);
        checkpoints.refuse_interrupted_run().unwrap();
        let device = Device::flex().autodiff();
        let model: Linear = LinearConfig::new(1, 1).init(&device);
        let plan = PrivacyPlanConfig::new(20, 5.0).with_steps(9).with_noise_multiplier(1.0);
        let optim = plan.init().unwrap().optimizer(SgdConfig::new().init());
        checkpoints.save(&model, &optim).unwrap();
        assert!(checkpoints.latest().is_ok());

        let folder = tempfile::tempdir().unwrap();
        let checkpoints = self::checkpoints(folder.path(), "");
        checkpoints.begin().unwrap();
        killed(folder.path(), 2);
        for error in
            [checkpoints.refuse_interrupted_run().unwrap_err(), checkpoints.latest().unwrap_err()]
        {
            let error = error.to_string();
            assert!(error.contains("releases.log knows of 2 releases"), "{error}");
            assert!(error.contains("backup") && error.contains("folder of its own"), "{error}");
        }
    }

    #[test]
    fn the_folder_is_gone_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = checkpoints(folder.path(), "");
        checkpoints.begin().unwrap();
        checkpoints.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
