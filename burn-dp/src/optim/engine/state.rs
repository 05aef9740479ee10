//! The state of a run between two steps, as a value.
//!
//! Length: saving and resuming are easier to compare field by field next to each other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use burn::tensor::Bytes;
use burn_dp_accountant::PrivacyLedger;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::PrivacyEngine;
use super::not_covered::{KEY_IN_RECORDS, NOISE_KEY};
use super::statement::add_exposures;
use crate::DpError;
use crate::noise::CorrelatedNoiseState;
use crate::optim::PUBLIC_DATA;
use crate::optim::independence::SeenIndependence;
use crate::optim::model_values::SavedValues;
use crate::optim::releases::Releases;
use crate::optim::{PrivacyPlan, Sparsifier, WeightAverage};
use crate::random::{Key, NoiseSource};
use crate::sampling::RecordIdentity;

/// Everything that a run needs to continue, except the model, the inner optimizer, and the
/// [`Releases`] after it.
///
/// # Privacy
///
/// As secret as the training data: it contains the key of the run.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EngineState {
    /// Every number of the plan, by name.
    plan: BTreeMap<String, String>,
    pub(crate) next_step: u64,
    /// Number of steps that were lost and not repeated.
    skipped: u64,
    ledger: serde_json::Value,
    /// The state of the clipping policy.
    clipping: serde_json::Value,
    /// What is known about the independence of the examples.
    #[serde(default)]
    independence: Option<SeenIndependence>,
    /// The evidence that the units are different records.
    #[serde(default)]
    identity: Option<RecordIdentity>,
    /// A mark of the records and their order, under the key of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    records: Option<String>,
    /// The values of the model that are not trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<SavedValues>,
    /// Public facts of the run that are not in its plan.
    #[serde(default)]
    facts: BTreeMap<String, String>,
    /// Identifies the key of the run.
    pub(crate) run: u64,
    /// The key of the run, in hexadecimal digits. `None` if it is stored elsewhere, or erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Written as tensors, not as text.
    #[serde(skip)]
    pub(crate) sparsifier: Option<Sparsifier>,
    #[serde(skip)]
    pub(crate) average: Option<WeightAverage>,
    /// The state of correlated noise, without its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlated: Option<CorrelatedNoiseState>,
    /// The memory of correlated noise, encrypted under the key of the run.
    #[serde(skip)]
    pub(crate) noise_memory: Option<Bytes>,
}

/// The treatment of steps that were released after a checkpoint and lost with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostSteps {
    /// They are repeated, and must be the same.
    Repeat,
    /// The run continues after them.
    Skip,
}

/// The source of the state of a run.
pub(crate) struct RunSource<'a, F> {
    /// The file of the state, for messages.
    pub(crate) name: &'a Path,
    /// The log of releases, for messages.
    pub(crate) log: &'a Path,
    /// Opens the log of the run with this identity.
    pub(crate) open: F,
    pub(crate) lost: LostSteps,
}

impl EngineState {
    /// Returns an error unless the sparsifier and the average have exactly these settings.
    #[cfg(feature = "train")]
    pub(crate) fn check_settings(
        &self,
        sparsifier: Option<&Sparsifier>,
        average: Option<&WeightAverage>,
    ) -> Result<(), DpError> {
        same_settings("sparsifier", describe(self.sparsifier.as_ref()), describe(sparsifier))?;
        same_settings("weight average", describe(self.average.as_ref()), describe(average))
    }

