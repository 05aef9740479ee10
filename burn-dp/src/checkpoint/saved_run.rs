//! A saved run: named parts, one of which is the privacy state.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::{ModuleRecord, RecordError};
use burn::tensor::Bytes;
use burn_dp_accountant::strict_json::Unrepeated;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::DpError;
use crate::optim::engine::{EngineState, LostSteps, PrivacyEngine, RunSource, damaged};
use crate::optim::releases::Releases;
use crate::optim::{DpOptimizer, Sparsifier, WeightAverage};

use super::log_file::LogFile;

pub(crate) const MODEL: &str = "model.bpk";
pub(crate) const OPTIMIZER: &str = "optimizer.bpk";
/// The record of the scheduler, which a custom loop does not have.
pub(crate) const SCHEDULER: &str = "scheduler.bpk";
pub(super) const SPARSIFIER: &str = "sparsifier.bpk";
pub(super) const AVERAGE: &str = "average.bpk";
/// The encrypted memory of correlated noise: bytes without a structure, and so no record of Burn.
/// Their length and checksum are in `privacy.json`.
pub(super) const NOISE: &str = "noise.bin";
pub(crate) const PRIVACY: &str = "privacy.json";

/// Version of the format of `privacy.json`. Other versions are refused.
const FORMAT: u32 = 6;

/// The content of `privacy.json`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrivacyState {
    format: u32,
    /// Length and CRC-32 of the other parts.
    parts: BTreeMap<String, (u64, u32)>,
    pub(crate) run: EngineState,
}

/// The whole state of a run between two steps.
///
/// # Privacy
///
/// As secret as the training data: it contains the key of the run.
#[derive(Clone)]
pub(crate) struct SavedRun {
    run: EngineState,
    parts: BTreeMap<String, Bytes>,
}

impl PrivacyState {
    /// Parses the content of the file `path`.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, DpError> {
        let Unrepeated(value) =
            serde_json::from_slice(bytes).map_err(|error| damaged(path, error))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            format => {
                let format = format.map_or("no format".into(), |found| format!("format {found}"));
                return Err(DpError::saved_state(format!(
                    "{} has {format}, this version reads format {FORMAT}; resume with the version \
                     of burn-dp that wrote it",
                    path.display()
                )));
            }
        }
        serde_json::from_value(value).map_err(|error| damaged(path, error))
    }

    /// Returns the length of each part.
    pub(crate) fn lengths(&self) -> BTreeMap<String, u64> {
        self.parts.iter().map(|(name, (length, _))| (name.clone(), *length)).collect()
    }

    /// Returns an error unless these bytes are the part `name`.
    ///
    /// # Arguments
    ///
    /// - `source`: the file of the privacy state, for messages
    pub(crate) fn verify(&self, source: &Path, name: &str, bytes: &[u8]) -> Result<(), DpError> {
        if self.parts.get(name) == Some(&fingerprint(bytes)) {
            return Ok(());
        }
        let path = source.with_file_name(name);
        Err(damaged(&path, "its content is not what the checkpoint wrote"))
    }
}

impl SavedRun {
    /// Returns the state of `engine` after its last step. It does not contain the model and the
    /// optimizer yet.
    pub(crate) async fn of_engine(engine: &PrivacyEngine) -> Result<Self, DpError> {
        let mut saved = Self { run: EngineState::of(engine).await?, parts: BTreeMap::new() };
        if let Some(sparsifier) = &engine.sparsifier {
            saved.insert(SPARSIFIER, sparsifier.to_bytes()?);
        }
        if let Some(average) = &engine.average {
            saved.insert(AVERAGE, average.to_bytes_async().await?);
        }
        if let Some(memory) = saved.run.noise_memory.take() {
            saved.insert(NOISE, memory);
        }
        Ok(saved)
    }

    /// Returns the state of `optim` after its last step, without the model.
    pub(crate) async fn of_optimizer(optim: &DpOptimizer) -> Result<Self, DpError> {
        Self::of_engine(&optim.engine).await?.with_optimizer(&optim.inner)
    }

    pub(crate) fn with_optimizer(mut self, inner: &ModuleOptimizer) -> Result<Self, DpError> {
        self.insert_record(OPTIMIZER, inner.into_bytes())?;
        Ok(self)
    }

    pub(crate) fn with_model<M: Module>(mut self, model: &M) -> Result<Self, DpError> {
        self.insert_record(MODEL, model.clone().into_record().into_bytes())?;
        Ok(self)
    }

    pub(crate) fn insert_record(
        &mut self,
        name: &str,
        bytes: Result<Bytes, RecordError>,
    ) -> Result<(), DpError> {
        let bytes = bytes.map_err(|error| DpError::encoding(name, error))?;
        self.insert(name, bytes);
        Ok(())
    }

    fn insert(&mut self, name: &str, bytes: Bytes) {
        self.parts.insert(name.into(), bytes);
    }

    pub(crate) fn run(&self) -> &EngineState {
        &self.run
    }

    pub(crate) fn next_step(&self) -> u64 {
        self.run.next_step
    }

