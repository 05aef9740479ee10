//! The state of an optimizer as a value, for programs with their own store.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Bytes;
use zeroize::Zeroizing;

use super::Checkpointer;
use super::log_file::{LogFile, UnusedLog};
use super::log_lines;
use super::saved_run::{PrivacyState, SavedRun};
use crate::DpError;
use crate::device_read::blocking;
use crate::optim::DpOptimizer;
use crate::optim::engine::{LostSteps, RunSource, damaged};
use crate::optim::releases::Releases;

/// The name of a record in messages.
const NAME: &str = "the record of the optimizer";

/// The state of a [`DpOptimizer`] between two steps: the whole privacy state, the state of the
/// inner optimizer, and the states of a [`Sparsifier`](crate::optim::Sparsifier) and a
/// [`WeightAverage`](crate::optim::WeightAverage) if there are any. It does not contain the model.
///
/// Created by [`DpOptimizer::to_record`] and restored by [`DpOptimizer::load_record`].
///
/// # Privacy
///
/// It contains the key of the run, from which all noise and all draws follow: protect it, and its
/// [bytes](Self::to_bytes), like the training data, and delete it when the run is over.
///
/// A record can be copied and loaded twice, so on its own it would restore spent budget. The log of
/// releases of its run prevents this, and no record is loaded without it: it has every release,
/// including the releases after the record, and only one optimizer at a time can use it.
#[derive(Clone)]
pub struct DpOptimizerRecord {
    saved: SavedRun,
    /// `None` if the log is in a store.
    log: Option<PathBuf>,
    lost: LostSteps,
}

impl DpOptimizerRecord {
    /// Returns the number of steps before the record.
    pub fn next_step(&self) -> u64 {
        self.saved.next_step()
    }

    /// Continues after the last release of the run instead of repeating the steps that followed the
    /// record; see [`Checkpoint::skip_lost_steps`](super::Checkpoint::skip_lost_steps).
    pub fn skip_lost_steps(self) -> Self {
        Self { lost: LostSteps::Skip, ..self }
    }

    /// Returns the record as bytes: a line with the privacy state as JSON and its checksum, then
    /// the other parts, whose lengths and checksums are in that line. No other buffer contains the
    /// key.
    ///
    /// # Privacy
    ///
    /// They contain the key of the run, unencrypted.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Encoding`] if the ledger cannot be encoded.
    pub fn to_bytes(&self) -> Result<Bytes, DpError> {
        let line = Zeroizing::new(log_lines::line(&self.saved.state())?);
        let parts = self.saved.parts().map(|(_, bytes)| bytes);
        let all: Vec<&[u8]> = [line.as_bytes()].into_iter().chain(parts).collect();
        Ok(Bytes::from_bytes_vec(all.concat()))
    }

    /// Returns the record of these bytes.
    ///
    /// # Arguments
    ///
    /// - `log`: the [log of releases](DpOptimizer::with_release_log) of the run
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the bytes are damaged or have another version.
    pub fn from_bytes(bytes: &[u8], log: impl Into<PathBuf>) -> Result<Self, DpError> {
        Ok(Self { log: Some(log.into()), ..Self::from_stored_bytes(bytes)? })
    }

    /// Returns the record of these bytes, whose log of releases is in a
    /// [store](super::ReleaseStore).
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the bytes are damaged or have another version.
    pub fn from_stored_bytes(bytes: &[u8]) -> Result<Self, DpError> {
        let source = Path::new(NAME);
        let cut = || damaged(source, "it is cut off");
        let end = bytes.iter().position(|&byte| byte == b'\n').ok_or_else(cut)?;
        let (line, mut rest) = (&bytes[..end], &bytes[end + 1..]);
        let json = std::str::from_utf8(line).ok().and_then(log_lines::checked);
        let json = json.ok_or_else(|| damaged(source, "its content is not what was written"))?;
        let state = PrivacyState::parse(source, json.as_bytes())?;
        let lengths = state.lengths();
        let saved = SavedRun::read(state, source, |name| {
            let length = lengths.get(name).and_then(|&length| usize::try_from(length).ok());
            let (part, next) = rest.split_at_checked(length.ok_or_else(cut)?).ok_or_else(cut)?;
            rest = next;
            Ok(Bytes::from_bytes_vec(part.to_vec()))
        });
        let saved = saved.map_err(|error| damaged(source, error))?;
        match rest {
            [] => Ok(Self { saved, log: None, lost: LostSteps::Repeat }),
            _ => Err(damaged(source, "something follows its end")),
        }
    }

    /// Continues the run with the options of `optim`, which must be new.
    ///
    /// # Arguments
    ///
    /// - `log`: the log of releases, for messages
    /// - `open`: opens the log of the run with this identity
    pub(super) fn resume(
        &self,
        optim: DpOptimizer,
        log: &Path,
        open: impl FnOnce(u64) -> Result<Releases, DpError>,
    ) -> Result<DpOptimizer, DpError> {
        let source = RunSource { name: Path::new(NAME), log, open, lost: self.lost };
        self.saved.resume_from(optim, source)
    }
}

