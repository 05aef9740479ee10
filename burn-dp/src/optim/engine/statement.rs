//! The privacy statement of a run.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use burn::module::Module;
use burn::tensor::{DType, FloatDType};
use burn_dp_accountant::{PrivacyLedger, PrivacyStatement, UnitOfPrivacy, join_values};

use super::PrivacyEngine;
use super::not_covered::{self, KEY_IN_RECORDS, NOISE_KEY};
use crate::DpError;
use crate::model::{for_each_parameter, precision_name};
use crate::optim::independence::Independence;
use crate::optim::releases::{KeyStorage, Lock, Releases};
use crate::random::Key;
use crate::sampling::{RecordFacts, RecordIdentity};
use crate::updates::federated::UserUpdate;

/// How a file protects the key from other users.
const KEY_IN_FILE: &str = match cfg!(windows) {
    true => "in a file apart from the checkpoints, with the access rights of its folder",
    false => "in a file apart from the checkpoints, which its owner alone can read",
};

/// Name of the fact with what users compute.
const USER_UPDATE: &str = "user_update";

/// The sentence of a run without a log.
const NO_LOG: &str = "What a process of the run released if it ended before it wrote its ledger: \
     the run has no log of releases, neither in a file nor in a store.";

impl PrivacyEngine {
    /// Returns the statement of everything that was released so far.
    pub(crate) fn statement(&self, deltas: &[f64]) -> Result<PrivacyStatement, DpError> {
        deltas.iter().try_for_each(|&delta| self.plan.check_delta(delta))?;
        Ok(PrivacyStatement::from_ledger(&self.described_ledger(), deltas)?)
    }

    /// Returns the ledger with everything that the statement says, so that a statement of the
    /// ledger, or of a later run that counts it, says it too.
    pub(crate) fn described_ledger(&self) -> PrivacyLedger {
        let mut facts = self.facts.clone();
        let mut sentences = Vec::new();
        let lost = self.lost_steps();
        let independence = match lost {
            0 => self.independence.found(),
            _ => self.independence.found_beside_lost_steps(),
        };
        facts.insert("independence_of_examples".into(), independence.to_string());
        sentences.push(independence.not_covered().to_string());
        if self.independence.had_units() && independence != Independence::ByConstruction {
            sentences.push(Independence::ByConstruction.not_covered().into());
        }
        sentences.extend(not_covered::sentences());
        self.describe_storage(&mut facts, &mut sentences);
        if lost > 0 {
            let released = format!("{lost} released by a process that did not save them");
            facts.insert(not_covered::LOST_STEPS.into(), released);
        }
        let identity = if lost > 0 { Some(RecordIdentity::NotChecked) } else { self.identity };
        if let Some(identity) = identity {
            facts.insert("identity_of_records".into(), identity.to_string());
            sentences.push(identity.not_covered(self.plan.unit()));
        }
        self.options_of_passes(&mut facts);
        sentences.extend(not_covered::of_facts(&facts, independence));
        if let Some(sparsifier) = &self.sparsifier {
            facts.insert("sparsification".into(), sparsifier.to_string());
        }
        if let Some(average) = &self.average {
            facts.insert("weight_average".into(), average.to_string());
        }
        let mut ledger = self.ledger.clone();
        facts.iter().for_each(|(name, fact)| ledger.add_fact(name, fact));
        sentences.iter().for_each(|sentence| ledger.add_not_covered(sentence));
        ledger
    }

    /// Returns the number of released steps of which only the events are known: the process that
    /// released them saved nothing after them, and they were not repeated.
    fn lost_steps(&self) -> u64 {
        self.skipped + self.own_releases().saturating_sub(self.next_step)
    }

    /// Adds the options of the passes to the facts that a run has with other options.
    fn options_of_passes(&self, facts: &mut BTreeMap<String, String>) {
        let copies = self.backward.group_size();
        let name = match self.plan.unit() {
            UnitOfPrivacy::User => not_covered::LOSSES_OF_A_USER,
            _ => not_covered::MULTIPLICITY,
        };
        let copies = (copies > 1).then(|| (name, copies.to_string()));
        let precision = self.precision.map(|p| (not_covered::PRECISION, precision_name(p)));
        let update = self.user_update.clone().map(|update| (USER_UPDATE, update));
        for (name, value) in copies.into_iter().chain(precision).chain(update) {
            join_values(facts.entry(name.into()).or_default(), &value);
        }
    }

    /// Notes that other machines see what a pass or a step uses, if the model is there.
    pub(super) fn note_remote_devices<M: Module>(&mut self, model: &M) {
        #[cfg(feature = "remote")]
        if model.devices().iter().any(crate::remote::is_remote) {
            let seen = "they receive examples, parameters and gradients";
            self.note(not_covered::REMOTE_DEVICES, seen);
        }
        #[cfg(not(feature = "remote"))]
        let _ = model;
    }