    /// Returns whether there is a part of this name.
    #[cfg(feature = "train")]
    pub(crate) fn has(&self, name: &str) -> bool {
        self.parts.contains_key(name)
    }

    fn part(&self, source: &Path, name: &str) -> Result<Bytes, DpError> {
        let part = self.parts.get(name).cloned();
        part.ok_or_else(|| damaged(&source.with_file_name(name), "it is not in the checkpoint"))
    }

    /// Returns the parts except the privacy state, by name.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.parts.iter().map(|(name, bytes)| (name.as_str(), &bytes[..]))
    }

    /// Returns the key of the run, unless it was erased.
    pub(crate) fn key(&self) -> Option<&str> {
        self.run.key.as_deref()
    }

    /// Adds the key, which is stored separately from the state.
    pub(crate) fn with_key(mut self, key: Option<Zeroizing<String>>) -> Self {
        self.run.key = key.map(|mut key| std::mem::take(&mut *key));
        self
    }

    /// Returns the privacy state, with the key.
    pub(super) fn state(&self) -> PrivacyState {
        let parts = self.parts().map(|(name, bytes)| (name.to_string(), fingerprint(bytes)));
        PrivacyState { format: FORMAT, parts: parts.collect(), run: self.run.clone() }
    }

    /// Returns the content of `privacy.json`, without the key.
    pub(super) fn to_json(&self) -> Result<Vec<u8>, DpError> {
        let mut state = self.state();
        state.run.key.zeroize();
        serde_json::to_vec_pretty(&state).map_err(|error| DpError::encoding(PRIVACY, error))
    }

    /// Reads the parts that `state` names.
    ///
    /// # Arguments
    ///
    /// - `source`: the file of `state`, for messages
    /// - `read`: returns the content of a part
    pub(crate) fn read(
        state: PrivacyState,
        source: &Path,
        mut read: impl FnMut(&str) -> Result<Bytes, DpError>,
    ) -> Result<Self, DpError> {
        let (mut run, mut parts) = (state.run.clone(), BTreeMap::new());
        for name in state.parts.keys() {
            let bytes = read(name)?;
            state.verify(source, name, &bytes)?;
            match name.as_str() {
                SPARSIFIER => run.sparsifier = Some(Sparsifier::from_bytes(&bytes)?),
                AVERAGE => run.average = Some(WeightAverage::from_bytes(&bytes)?),
                NOISE => run.noise_memory = Some(bytes.clone()),
                _ => {}
            }
            parts.insert(name.clone(), bytes);
        }
        Ok(Self { run, parts })
    }

    /// Returns `model` with the saved parameters.
    pub(crate) fn load_model<M: Module>(&self, source: &Path, model: M) -> Result<M, DpError> {
        load_model(source, self.part(source, MODEL)?, model)
    }

    /// Continues the run with the options of `engine`, which must be new.
    #[cfg(feature = "train")]
    pub(crate) fn resume_engine(
        &self,
        engine: PrivacyEngine,
        (source, log): (&Path, &Path),
        lost: LostSteps,
    ) -> Result<PrivacyEngine, DpError> {
        let open = |run| LogFile::read(log, run);
        self.run.resume(engine, RunSource { name: source, log, open, lost })
    }

    /// Continues the run with the options of `optim`, which must be new.
    pub(crate) fn resume_from<F>(
        &self,
        optim: DpOptimizer,
        source: RunSource<'_, F>,
    ) -> Result<DpOptimizer, DpError>
    where
        F: FnOnce(u64) -> Result<Releases, DpError>,
    {
        let DpOptimizer { engine, inner } = optim;
        let record = OptimizerRecord::from_bytes(self.part(source.name, OPTIMIZER)?)
            .map_err(|error| refused(&source.name.with_file_name(OPTIMIZER), error))?;
        let engine = self.run.resume(engine, source)?;
        Ok(DpOptimizer { engine, inner: inner.load_record(record) })
    }

    /// Continues the run with the options of `optim`, which must be new.
    pub(crate) fn resume(
        &self,
        optim: DpOptimizer,
        (source, log): (&Path, &Path),
        lost: LostSteps,
    ) -> Result<DpOptimizer, DpError> {
        let open = |run| LogFile::read(log, run);
        self.resume_from(optim, RunSource { name: source, log, open, lost })
    }
}

/// Returns `model` with the parameters of a record.
pub(crate) fn load_model<M: Module>(source: &Path, bytes: Bytes, model: M) -> Result<M, DpError> {
    let refused = |error| refused(&source.with_file_name(MODEL), error);
    let record = ModuleRecord::from_bytes(bytes).map_err(refused)?;
    model.try_load_record(record).map_err(refused)
}

/// Length and CRC-32.
fn fingerprint(bytes: &[u8]) -> (u64, u32) {
    (bytes.len() as u64, crc32fast::hash(bytes))
}

/// The error for a record that Burn does not accept.
fn refused(path: &Path, error: RecordError) -> DpError {
    DpError::saved_state(format!("{}: {error}", path.display()))
}
