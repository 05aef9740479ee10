//! The state of an optimizer as a value, for programs with a store of their own.

use std::fmt;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::OptimizerRecord;
use burn::store::RecordError;
use burn::tensor::Bytes;
use zeroize::Zeroize;

use crate::DpError;
use crate::checkpoint::Checkpointer;
use crate::checkpoint::little_endian::Reader;
use crate::checkpoint::state::PrivacyState;
use crate::checkpoint::store::{
    AVERAGE, OPTIMIZER, SPARSIFIER, damaged, fingerprint, record_error,
};
use crate::optim::{DpOptimizer, Sparsifier, WeightAverage};

/// First bytes of a record.
const MAGIC: &[u8; 8] = b"burn-dp\x01";
/// What messages call a record.
const NAME: &str = "the record of the optimizer";

/// The state of a [`DpOptimizer`] between two steps: the whole privacy state, the state of the optimizer
/// inside, and those of a [`Sparsifier`] and a [`WeightAverage`] if there are any. The model is not in it.
///
/// Made by [`DpOptimizer::to_record`], and gone on with by [`DpOptimizer::load_record`].
///
/// # Privacy
///
/// It contains the key of the run, from which all noise and all draws follow: keep it, and its
/// [bytes](Self::to_bytes), as you keep the training data, and delete it when the run is over.
///
/// A record can be copied and loaded twice, so alone it would give budget back. The log of releases of its
/// run makes it safe, and nothing is loaded without it: it knows every release, those after the record
/// too, and only one optimizer at a time can hold it.
#[derive(Clone)]
pub struct DpOptimizerRecord {
    state: PrivacyState,
    /// The parts, by name.
    parts: Vec<(String, Bytes)>,
    log: PathBuf,
    skip_lost_steps: bool,
}

impl DpOptimizerRecord {
    /// Number of steps before the record.
    pub fn next_step(&self) -> u64 {
        self.state.next_step
    }

    /// Goes on after the last release of the run instead of making the steps again that followed the
    /// record; see [`Checkpoint::skip_lost_steps`](super::Checkpoint::skip_lost_steps).
    pub fn skip_lost_steps(self) -> Self {
        Self { skip_lost_steps: true, ..self }
    }

    /// The record as bytes, with a check sum.
    ///
    /// # Privacy
    ///
    /// They contain the key of the run, unencrypted.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub fn to_bytes(&self) -> Result<Bytes, DpError> {
        let mut json = serde_json::to_vec(&self.state)
            .map_err(|error| DpError::state(format!("{NAME} cannot be written: {error}")))?;
        let mut bytes = Vec::from(MAGIC.as_slice());
        bytes.extend((json.len() as u64).to_le_bytes());
        bytes.extend(&json);
        json.zeroize();
        for (_, part) in &self.parts {
            bytes.extend(&part[..]);
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        Ok(Bytes::from_bytes_vec(bytes))
    }

    /// The record of these bytes.
    ///
    /// # Arguments
    ///
    /// - `log`: the [log of releases](DpOptimizer::with_release_log) of the run
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when the bytes are damaged or of another version.
    pub fn from_bytes(bytes: &[u8], log: impl Into<PathBuf>) -> Result<Self, DpError> {
        let path = Path::new(NAME);
        let unreadable = || damaged(path, "its content is not what was written");
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or_else(unreadable)?;
        if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
            return Err(unreadable());
        }
        let content = content.strip_prefix(MAGIC).ok_or_else(unreadable)?;
        let mut read = Reader::new(content);
        let json = read.u64().and_then(|length| read.take(length)).ok_or_else(unreadable)?;
        let state = PrivacyState::read(path, json)?;
        let mut parts = Vec::new();
        for (name, expected) in &state.files {
            let part = read.take(expected.0).ok_or_else(unreadable)?;
            if fingerprint(part) != *expected {
                return Err(unreadable());
            }
            parts.push((name.clone(), Bytes::from_bytes_vec(part.to_vec())));
        }
        match read.is_at_end() {
            true => Ok(Self { state, parts, log: log.into(), skip_lost_steps: false }),
            false => Err(unreadable()),
        }
    }
}

impl fmt::Debug for DpOptimizerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpOptimizerRecord")
            .field("next_step", &self.state.next_step)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

