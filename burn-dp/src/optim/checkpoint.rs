//! Checkpoints of a private run: model, optimizer and the whole privacy state, together or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::{ModuleRecord, RecordError};
use burn::tensor::Bytes;
use burn_dp_accountant::PrivacyLedger;
use serde::{Deserialize, Serialize};

use super::{DpOptimizer, PrivacyPlan, Sparsifier};
use crate::DpError;
use crate::noise::{NoiseKey, NoiseSource};

/// Version of the format of `privacy.json`. Unknown versions are refused.
const FORMAT: u32 = 2;
const MODEL: &str = "model.bpk";
const OPTIMIZER: &str = "optimizer.bpk";
const SPARSIFIER: &str = "sparsifier.bin";
const PRIVACY: &str = "privacy.json";
const PREFIX: &str = "checkpoint-";
const PARTIAL: &str = "partial-";

/// Writes and finds the checkpoints of one run in a folder of its own.
///
/// Each checkpoint is a folder `checkpoint-STEP` with the model, the optimizer's state, that of a
/// [`Sparsifier`] if there is one, and `privacy.json`. It is written under another name and renamed when
/// it is complete, then the older ones are removed: a run that is killed at any time leaves a complete
/// checkpoint behind, or none.
///
/// # Privacy
///
/// `privacy.json` contains the key of the run, from which all noise and all draws follow. It is
/// readable by its owner alone; keep it as you keep the training data, and delete it when the run is
/// over. The steps after a checkpoint that were made before a crash are made again on resumption, with
/// the same draws. Where all is as before, so are noise and result, and nothing new is released. Where
/// anything differs, the noise is independent
/// ([`NoiseStep::bound_to`](crate::noise::NoiseStep::bound_to)): a second release, which the restored
/// ledger does not know of. Publish nothing of a run before it has ended.
#[derive(Clone, Debug)]
pub struct Checkpointer {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrivacyState {
    format: u32,
    /// Every number of the plan, by name.
    plan: BTreeMap<String, String>,
    next_step: u64,
    ledger: serde_json::Value,
    /// What the clipping policy has learned.
    clipping: serde_json::Value,
    /// The key of the run, in hexadecimal digits.
    key: String,
    /// Length and CRC-32 of the other files.
    files: BTreeMap<String, (u64, u32)>,
}

impl Checkpointer {
    /// Checkpoints in `folder`, which is created when the first one is saved.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Saves the state after the last step.
    ///
    /// # Errors
    ///
    /// [`DpError::Io`] with the file that could not be written; the previous checkpoint is then still
    /// there.
    pub fn save<M: Module>(&self, model: &M, optim: &DpOptimizer) -> Result<(), DpError> {
        fs::create_dir_all(&self.folder).map_err(|error| DpError::io(&self.folder, error))?;
        let partial = tempfile::Builder::new()
            .prefix(PARTIAL)
            .tempdir_in(&self.folder)
            .map_err(|error| DpError::io(&self.folder, error))?;

        let record = |name: &str, bytes: Result<Bytes, RecordError>| {
            bytes.map_err(|error| record_error(&partial.path().join(name), error))
        };
        let mut contents = vec![
            (MODEL, record(MODEL, model.clone().into_record().into_bytes())?),
            (OPTIMIZER, record(OPTIMIZER, optim.inner.into_bytes())?),
        ];
        if let Some(sparsifier) = &optim.sparsifier {
            contents.push((SPARSIFIER, Bytes::from_bytes_vec(sparsifier.to_bytes())));
        }
        let mut files = BTreeMap::new();
        for (name, bytes) in contents {
            let path = partial.path().join(name);
            files.insert(name.to_string(), (bytes.len() as u64, crc32fast::hash(&bytes)));
            write(&path, &bytes)?;
        }
        let path = partial.path().join(PRIVACY);
        let key = to_hex(&optim.plan.source.export_key().to_bytes()[..]);
        let json = PrivacyState {
            format: FORMAT,
            plan: optim.plan.fingerprint(),
            next_step: optim.next_step,
            ledger: parse(&path, optim.ledger.to_json()?.as_bytes())?,
            clipping: optim.plan.clipping.save_state(),
            key: key.clone(),
            files,
        };
        let json = serde_json::to_vec_pretty(&json)
            .map_err(|error| DpError::io(&path, std::io::Error::other(error)))?;
        write(&path, &json)?;

        let target = self.folder.join(format!("{PREFIX}{:020}", optim.next_step));
        if target.exists() {
            let path = target.join(PRIVACY);
            let there: PrivacyState =
                parse(&path, &fs::read(&path).map_err(|error| DpError::io(&path, error))?)?;
            if there.key == key {
                // The same step of the same run: what stands there is complete.
                return Ok(());
            }
            return Err(DpError::state(format!(
                "{} belongs to another run; give every run a folder of its own",
                target.display()
            )));
        }
        fs::rename(partial.path(), &target).map_err(|error| DpError::io(&target, error))?;
        self.remove_all_but(&target);
        Ok(())
    }

    /// The newest complete checkpoint, if there is one.
    ///
    /// # Errors
    ///
    /// [`DpError::Io`] if the folder exists and cannot be read.
    pub fn latest(&self) -> Result<Option<Checkpoint>, DpError> {
        Ok(self.complete()?.pop().map(|folder| Checkpoint { folder }))
    }