    /// Returns the state of `engine` between two steps.
    pub(crate) async fn of(engine: &PrivacyEngine) -> Result<Self, DpError> {
        let ledger = serde_json::from_str(&engine.ledger.to_json()?)
            .map_err(|error| DpError::encoding("the ledger", error))?;
        let (correlated, noise_memory) = match &engine.correlated {
            Some(noise) => {
                let (state, memory) = noise.save(engine.next_step, &engine.plan.source).await?;
                (Some(state), Some(Bytes::from_bytes_vec(memory)))
            }
            None => (None, None),
        };
        Ok(Self {
            plan: engine.plan.fingerprint(),
            next_step: engine.next_step,
            skipped: engine.skipped,
            ledger,
            clipping: engine.plan.clipping.save_state(),
            independence: Some(engine.independence.seen()),
            identity: engine.identity,
            records: engine.records.clone(),
            values: engine.buffers.save().await?,
            facts: {
                let mut facts = engine.facts.clone();
                if engine.releases()?.in_records {
                    facts.insert(NOISE_KEY.into(), KEY_IN_RECORDS.into());
                }
                add_exposures(&*engine.releases()?, &mut facts);
                facts
            },
            run: engine.plan.origin,
            key: match engine.plan.source.is_forgotten() {
                true => None,
                false => Some(to_hex(&engine.plan.source.export_key().to_bytes()[..])),
            },
            sparsifier: engine.sparsifier.clone(),
            average: engine.average.clone(),
            correlated,
            noise_memory,
        })
    }

    /// Continues the run with the options of `new`, whose own key is not used.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if `new` already started a run, and
    /// [`DpError::SavedState`] if a number of the plan or a setting differs, or if ledger, key and
    /// log do not belong together.
    pub(crate) fn resume<F>(
        &self,
        new: PrivacyEngine,
        source: RunSource<'_, F>,
    ) -> Result<PrivacyEngine, DpError>
    where
        F: FnOnce(u64) -> Result<Releases, DpError>,
    {
        if new.next_step > 0 || new.own_releases() > 0 || new.is_within_step() {
            return Err(DpError::state(format!(
                "the optimizer began a run with {} releases, and a saved run cannot replace it; \
                 load into a new optimizer, made of a plan with the same numbers",
                new.own_releases()
            )));
        }
        for (name, saved, given) in [
            ("sparsifier", describe(self.sparsifier.as_ref()), describe(new.sparsifier.as_ref())),
            ("weight average", describe(self.average.as_ref()), describe(new.average.as_ref())),
        ] {
            // Settings that are left out are taken from the run.
            if saved.is_some() && given.is_some() {
                same_settings(name, saved, given)?;
            }
        }
        compare_plans(&self.plan, &new.plan.fingerprint())?;
        let ledger = self.ledger(source.name, &new.plan)?;
        let plan = self.plan_with_key(source.name, new.plan)?;

        let releases = (source.open)(plan.origin)?;
        let released = releases.ledger(plan.new_ledger())?;
        // This also holds for a checkpoint that was saved while steps were repeated.
        if !released.continues(&ledger) {
            return Err(DpError::saved_state(format!(
                "{} has {} releases and the checkpoint {}: it is older than the checkpoint; \
                 restore the newest log from a backup, or start a new run with its own budget",
                source.log.display(),
                plan.own_releases(&released),
                plan.own_releases(&ledger)
            )));
        }
        if !plan.is_prefix(&released) {
            return Err(damaged(source.log, "its releases differ from the plan"));
        }
        // Only options survive: a trial pass on this engine must not reach the resumed run.
        let mut engine = PrivacyEngine {
            ledger: released,
            backward: new.backward,
            precision: new.precision,
            sparsifier: new.sparsifier,
            average: new.average,
            independence: new.independence.renewed(),
            facts: new.facts,
            ..PrivacyEngine::new(plan)
        };
        engine.plan.clipping.load_state(&self.clipping)?;
        engine.next_step = match source.lost {
            LostSteps::Repeat => self.next_step,
            LostSteps::Skip => releases.len(),
        };
        if engine.plan.source.is_forgotten() {
            // As after erasing the key: the memory cannot be decrypted, and no step needs it.
            engine.correlated = None;
        }
        if let Some(noise) = &mut engine.correlated {
            if engine.next_step > self.next_step {
                return Err(DpError::saved_state(format!(
                    "{} steps were lost, and a run with correlated noise cannot skip them: the \
                     noise of later steps contains the noise of the lost ones; resume without \
                     `skip_lost_steps`, which repeats them if data, program and the order of sums \
                     are the same, or begin a new run with a budget of its own",
                    engine.next_step - self.next_step
                )));
            }
            let (Some(saved), Some(memory)) = (&self.correlated, &self.noise_memory) else {
                return Err(damaged(source.name, "it has no memory of the correlated noise"));
            };
            noise.restore(self.next_step, saved, memory, &engine.plan.source)?;
        }
        engine.skipped = self.skipped + (engine.next_step - self.next_step);
        engine.releases = releases.into();
        engine.independence.continue_from(self.independence);
        engine.buffers.continue_from(self.values.clone());
        let mut options = std::mem::replace(&mut engine.facts, self.facts.clone());
        let public = options.remove(PUBLIC_DATA).unwrap_or_default();
        engine.identity = self.identity;
        engine.records = self.records.clone();
        engine.facts.extend(options);
        // The data that the run named, and the data that the program named before it resumed the
        // run.
        public.split("; ").filter(|origin| !origin.is_empty()).for_each(|origin| {
            engine.name_public_data(origin);
        });
        engine.sparsifier = self.sparsifier.clone().or(engine.sparsifier);
        engine.average = self.average.clone().or(engine.average);
        Ok(engine)
    }