impl DpOptimizer {
    /// Writes every release to the file `log` from here on, before its noise is drawn: what a
    /// [record](Self::to_record) needs. The file is created with the releases that were made so far.
    ///
    /// [`Checkpointer`] does the same in the folder of its checkpoints.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] if the file belongs to another run, is in use, or knows of other releases;
    /// [`DpError::Io`] if it cannot be written.
    pub fn with_release_log(self, log: impl AsRef<Path>) -> Result<Self, DpError> {
        self.engine.log_to(log.as_ref(), false)?;
        Ok(self)
    }

    /// The state between two steps, as a value. Save the model beside it
    /// ([`Module::into_record`](burn::module::Module::into_record)): steps that are made again with another
    /// one are refused.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] without a [log of releases](Self::with_release_log), and within a logical
    /// step.
    ///
    /// # Example
    ///
    /// ```
    /// # use burn::optim::SgdConfig;
    /// # use burn_dp::DpError;
    /// # use burn_dp::checkpoint::DpOptimizerRecord;
    /// # use burn_dp::optim::PrivacyPlanConfig;
    /// # fn main() -> Result<(), DpError> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let log = folder.path().join("releases.log");
    /// let config = PrivacyPlanConfig::new(1000, 50.0).with_steps(20).with_noise_multiplier(1.0);
    /// let optim = config.clone().init()?.optimizer(SgdConfig::new().init());
    /// let optim = optim.with_release_log(&log)?;
    /// let bytes = optim.to_record()?.to_bytes()?;
    /// // The run ends, and goes on in another process.
    /// drop(optim);
    /// let record = DpOptimizerRecord::from_bytes(&bytes, &log)?;
    /// let optim = config.init()?.optimizer(SgdConfig::new().init()).load_record(record)?;
    /// # assert_eq!(optim.next_step(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_record(&self) -> Result<DpOptimizerRecord, DpError> {
        let log = self.engine.release_log()?.ok_or_else(|| {
            DpError::state(
                "a record without a log of releases would give budget back when it is loaded; begin \
                 the run with `DpOptimizer::with_release_log`, or save it with `DpOptimizer::save`",
            )
        })?;
        if self.engine.is_within_step() {
            return Err(DpError::state(
                "a record within a logical step cannot be gone on with; make the step first, or \
                 `discard` what was accumulated",
            ));
        }
        let mut state = PrivacyState::capture(&self.engine)?;
        let mut parts = Vec::new();
        for (name, bytes) in self.parts() {
            let bytes = bytes.map_err(|error| record_error(Path::new(name), error))?;
            state.files.insert(name.to_string(), fingerprint(&bytes));
            parts.push((name.to_string(), bytes));
        }
        // In the order of the bytes.
        parts.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(DpOptimizerRecord { state, parts, log, skip_lost_steps: false })
    }

    /// Goes on with the run of a record, bit for bit: 2T steps are T steps, a record, and T steps more.
    ///
    /// This optimizer must be new, made of a plan with the same numbers, whose own key is not used, and
    /// configured as the one of the record was; its options are kept.
    ///
    /// # Privacy
    ///
    /// The ledger has everything that is in the log of releases, whatever the record knows of. Steps that
    /// were made after the record are made again: as long as they are what they were, bit for bit,
    /// nothing new is released; a step that is not is refused. Or they are
    /// [skipped](DpOptimizerRecord::skip_lost_steps).
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when this optimizer has begun a run of its own, when a number of its plan
    /// is not that of the record, when the record is damaged, and when the log of releases is missing,
    /// older than the record, of another run, or in use: the optimizer that made the record has to be
    /// dropped first.
    pub fn load_record(self, record: DpOptimizerRecord) -> Result<Self, DpError> {
        let DpOptimizerRecord { state, parts, log, skip_lost_steps } = record;
        self.resumed(&state, (Path::new(NAME), &log), skip_lost_steps, |name| {
            let part = parts.iter().find(|(part, _)| part == name);
            let part =
                part.ok_or_else(|| damaged(Path::new(NAME), format!("{name} is missing")))?;
            Ok(part.1.clone())
        })
    }

    /// Saves model and optimizer in `folder`, as a [`Checkpointer`] does.
    ///
    /// # Errors
    ///
    /// As [`Checkpointer::save`].
    pub fn save<M: Module>(&self, folder: impl AsRef<Path>, model: &M) -> Result<(), DpError> {
        Checkpointer::new(folder.as_ref()).save(model, self)
    }

    /// Goes on from the newest checkpoint in `folder`, as [`load_record`](Self::load_record) from a record.
    /// The model gets the parameters of the checkpoint.
    ///
    /// # Errors
    ///
    /// As [`Checkpoint::restore`](super::Checkpoint::restore), and [`DpError::InvalidState`] when there is
    /// no checkpoint or this optimizer has begun a run of its own.
    pub fn load<M: Module>(self, folder: impl AsRef<Path>, model: M) -> Result<(Self, M), DpError> {
        let folder = folder.as_ref();
        let latest = Checkpointer::new(folder).latest()?.ok_or_else(|| {
            DpError::state(format!(
                "{} has no checkpoint; save one with `DpOptimizer::save`, or name its folder",
                folder.display()
            ))
        })?;
        latest.restore_into(self, model)
    }

    /// What stands beside the privacy state, by name.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Result<Bytes, RecordError>)> {
        let mut parts = vec![(OPTIMIZER, self.inner.into_bytes())];
        let bytes = |bytes| Ok(Bytes::from_bytes_vec(bytes));
        parts.extend(self.sparsifier.iter().map(|found| (SPARSIFIER, bytes(found.to_bytes()))));
        parts.extend(self.average.iter().map(|found| (AVERAGE, bytes(found.to_bytes()))));
        parts
    }

    /// The saved run, with the options of this optimizer.
    pub(crate) fn resumed(
        self,
        state: &PrivacyState,
        (path, log): (&Path, &Path),
        skip_lost_steps: bool,
        part: impl Fn(&str) -> Result<Bytes, DpError>,
    ) -> Result<Self, DpError> {
        let Self { engine, inner, sparsifier, average } = self;
        if engine.next_step > 0 || engine.ledger.releases() > 0 || engine.is_within_step() {
            return Err(DpError::state(format!(
                "the optimizer has begun a run of its own, with {} releases, and another one cannot \
                 take its place; load into a new one, made of a plan with the same numbers",
                engine.ledger.releases()
            )));
        }
        let file = |name: &str| path.with_file_name(name);
        let record = OptimizerRecord::from_bytes(part(OPTIMIZER)?)
            .map_err(|error| record_error(&file(OPTIMIZER), error))?;
        let unknown = |name: &str| damaged(&file(name), "it is of another version");
        let sparsifier = match state.files.contains_key(SPARSIFIER) {
            true => {
                let found = Sparsifier::from_bytes(&part(SPARSIFIER)?);
                let found = found.ok_or_else(|| unknown(SPARSIFIER))?;
                same_settings("sparsifier", &found, sparsifier.as_ref())?;
                Some(found)
            }
            false => sparsifier,
        };
        let average = match state.files.contains_key(AVERAGE) {
            true => {
                let found = WeightAverage::from_bytes(&part(AVERAGE)?);
                let found = found.ok_or_else(|| unknown(AVERAGE))?;
                same_settings("weight average", &found, average.as_ref())?;
                Some(found)
            }
            false => average,
        };
        let (backward, enabled) = (engine.backward, engine.independence.is_enabled());
        let facts = engine.facts;
        let mut engine = state.resume((path, log), engine.plan, skip_lost_steps)?;
        engine.backward = backward;
        engine.independence.set_enabled(enabled);
        engine.facts.extend(facts);
        let inner = inner.load_record(record);
        Ok(Self { engine, inner, sparsifier, average })
    }
}

/// Refuses to go on with other settings than those that were saved; without any, the saved ones are taken.
fn same_settings(
    name: &str,
    saved: &impl fmt::Display,
    given: Option<&impl fmt::Display>,
) -> Result<(), DpError> {
    let (saved, given) = (saved.to_string(), given.map(ToString::to_string));
    match given {
        Some(given) if given != saved => Err(DpError::state(format!(
            "the {name} of the run was \"{saved}\" and is now \"{given}\"; resume with the settings of \
             the run, or leave them out"
        ))),
        _ => Ok(()),
    }
}