    /// Folders of the complete checkpoints, in the order of their steps.
    fn complete(&self) -> Result<Vec<PathBuf>, DpError> {
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        let entries =
            fs::read_dir(&self.folder).map_err(|error| DpError::io(&self.folder, error))?;
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| DpError::io(&self.folder, error))?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                folders.push(entry.path());
            }
        }
        folders.sort();
        Ok(folders)
    }

    /// Removes older checkpoints, and what a killed save left behind.
    fn remove_all_but(&self, kept: &Path) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for folder in entries.flatten().map(|entry| entry.path()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let ours = name.starts_with(PREFIX) || name.starts_with(PARTIAL);
            if ours
                && folder != kept
                && let Err(error) = fs::remove_dir_all(&folder)
            {
                log::warn!("{} contains a key and could not be removed: {error}", folder.display());
            }
        }
    }
}

/// A complete checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    folder: PathBuf,
}

impl Checkpoint {
    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Continues the run: 2T steps are T steps, a checkpoint, and T steps more, bit for bit.
    ///
    /// # Arguments
    ///
    /// - `plan`: a plan with the same numbers as that of the run; its own key is not used
    /// - `inner`: the optimizer, configured as before
    /// - `model`: a model of the same architecture
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when a file is damaged or of another version, or when a number of
    /// `plan` is not that of the run: what was spent stays spent. [`DpError::Io`] when a file is
    /// missing.
    pub fn restore<M: Module>(
        &self,
        mut plan: PrivacyPlan,
        inner: ModuleOptimizer,
        model: M,
    ) -> Result<(DpOptimizer, M), DpError> {
        let path = self.folder.join(PRIVACY);
        let bytes = fs::read(&path).map_err(|error| DpError::io(&path, error))?;
        let value: serde_json::Value = parse(&path, &bytes)?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            format => {
                return Err(DpError::state(format!(
                    "{} has format {format:?}, known is {FORMAT}; resume with the version of \
                     burn-dp that wrote it",
                    path.display()
                )));
            }
        }
        let state: PrivacyState = serde_json::from_value(value).map_err(|e| damaged(&path, e))?;
        compare(&state.plan, &plan.fingerprint())?;

        let ledger = PrivacyLedger::from_json(&state.ledger.to_string())?;
        if ledger.releases() != state.next_step {
            return Err(damaged(&path, "the ledger and the number of steps contradict each other"));
        }
        let key = from_hex(&state.key).ok_or_else(|| damaged(&path, "the key is unreadable"))?;
        let expected = plan.new_ledger();
        if ledger.header() != expected.header() || !plan.is_prefix(&ledger) {
            return Err(damaged(&path, "the ledger is not that of the plan"));
        }
        plan.clipping.load_state(&state.clipping)?;
        plan.source = NoiseSource::resume(NoiseKey::from_bytes(&key)?, state.next_step);
        plan.origin = plan.sampler()?.origin();

        let path = self.folder.join(MODEL);
        let record = ModuleRecord::from_bytes(self.read(&path, MODEL, &state)?)
            .map_err(|error| record_error(&path, error))?;
        let model = model.try_load_record(record).map_err(|error| record_error(&path, error))?;
        let path = self.folder.join(OPTIMIZER);
        let record = OptimizerRecord::from_bytes(self.read(&path, OPTIMIZER, &state)?)
            .map_err(|error| record_error(&path, error))?;
        let mut optim = DpOptimizer::new(plan, inner.load_record(record), ledger);
        if state.files.contains_key(SPARSIFIER) {
            let path = self.folder.join(SPARSIFIER);
            let sparsifier = Sparsifier::from_bytes(&self.read(&path, SPARSIFIER, &state)?);
            let unknown = || damaged(&path, "it is of another version");
            optim.sparsifier = Some(sparsifier.ok_or_else(unknown)?);
        }
        Ok((optim, model))
    }

    fn read(&self, path: &Path, name: &str, state: &PrivacyState) -> Result<Bytes, DpError> {
        let bytes = fs::read(path).map_err(|error| DpError::io(path, error))?;
        let found = (bytes.len() as u64, crc32fast::hash(&bytes));
        if state.files.get(name) != Some(&found) {
            return Err(damaged(path, "its content is not what the checkpoint wrote"));
        }
        Ok(Bytes::from_bytes_vec(bytes))
    }
}

/// Refuses a plan that is not the one of the run, with the first number that differs.
fn compare(
    saved: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> Result<(), DpError> {
    if saved == given {
        return Ok(());
    }
    let names = saved.keys().chain(given.keys());
    let differing = names.filter(|&name| saved.get(name) != given.get(name)).map(|name| {
        let show = |plan: &BTreeMap<String, String>| {
            plan.get(name).cloned().unwrap_or_else(|| "nothing".to_string())
        };
        format!("{name} was {} and is now {}", show(saved), show(given))
    });
    Err(DpError::state(format!(
        "{}; resume with the settings of the run, or start a new run with a budget of its own",
        differing.take(1).collect::<String>()
    )))
}

fn damaged(path: &Path, reason: impl std::fmt::Display) -> DpError {
    DpError::state(format!(
        "{} is damaged ({reason}); restore the file from a backup, or start a new run",
        path.display()
    ))
}

fn record_error(path: &Path, error: RecordError) -> DpError {
    DpError::state(format!("{}: {error}", path.display()))
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, DpError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(path, error))
}

/// Writes a file that only its owner can read, down to the disk.
fn write(path: &Path, bytes: &[u8]) -> Result<(), DpError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| DpError::io(path, error))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}