opaque_debug!(DpOptimizerRecord, |this| next_step: this.next_step(), log: this.log);

/// Saving and loading.
impl DpOptimizer {
    /// Writes every release to the file `log` from now on, before its noise is drawn. A
    /// [record](Self::to_record) requires such a log. The file is created with the releases so far.
    ///
    /// [`Checkpointer`] does this in the folder of its checkpoints.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file belongs to another run, is in use, or has other
    /// releases, [`DpError::InvalidState`] if the run has another log, and [`DpError::Io`] if the
    /// file cannot be written.
    pub fn with_release_log(self, log: impl AsRef<Path>) -> Result<Self, DpError> {
        LogFile::attach(&mut *self.engine.releases()?, log.as_ref(), UnusedLog::Refuse)?;
        Ok(self)
    }

    /// Returns the state between two steps, as a value. Save the model with it
    /// ([`Module::into_record`](burn::module::Module::into_record)): steps that are repeated with
    /// another model are rejected.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] without a [log of releases](Self::with_release_log), and
    /// within a logical step.
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
    /// // The run ends, and continues in another process.
    /// drop(optim);
    /// let record = DpOptimizerRecord::from_bytes(&bytes, &log)?;
    /// let optim = config.init()?.optimizer(SgdConfig::new().init()).load_record(record)?;
    /// # assert_eq!(optim.next_step(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_record(&self) -> Result<DpOptimizerRecord, DpError> {
        blocking(self.to_record_async(), "DpOptimizer::to_record_async")
    }

    /// Runs [`to_record`](Self::to_record) without blocking the thread, as browsers require.
    ///
    /// Burn itself reads the state of the inner optimizer, and blocks while doing so. On a GPU in a
    /// browser, use an optimizer without state, for example SGD without momentum.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`to_record`](Self::to_record).
    pub async fn to_record_async(&self) -> Result<DpOptimizerRecord, DpError> {
        let log = self.engine.release_log()?.ok_or_else(|| {
            DpError::state(
                "a record without a log of releases would give budget back when it is loaded; \
                 begin the run with `DpOptimizer::with_release_log` or \
                 `DpOptimizer::with_release_store`, or save it with `DpOptimizer::save`",
            )
        })?;
        if self.engine.is_within_step() {
            return Err(DpError::state(
                "a record within a logical step cannot be resumed; make the step first, or \
                 `discard` what was accumulated",
            ));
        }
        let saved = SavedRun::of_optimizer(self).await?;
        self.engine.releases()?.in_records = true;
        Ok(DpOptimizerRecord { saved, log: Some(log), lost: LostSteps::Repeat })
    }

    /// Continues the run of a record: T steps, a record, and T further steps equal 2T steps, bit
    /// for bit.
    ///
    /// This optimizer must be new, created from a plan with the numbers of the run (the plan's own
    /// key is not used), and configured like the optimizer of the record; its options are kept.
    ///
    /// # Privacy
    ///
    /// The ledger has everything in the log of releases, including the releases after the record.
    /// The steps after the record are repeated: if a repeated step equals the released one, bit for
    /// bit, nothing new is released; otherwise it is rejected.
    /// [`skip_lost_steps`](DpOptimizerRecord::skip_lost_steps) continues after them instead.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if this optimizer already started a run. Returns
    /// [`DpError::SavedState`] if a number of its plan differs from the record, if the record is
    /// damaged, or if the log of releases is missing, older than the record, of another run, or in
    /// use. Drop the optimizer that created the record first. The next step returns
    /// [`DpError::ChangedBuffer`] if a value of the model that is not trained is not the one that
    /// the run had.
    pub fn load_record(self, record: DpOptimizerRecord) -> Result<Self, DpError> {
        let Some(log) = &record.log else {
            return Err(DpError::state(
                "the log of releases of this record is in a store; continue its run by \
                 `DpOptimizer::load_record_from_store`",
            ));
        };
        let optim = record.resume(self, log, |run| LogFile::read(log, run))?;
        optim.engine.releases()?.in_records = true;
        Ok(optim)
    }

    /// Saves model and optimizer in `folder` with a [`Checkpointer`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Checkpointer::save`].
    pub fn save<M: Module>(&self, folder: impl AsRef<Path>, model: &M) -> Result<(), DpError> {
        Checkpointer::new(folder.as_ref()).save(model, self)
    }

    /// Continues from the newest checkpoint in `folder`, like [`load_record`](Self::load_record)
    /// from a record. The model receives the parameters of the checkpoint.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Checkpoint::restore`](super::Checkpoint::restore), and
    /// [`DpError::InvalidState`] if there is no checkpoint, or if this optimizer already started a
    /// run.
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
}