    /// Notes what the data sets of a step state about their records.
    pub(super) fn note_records(&mut self, records: RecordFacts) {
        let identity = records.identity;
        self.identity = Some(self.identity.map_or(identity, |found| found.min(identity)));
        if self.records.is_none()
            && let Some(digest) = records.digest
        {
            self.records = Some(self.plan.key().mark_of(&digest));
        }
        let is_bound = records.digest.is_some() && !self.plan.misses_members(&records);
        if !is_bound && self.plan.binds_records() {
            self.note(not_covered::RECORD_ORDER, "not compared");
        }
    }

    /// Notes that packed values are not compared in each step, if the model has some.
    pub(super) fn note_packed_values(&mut self) {
        if self.buffers.has_packed() {
            let compared = "compared in the first step, in the last planned one if it was made, \
                            and before each checkpoint";
            self.note(not_covered::PACKED_VALUES, compared);
        }
    }

    /// Notes the types of less than single precision that a pass computes with, for a model that
    /// has them without [`PrivacyEngine::precision`].
    pub(super) fn note_precision<M: Module>(&mut self, computing: &M, losses: DType) {
        let single = FloatDType::F32.finfo().epsilon;
        let mut types = vec![losses];
        for_each_parameter(computing, |_, parameter| types.push(parameter.value.dtype()));
        types.retain(|dtype| dtype.finfo().is_some_and(|info| info.epsilon > single));
        for dtype in types {
            let known = self.facts.entry(not_covered::PRECISION.into()).or_default();
            join_values(known, &precision_name(dtype.into()));
        }
    }

    /// Notes that the program adds clipped sums.
    pub(crate) fn note_sums_from_elsewhere(&mut self) {
        self.note(not_covered::OWN_SUMS, "some were added by the program");
    }

    /// Notes the options of a pass, for the statement of a run that is resumed with others.
    pub(super) fn note_options_of_passes(&mut self) {
        let mut facts = std::mem::take(&mut self.facts);
        self.options_of_passes(&mut facts);
        self.facts = facts;
    }

    /// Prepares the updates of users. Returns the key that orders the examples of a user.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the unit of the plan is not the user.
    pub(crate) fn begin_user_updates(&mut self, update: &UserUpdate) -> Result<Key, DpError> {
        let unit = self.plan.unit();
        if *unit != UnitOfPrivacy::User {
            return Err(DpError::invalid(
                "unit",
                format!(
                    "must be the user, because an item of the data set is all that a user owns, \
                     got {unit}; plan with `with_unit(UnitOfPrivacy::User)`"
                ),
            ));
        }
        self.user_update = Some(update.to_string());
        Ok(self.plan.key().clone())
    }

    /// Ends what [`begin_user_updates`](Self::begin_user_updates) began.
    #[cfg(feature = "train")]
    pub(crate) fn end_user_updates(&mut self) {
        self.user_update = None;
    }

    /// Adds the location of the run's key, and whether other processes are locked out of the run.
    fn describe_storage(
        &self,
        facts: &mut BTreeMap<String, String>,
        not_covered: &mut Vec<String>,
    ) {
        // A thread that panicked while it stored a release has changed none of these.
        let releases = self.releases.lock().unwrap_or_else(PoisonError::into_inner);
        let in_records = releases.in_records || self.facts.contains_key(NOISE_KEY);
        let (is_stored, key) = match (releases.key.0, self.plan.source.is_forgotten()) {
            _ if in_records => (true, KEY_IN_RECORDS),
            (KeyStorage::Nowhere, false) => (false, "in the memory of the program only"),
            (KeyStorage::File, false) => (true, KEY_IN_FILE),
            (KeyStorage::ExposedFile, false) => (true, "in a file that other users can read"),
            (_, true) => (false, "erased when the run ended"),
        };
        facts.insert(NOISE_KEY.into(), key.into());
        if is_stored {
            not_covered.push(
                "A reader of the key of the run, which can be erased when the run is over: the \
                 noise follows from it and can be subtracted."
                    .into(),
            );
        }
        if releases.lock().is_none() {
            not_covered.push(NO_LOG.into());
        }
        add_exposures(&releases, facts);
    }
}

/// Adds to the facts what other users and processes could do with the files of a run. Its
/// checkpoints have these facts, so the statement has them wherever the run is resumed.
pub(super) fn add_exposures(releases: &Releases, facts: &mut BTreeMap<String, String>) {
    if releases.key_was_exposed {
        facts.insert(not_covered::KEY_FILE.into(), "other users could read it".into());
    }
    if releases.lock() == Some(Lock::Unsupported) {
        facts.insert(not_covered::RELEASE_LOG.into(), "on a file system without locks".into());
    }
}