    fn ledger(&self, name: &Path, plan: &PrivacyPlan) -> Result<PrivacyLedger, DpError> {
        let ledger = PrivacyLedger::from_json(&self.ledger.to_string())
            .map_err(|error| damaged(name, error))?;
        if plan.own_releases(&ledger) < self.next_step {
            return Err(damaged(name, "the ledger and the number of steps contradict each other"));
        }
        if ledger.header() != plan.new_ledger().header() || !plan.is_prefix(&ledger) {
            return Err(damaged(name, "the ledger differs from the plan"));
        }
        Ok(ledger)
    }

    fn plan_with_key(&self, name: &Path, mut plan: PrivacyPlan) -> Result<PrivacyPlan, DpError> {
        let Some(key) = &self.key else {
            plan.source.forget();
            plan.origin = self.run;
            return Ok(plan);
        };
        let mut key = from_hex(key).ok_or_else(|| damaged(name, "the key is unreadable"))?;
        let noise_key = Key::from_bytes(&key);
        key.zeroize();
        plan.source = NoiseSource::resume(noise_key?, self.next_step);
        plan.origin = plan.sampler()?.origin();
        match plan.origin == self.run {
            true => Ok(plan),
            false => Err(damaged(name, "the key is of another run")),
        }
    }
}

impl Drop for EngineState {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

opaque_debug!(EngineState, |this| next_step: this.next_step);

/// The error for a file whose content is not what was written.
pub(crate) fn damaged(path: &Path, reason: impl fmt::Display) -> DpError {
    DpError::saved_state(format!(
        "{} is damaged ({reason}); restore the file from a backup, or start a new run",
        path.display()
    ))
}

fn describe(settings: Option<&impl fmt::Display>) -> Option<String> {
    settings.map(ToString::to_string)
}

fn same_settings(name: &str, saved: Option<String>, given: Option<String>) -> Result<(), DpError> {
    if saved == given {
        return Ok(());
    }
    let show = |settings: Option<String>| settings.unwrap_or_else(|| "none".into());
    Err(DpError::saved_state(format!(
        "the {name} of the run was \"{}\" and is now \"{}\"; resume with the settings of the run \
         (`with_{}`)",
        show(saved),
        show(given),
        name.replace(' ', "_")
    )))
}

/// Returns an error that names the first number in which the plans differ.
fn compare_plans(
    saved: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> Result<(), DpError> {
    let mut names = saved.keys().chain(given.keys());
    let Some(name) = names.find(|&name| saved.get(name) != given.get(name)) else {
        return Ok(());
    };
    let show = |plan: &BTreeMap<String, String>| {
        plan.get(name).cloned().unwrap_or_else(|| "nothing".to_string())
    };
    Err(DpError::saved_state(format!(
        "{name} was {} and is now {}; resume with the settings of the run, or start a new run with \
         its own budget",
        show(saved),
        show(given)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_key_is_not_read() {
        let key = [0, 9, 171, 255];
        assert_eq!(from_hex(&to_hex(&key)), Some(key.to_vec()));
        for damaged in ["abc", "0g", "aéb", "é"] {
            assert_eq!(from_hex(damaged), None, "{damaged}");
        }
    }
}
