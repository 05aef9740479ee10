//! What a checkpoint keeps of the privacy of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use burn_dp_accountant::PrivacyLedger;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::DpError;
use crate::checkpoint::release_log::ReleaseLog;
use crate::checkpoint::store::{damaged, parse};
use crate::optim::engine::{PrivacyEngine, poisoned};
use crate::optim::{Independence, PrivacyPlan};
use crate::random::{NoiseKey, NoiseSource};

/// Version of the format of `privacy.json`. Unknown versions are refused.
const FORMAT: u32 = 3;

/// The whole privacy state of a run after a step, as it stands in `privacy.json`.
///
/// # Privacy
///
/// As secret as the training data: it contains the key of the run.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrivacyState {
    format: u32,
    /// Every number of the plan, by name.
    plan: BTreeMap<String, String>,
    pub(crate) next_step: u64,
    /// Number of steps that were lost and not made again.
    pub(crate) skipped: u64,
    ledger: serde_json::Value,
    /// What the clipping policy has learned.
    clipping: serde_json::Value,
    /// What is known of the independence of the examples, if any were seen.
    #[serde(default)]
    independence: Option<Independence>,
    /// Public facts of the run beside its plan.
    #[serde(default)]
    facts: BTreeMap<String, String>,
    /// The key of the run, in hexadecimal digits.
    pub(crate) key: String,
    /// Length and CRC-32 of the other files.
    pub(crate) files: BTreeMap<String, (u64, u32)>,
}

impl PrivacyState {
    /// The state between two steps.
    pub(crate) fn capture(engine: &PrivacyEngine) -> Result<Self, DpError> {
        let ledger = serde_json::from_str(&engine.ledger.to_json()?)
            .map_err(|error| DpError::state(format!("the ledger cannot be written: {error}")))?;
        Ok(Self {
            format: FORMAT,
            plan: engine.plan.fingerprint(),
            next_step: engine.next_step,
            skipped: engine.skipped,
            ledger,
            clipping: engine.plan.clipping.save_state(),
            independence: engine.independence.seen(),
            facts: engine.facts.clone(),
            key: to_hex(&engine.plan.source.export_key().to_bytes()[..]),
            files: BTreeMap::new(),
        })
    }

    /// Number of steps before the checkpoint.
    #[cfg(feature = "train")]
    pub(crate) fn steps(&self) -> u64 {
        self.next_step
    }

    /// Parses the content of the file `path`.
    pub(crate) fn read(path: &Path, bytes: &[u8]) -> Result<Self, DpError> {
        let value: serde_json::Value = parse(path, bytes)?;
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
        serde_json::from_value(value).map_err(|error| damaged(path, error))
    }

    /// Continues the run with `plan`, whose own key is not used.
    ///
    /// # Errors
    ///
    /// When a number of `plan` is not that of the run, or ledger, key and log of releases do not belong
    /// together.
    pub(crate) fn resume(
        &self,
        (path, log): (&Path, &Path),
        mut plan: PrivacyPlan,
        skip_lost_steps: bool,
    ) -> Result<PrivacyEngine, DpError> {
        compare(&self.plan, &plan.fingerprint())?;
        let ledger = PrivacyLedger::from_json(&self.ledger.to_string())?;
        if ledger.releases() < self.next_step {
            return Err(damaged(path, "the ledger and the number of steps contradict each other"));
        }
        let mut key = from_hex(&self.key).ok_or_else(|| damaged(path, "the key is unreadable"))?;
        let noise_key = NoiseKey::from_bytes(&key);
        key.zeroize();
        if ledger.header() != plan.new_ledger().header() || !plan.is_prefix(&ledger) {
            return Err(damaged(path, "the ledger is not that of the plan"));
        }
        plan.source = NoiseSource::resume(noise_key?, self.next_step);
        plan.origin = plan.sampler()?.origin();

        let releases = ReleaseLog::read(log, plan.origin)?;
        let released = releases.ledger(plan.new_ledger())?;
        // Also a checkpoint that was saved while steps were made again.
        if !released.continues(&ledger) {
            return Err(DpError::state(format!(
                "{} knows of {} releases, and the checkpoint of {}: it is older than the checkpoint; \
                 restore the newest one from a backup, or start a new run with a budget of its own",
                log.display(),
                released.releases(),
                ledger.releases()
            )));
        }
        if !plan.is_prefix(&released) {
            return Err(damaged(log, "its releases are not those of the plan"));
        }
        plan.clipping.load_state(&self.clipping)?;
        let next_step = if skip_lost_steps { releases.len() } else { self.next_step };
        let mut engine = PrivacyEngine::resumed(plan, released, next_step, releases);
        engine.skipped = self.skipped + (next_step - self.next_step);
        engine.independence.continue_from(self.independence);
        engine.facts = self.facts.clone();
        Ok(engine)
    }
}

impl PrivacyEngine {
    /// From here on every release is in the log before it is made.
    ///
    /// # Arguments
    ///
    /// - `begins`: whether nothing was saved beside the log
    pub(crate) fn log_to(&self, path: &Path, begins: bool) -> Result<(), DpError> {
        self.releases.lock().map_err(|_| poisoned())?.attach(path, begins)
    }

    /// Where the releases are written to, if they are.
    pub(crate) fn release_log(&self) -> Result<Option<PathBuf>, DpError> {
        Ok(self.releases.lock().map_err(|_| poisoned())?.path())
    }

    /// Whether part of a logical batch was seen whose step is not made yet.
    pub(crate) fn is_within_step(&self) -> bool {
        self.pending.is_some()
    }
}

impl Drop for PrivacyState {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl fmt::Debug for PrivacyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivacyState").field("next_step", &self.next_step).finish_non_exhaustive()
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
