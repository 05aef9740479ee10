//! The append-only record of releases.
//!
//! Length: everything that may change the record is in one file.

use std::fmt;
use std::path::Path;
use std::sync::Mutex;

use super::entry::LedgerEntry;
use super::file;
use super::header::{LedgerHeader, NoiseProvenance};
use crate::analysis::{epsilon_with_simulation, quick_epsilon};
use crate::atomic_file;
use crate::budget::Budget;
use crate::calibration::largest_count;
use crate::domain::check_delta;
use crate::epsilon::{Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::group::{GroupEpsilon, group_epsilon};

/// The append-only, run-length encoded list of all releases, with the public facts.
///
/// Entries cannot be removed, and the noise of a ledger cannot be marked as secure again.
#[derive(Debug)]
pub struct PrivacyLedger {
    header: LedgerHeader,
    entries: Vec<LedgerEntry>,
    /// Remaining releases of one event within one budget; `record` keeps it up to date.
    allowance: Mutex<Option<Allowance>>,
}

/// Where a release is recorded.
enum Place {
    LastEntry,
    NewEntry,
}

#[derive(Debug, Clone)]
struct Allowance {
    /// The next release.
    event: DpEvent,
    budget: Budget,
    remaining: u64,
}

impl Clone for PrivacyLedger {
    fn clone(&self) -> Self {
        Self::from_parts(self.header.clone(), self.entries.clone())
    }
}

impl PartialEq for PrivacyLedger {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header && self.entries == other.entries
    }
}

impl PrivacyLedger {
    /// Creates an empty ledger.
    pub fn new(header: LedgerHeader) -> Self {
        Self::from_parts(header, Vec::new())
    }

    pub(super) fn from_parts(header: LedgerHeader, entries: Vec<LedgerEntry>) -> Self {
        Self { header, entries, allowance: Mutex::new(None) }
    }

    /// Returns the public facts.
    pub fn header(&self) -> &LedgerHeader {
        &self.header
    }

    /// Returns the releases in order, run-length encoded.
    pub fn entries(&self) -> &[LedgerEntry] {
        &self.entries
    }

    /// Marks the noise as reproducible. This cannot be undone.
    pub fn mark_insecure(&mut self, reason: impl Into<String>) {
        if self.header.noise_source == NoiseProvenance::Secure {
            self.header.noise_source = NoiseProvenance::Insecure { reason: reason.into() };
        }
    }

    /// Records one release.
    ///
    /// A step with correlated noise continues the last entry if it is the next step of that run.
    /// Otherwise it must be the first step of a new run, which is a new entry: two runs are never
    /// combined into one.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a parameter is outside its domain, or a step
    /// with correlated noise does not follow the last entry. In that case nothing is recorded.
    pub fn record(&mut self, event: &DpEvent) -> Result<(), AccountantError> {
        self.record_many(event, 1)
    }

    /// Records `count` releases of one event.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a parameter is outside its domain or the
    /// number of releases overflows. In that case nothing is recorded.
    pub fn record_many(&mut self, event: &DpEvent, count: u64) -> Result<(), AccountantError> {
        if count == 0 {
            return Ok(());
        }
        self.releases().checked_add(count).ok_or_else(|| {
            AccountantError::invalid("count", format!("overflows the ledger: {count}"))
        })?;
        match (self.place_of(event, count)?, self.entries.last_mut()) {
            (Place::LastEntry, Some(last)) => last.count += count,
            _ => self.entries.push(LedgerEntry { event: event.clone(), count }),
        }
        if let Ok(slot) = self.allowance.get_mut() {
            let still_valid = match slot {
                Some(allowance) if allowance.event == *event => {
                    let remaining = allowance.remaining.checked_sub(count);
                    allowance.remaining = remaining.unwrap_or(0);
                    allowance.event = event.advanced(count);
                    remaining.is_some()
                }
                _ => false,
            };
            if !still_valid {
                *slot = None;
            }
        }
        Ok(())
    }

    /// Checks `count` releases of `event` and returns where they are recorded.
    fn place_of(&self, event: &DpEvent, count: u64) -> Result<Place, AccountantError> {
        let last = self.entries.last();
        if let DpEvent::CorrelatedGaussian { strategy, first_step, .. } = event {
            event.validate()?;
            strategy.check_steps(first_step.saturating_add(count))?;
            if last.is_some_and(|last| event.continues_run(&last.event, last.count)) {
                return Ok(Place::LastEntry);
            }
            event.check_begins_run()?;
            return Ok(Place::NewEntry);
        }
        if last.is_some_and(|last| last.event == *event) {
            return Ok(Place::LastEntry);
        }
        event.validate()?;
        Ok(Place::NewEntry)
    }

    /// Returns the recorded releases and `extra` more releases of `event`.
    fn counted_with<'a>(
        &'a self,
        event: &'a DpEvent,
        extra: u64,
    ) -> Result<Vec<(&'a DpEvent, u64)>, AccountantError> {
        let mut events: Vec<_> = self.counted().collect();
        if extra > 0 {
            match (self.place_of(event, extra)?, events.last_mut()) {
                (Place::LastEntry, Some((_, count))) => *count = count.saturating_add(extra),
                _ => events.push((event, extra)),
            }
        }
        Ok(events)
    }

    /// Returns the number of recorded releases.
    pub fn releases(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.count))
    }

    /// Adds a public fact. A fact that has other values keeps them.
    pub fn add_fact(&mut self, name: &str, value: impl fmt::Display) {
        self.header.join_fact(name, &value.to_string());
    }

    /// Adds a sentence about what the guarantee does not cover, unless the ledger has it.
    pub fn add_not_covered(&mut self, sentence: &str) {
        self.header.join_not_covered(sentence);
    }

    /// Appends the releases of another ledger on the same data (sequential composition), with its
    /// facts and with what it does not cover. Insecure noise in either ledger makes the result
    /// insecure. The simulation of this ledger is kept.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Mismatch`] if the units of privacy, the neighboring relations, or
    /// the mini-sets differ, and [`AccountantError::InvalidArgument`] if the number of releases
    /// overflows.
    pub fn merge(&mut self, other: &PrivacyLedger) -> Result<(), AccountantError> {
        if self.header.unit != other.header.unit {
            return Err(AccountantError::Mismatch {
                reason: format!(
                    "the ledgers cannot be merged: the unit of privacy is {} in one and {} in the \
                     other",
                    self.header.unit, other.header.unit
                ),
            });
        }
        if self.header.relation != other.header.relation {
            return Err(AccountantError::Mismatch {
                reason: format!(
                    "the ledgers cannot be merged: the neighboring relation is {} in one and {} \
                     in the other",
                    self.header.relation, other.header.relation
                ),
            });
        }
        if let Some([name, own, others]) = self.header.other_division(&other.header)
            && self.releases() > 0
            && other.releases() > 0
        {
            return Err(AccountantError::Mismatch {
                reason: format!(
                    "the ledgers cannot be merged: they are of other mini-sets, each of which has \
                     examples of many of the others ({name} is {own} in one and {others} in the \
                     other); use the same mini-sets in all runs (the same seed and size), or plan \
                     for examples"
                ),
            });
        }
        self.releases().checked_add(other.releases()).ok_or_else(|| {
            AccountantError::invalid("count", "the merged ledger overflows".to_string())
        })?;
        self.header.join(&other.header);
        for entry in &other.entries {
            self.record_many(&entry.event, entry.count)?;
        }
        if let NoiseProvenance::Insecure { reason } = &other.header.noise_source {
            self.mark_insecure(reason.clone());
        }
        Ok(())
    }

    /// Returns whether this ledger is `earlier` with further releases, as a resumed run requires:
    /// an older checkpoint does not restore budget.
    pub fn continues(&self, earlier: &PrivacyLedger) -> bool {
        let same_header = self.header.unit == earlier.header.unit
            && self.header.simulation == earlier.header.simulation
            && self.header.relation == earlier.header.relation
            && (self.header.noise_source == earlier.header.noise_source
                || earlier.header.noise_source == NoiseProvenance::Secure);
        let Some((last, before)) = earlier.entries.split_last() else {
            return same_header;
        };
        same_header
            && self.entries.len() >= earlier.entries.len()
            && self.entries[..before.len()] == *before
            && self.entries[before.len()].event == last.event
            && self.entries[before.len()].count >= last.count
    }

    fn counted(&self) -> impl Iterator<Item = (&DpEvent, u64)> {
        self.entries.iter().map(|entry| (&entry.event, entry.count))
    }

    /// Returns ε at `delta` of all recorded releases; `upper` is a guarantee.
    ///
    /// ε is 0 for an empty ledger, and infinite (with the reason) if the noise was insecure. The
    /// method is the tightest one for the events; see the page [`accounting`](crate::accounting).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if an event cannot be analyzed, and
    /// [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1.
    pub fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        check_delta(delta)?;
        if let NoiseProvenance::Insecure { reason } = &self.header.noise_source
            && !self.entries.is_empty()
        {
            return Ok(Epsilon::infinite(
                delta,
                Method::Nothing,
                format!("the noise can be reproduced ({reason})"),
            ));
        }
        self.nominal_epsilon(delta)
    }

    /// Returns ε as if the noise were secure, for tests and planning. It is a guarantee only if the
    /// provenance of the noise is [`NoiseProvenance::Secure`].
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if an event cannot be analyzed, and
    /// [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1.
    pub fn nominal_epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        self.epsilon_of(self.counted(), delta, 0.0)
    }

    /// Returns ε at `delta` for data sets that differ in `units` units, each one in the sense of
    /// the neighboring relation: for a person with up to `units` examples, for instance.
    ///
    /// Gaussian releases have a closed form. Otherwise it is the bound of a path over `units - 1`
    /// data sets, which grows quickly: training with the group as the unit of privacy is far
    /// better.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `units` is 0 or `delta` is not between 0 and
    /// 1, and [`AccountantError::Unsupported`] if an event cannot be analyzed.
    pub fn group_epsilon(&self, units: u64, delta: f64) -> Result<Epsilon, AccountantError> {
        let single = self.epsilon(delta)?;
        if single.upper.is_infinite() || self.entries.is_empty() {
            return Ok(single);
        }
        let simulation = self.header.simulation.as_ref();
        group_epsilon(self.counted(), self.header.relation, units, delta, simulation)
    }

    /// Returns [`group_epsilon`](Self::group_epsilon) with its number of units.
    pub(crate) fn group_epsilon_of(
        &self,
        units: u64,
        delta: f64,
    ) -> Result<GroupEpsilon, AccountantError> {
        Ok(GroupEpsilon { units, epsilon: self.group_epsilon(units, delta)? })
    }

    /// Returns ε at `delta` after `extra` more releases of `event`, without recording them, as if
    /// the noise were secure.
    ///
    /// This is a complete analysis. Use [`within_budget`](Self::within_budget) before every step.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if an event cannot be analyzed, and
    /// [`AccountantError::InvalidArgument`] if a number is outside its domain.
    pub fn epsilon_after(
        &self,
        event: &DpEvent,
        extra: u64,
        delta: f64,
    ) -> Result<Epsilon, AccountantError> {
        self.epsilon_of(self.counted_with(event, extra)?, delta, 0.0)
    }

    /// Returns ε of `events`; nothing is simulated if the certified ε is at most `enough`.
    fn epsilon_of<'a>(
        &self,
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        delta: f64,
        enough: f64,
    ) -> Result<Epsilon, AccountantError> {
        let (relation, simulation) = (self.header.relation, self.header.simulation.as_ref());
        epsilon_with_simulation(events, relation, delta, simulation, enough)
    }

    /// Returns how many more releases of `event` fit into the budget, as if the noise were secure:
    /// the largest `n` with `epsilon_after(event, n, delta).upper <= epsilon`. `u64::MAX` if the
    /// event costs nothing; never more than the remaining steps of a run with correlated noise.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if an event cannot be analyzed, and
    /// [`AccountantError::InvalidArgument`] if a number is outside its domain.
    pub fn max_steps(
        &self,
        event: &DpEvent,
        epsilon: f64,
        delta: f64,
    ) -> Result<u64, AccountantError> {
        self.max_steps_within(event, Budget::new(epsilon, delta)?)
    }

    /// Returns [`max_steps`](Self::max_steps) for a [`Budget`].
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if an event cannot be analyzed, and
    /// [`AccountantError::InvalidArgument`] if a parameter of `event` is outside its domain.
    pub fn max_steps_within(
        &self,
        event: &DpEvent,
        budget: Budget,
    ) -> Result<u64, AccountantError> {
        event.validate()?;
        let (target, delta) = (budget.epsilon(), budget.delta());
        let upper = |extra| {
            let events = self.counted_with(event, extra)?;
            Ok(self.epsilon_of(events, delta, target)?.upper)
        };
        let (limit, simulation) = (event.remaining_steps(), self.header.simulation.as_ref());
        // A simulation takes seconds, and most runs are planned to their end.
        if simulation.is_some() && (1..u64::MAX).contains(&limit) && upper(limit)? <= target {
            return Ok(limit);
        }
        largest_count(target, limit, upper, |extra| {
            let events = self.counted_with(event, extra).ok()?;
            quick_epsilon(&events, self.header.relation, delta, simulation)
        })
    }

    /// Returns whether `extra` more releases of `event` stay within the budget.
    ///
    /// The first call searches the largest number of releases. The result is cached while only
    /// `event` is recorded, so later calls are almost free.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if an event cannot be analyzed, and
    /// [`AccountantError::InvalidArgument`] if a parameter of `event` is outside its domain.
    pub fn within_budget(
        &self,
        event: &DpEvent,
        extra: u64,
        budget: Budget,
    ) -> Result<bool, AccountantError> {
        if let Ok(slot) = self.allowance.lock()
            && let Some(known) = slot.as_ref()
            && known.budget == budget
            && known.event == *event
        {
            return Ok(extra <= known.remaining);
        }
        let remaining = self.max_steps_within(event, budget)?;
        if let Ok(mut slot) = self.allowance.lock() {
            *slot = Some(Allowance { event: event.clone(), budget, remaining });
        }
        Ok(extra <= remaining)
    }

    /// Returns the ledger as JSON text.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Format`] if a number cannot be written.
    pub fn to_json(&self) -> Result<String, AccountantError> {
        file::to_json(&self.header, &self.entries)
    }

    /// Reads the JSON text of [`to_json`](Self::to_json).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Format`] for another format version, an unknown event, or an
    /// unknown or repeated field, and [`AccountantError::InvalidArgument`] for an event with a
    /// parameter outside its domain.
    pub fn from_json(text: &str) -> Result<Self, AccountantError> {
        let (header, entries) = file::from_json(text)?;
        let mut ledger = Self::new(header);
        for entry in entries {
            ledger.record_many(&entry.event, entry.count)?;
        }
        Ok(ledger)
    }

    /// Writes the ledger to a file atomically: after a crash the file has the old or the new
    /// content.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Io`] with the path if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), AccountantError> {
        atomic_file::replace(path.as_ref(), &self.to_json()?)
    }

    /// Reads a ledger from a file.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Io`] with the path if the file cannot be read,
    /// [`AccountantError::Format`] if it is not a ledger of this format version, and
    /// [`AccountantError::InvalidArgument`] for an event with a parameter outside its domain.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, AccountantError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| AccountantError::Io { path: path.to_path_buf(), source })?;
        Self::from_json(&text).map_err(|error| match error {
            AccountantError::Format { reason, source } => {
                AccountantError::Format { reason: format!("{}: {reason}", path.display()), source }
            }
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Simulation;
    use crate::correlated_noise::{Participation, Strategy};
    use crate::ledger::UnitOfPrivacy;
    use crate::relation::NeighboringRelation;

    fn ledger() -> PrivacyLedger {
        PrivacyLedger::new(LedgerHeader::new(
            UnitOfPrivacy::Example,
            NeighboringRelation::AddOrRemoveOne,
        ))
    }

    #[test]
    fn empty_ledger_has_spent_nothing() {
        assert_eq!(ledger().epsilon(1e-5).unwrap().upper, 0.0);
        assert_eq!(ledger().releases(), 0);
    }

    #[test]
    fn equal_releases_share_one_entry() {
        let mut ledger = ledger();
        let step = DpEvent::dp_sgd_step(0.01, 1.0);
        for _ in 0..5 {
            ledger.record(&step).unwrap();
        }
        ledger.record(&DpEvent::gaussian(5.0)).unwrap();
        ledger.record_many(&step, 3).unwrap();
        let counts: Vec<u64> = ledger.entries().iter().map(|e| e.count).collect();
        assert_eq!(counts, [5, 1, 3]);
        assert_eq!(ledger.releases(), 9);
    }

    #[test]
    fn faulty_event_is_refused_and_not_recorded() {
        let mut ledger = ledger();
        let error = ledger.record(&DpEvent::dp_sgd_step(1.5, 1.0)).unwrap_err();
        assert!(error.to_string().contains("sampling_probability"), "{error}");
        assert!(ledger.record(&DpEvent::gaussian(f64::NAN)).is_err());
        assert_eq!(ledger.releases(), 0);
    }

    #[test]
    fn insecure_noise_makes_epsilon_infinite_permanently() {
        let mut ledger = ledger();
        ledger.record(&DpEvent::gaussian(1.0)).unwrap();
        ledger.mark_insecure("fixed seed");
        let epsilon = ledger.epsilon(1e-5).unwrap();
        assert!(epsilon.upper.is_infinite() && epsilon.notes[0].contains("fixed seed"));
        assert!(ledger.nominal_epsilon(1e-5).unwrap().upper.is_finite());
        let mut other = self::ledger();
        other.merge(&ledger).unwrap();
        assert!(other.epsilon(1e-5).unwrap().upper.is_infinite());
    }

    #[test]
    fn merging_requires_equal_unit_and_relation() {
        let mut user = PrivacyLedger::new(LedgerHeader::new(
            UnitOfPrivacy::User,
            NeighboringRelation::AddOrRemoveOne,
        ));
        assert!(matches!(user.merge(&ledger()), Err(AccountantError::Mismatch { .. })));
    }

    #[test]
    fn runs_on_other_mini_sets_are_not_merged() {
        let relation = NeighboringRelation::AddOrRemoveOne;
        let unused = |members: &str| {
            let header = LedgerHeader::new(UnitOfPrivacy::MiniSet, relation);
            PrivacyLedger::new(header.with_fact("mini_set_members", members))
        };
        let sets = |members: &str| {
            let mut ledger = unused(members);
            ledger.record(&DpEvent::gaussian(3.0)).unwrap();
            ledger
        };
        let before = sets("a");
        let mut merged = before.clone();
        let error = merged.merge(&sets("b")).unwrap_err().to_string();
        assert!(error.contains("mini_set_members is a in one and b"), "{error}");
        assert_eq!(merged, before);
        merged.merge(&sets("a")).unwrap();
        merged.merge(&unused("b")).unwrap();
        assert_eq!(merged.releases(), 2);
    }

    #[test]
    fn a_merged_ledger_says_what_each_of_both_says() {
        let run = |clipping: &str, size: usize| {
            let relation = NeighboringRelation::ReplaceOne;
            let header = LedgerHeader::new(UnitOfPrivacy::Example, relation)
                .with_clipping(clipping)
                .with_fact("dataset_size", size)
                .with_not_covered(format!("what {clipping} leaves out"));
            let mut ledger = PrivacyLedger::new(header);
            ledger.record(&DpEvent::gaussian(3.0)).unwrap();
            ledger
        };
        let mut merged = run("flat", 100);
        merged.merge(&run("automatic", 200)).unwrap();
        merged.add_fact("public_data", "one; two");
        merged.add_fact("public_data", "two; three");
        merged.add_not_covered("what flat leaves out");
        let header = merged.header();
        assert_eq!(header.clipping, "flat; automatic");
        assert_eq!(header.facts["public_data"], "one; two; three");
        assert_eq!(header.not_covered, ["what flat leaves out", "what automatic leaves out"]);
        assert_eq!(header.units(), Some(200.0));
    }

    #[test]
    fn max_steps_meets_the_budget_and_one_more_breaks_it() {
        let mut ledger = ledger();
        let step = DpEvent::dp_sgd_step(0.02, 1.0);
        ledger.record_many(&step, 100).unwrap();
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let n = ledger.max_steps(&step, 2.0, 1e-5).unwrap();
        assert!(ledger.epsilon_after(&step, n, 1e-5).unwrap().upper <= 2.0);
        assert!(ledger.epsilon_after(&step, n + 1, 1e-5).unwrap().upper > 2.0);
        assert!(ledger.within_budget(&step, n, budget).unwrap());
        assert!(!ledger.within_budget(&step, n + 1, budget).unwrap());
        ledger.record_many(&step, n - 1).unwrap();
        assert!(ledger.within_budget(&step, 1, budget).unwrap());
        ledger.record(&step).unwrap();
        assert!(!ledger.within_budget(&step, 1, budget).unwrap());
        ledger.record(&step).unwrap();
        assert!(!ledger.within_budget(&step, 1, budget).unwrap());
    }

    #[test]
    fn a_simulation_that_has_nothing_to_simulate_allows_no_further_step() {
        let header = ledger().header().clone().with_simulation(Simulation::new(1));
        let (certified, simulated) = (ledger(), PrivacyLedger::new(header));
        let every = Participation::FixedOrder { period: 1 };
        let run = DpEvent::correlated_gaussian(5.0, &Strategy::identity(20).unwrap(), every);
        let budget = Budget::new(3.0, 1e-5).unwrap();
        for event in [run, DpEvent::gaussian(5.0)] {
            let steps = certified.max_steps_within(&event, budget).unwrap();
            assert!((2..20).contains(&steps), "{event}: {steps}");
            assert_eq!(simulated.max_steps_within(&event, budget).unwrap(), steps, "{event}");
        }
    }

    #[test]
    fn resumed_ledger_continues_the_saved_ledger() {
        let mut earlier = ledger();
        earlier.record_many(&DpEvent::gaussian(2.0), 3).unwrap();
        let mut later = earlier.clone();
        later.record_many(&DpEvent::gaussian(2.0), 2).unwrap();
        later.record(&DpEvent::gaussian(3.0)).unwrap();
        assert!(later.continues(&earlier) && later.continues(&ledger()));
        assert!(!earlier.continues(&later));
        // Nothing else that decides epsilon may change.
        let header = ledger().header().clone();
        for other in [
            LedgerHeader::new(UnitOfPrivacy::User, header.relation),
            LedgerHeader::new(header.unit.clone(), NeighboringRelation::ReplaceOne),
            header.clone().with_simulation(Simulation::new(1)),
        ] {
            let mut other = PrivacyLedger::new(other);
            assert!(!other.continues(&ledger()));
            other.record_many(&DpEvent::gaussian(2.0), 3).unwrap();
            assert!(!other.continues(&earlier), "{:?}", other.header());
        }
    }

    #[test]
    fn unsupported_events_are_refused() {
        let mut ledger = ledger();
        ledger.record(&DpEvent::gaussian(5.0)).unwrap();
        ledger.record(&DpEvent::Unsupported { reason: "weights".into() }).unwrap();
        assert!(matches!(ledger.epsilon(1e-5), Err(AccountantError::Unsupported { .. })));
    }

    #[test]
    fn budget_checks_after_the_first_do_not_search() {
        let mut ledger = ledger();
        let step = DpEvent::dp_sgd_step(0.01, 1.0);
        let budget = Budget::new(8.0, 1e-5).unwrap();
        assert!(ledger.within_budget(&step, 1, budget).unwrap());
        let kept = |ledger: &PrivacyLedger| {
            ledger.allowance.lock().unwrap().as_ref().map(|allowance| allowance.remaining)
        };
        let first = kept(&ledger).unwrap();
        // A number that no search returns, so an answer with it was not searched.
        let planted = 1_500;
        assert!(first > 2 * planted, "{first}");
        ledger.allowance.lock().unwrap().as_mut().unwrap().remaining = planted;
        for step_index in 0..1_000 {
            let left = planted - step_index;
            assert!(ledger.within_budget(&step, left, budget).unwrap());
            assert!(!ledger.within_budget(&step, left + 1, budget).unwrap());
            ledger.record(&step).unwrap();
        }
        assert_eq!(ledger.releases(), 1_000);
        assert_eq!(kept(&ledger), Some(planted - 1_000));
        // Another event or another budget requires a new search.
        let other = Budget::new(8.0, 1e-6).unwrap();
        assert!(ledger.within_budget(&step, planted, other).unwrap());
        ledger.record(&DpEvent::gaussian(50.0)).unwrap();
        assert_eq!(kept(&ledger), None);
    }

    #[test]
    fn a_group_of_units_is_not_protected_by_insecure_noise() {
        let mut ledger = ledger();
        ledger.record(&DpEvent::gaussian(2.0)).unwrap();
        assert!(ledger.group_epsilon(2, 1e-5).unwrap().upper.is_finite());
        ledger.mark_insecure("seed");
        assert!(ledger.group_epsilon(2, 1e-5).unwrap().upper.is_infinite());
    }

    #[test]
    fn a_ledger_with_secure_noise_does_not_continue_one_without() {
        let mut secure = ledger();
        secure.record(&DpEvent::gaussian(2.0)).unwrap();
        let mut insecure = secure.clone();
        insecure.mark_insecure("seed");
        assert!(insecure.continues(&secure) && insecure.continues(&insecure));
        assert!(!secure.continues(&insecure));
        let mut longer = secure.clone();
        longer.record(&DpEvent::gaussian(3.0)).unwrap();
        assert!(longer.continues(&secure) && !secure.continues(&longer));
        assert!(secure != longer && secure != insecure && secure == secure.clone());
    }

    #[test]
    fn releases_that_overflow_are_refused_and_not_recorded() {
        let event = DpEvent::gaussian(2.0);
        let mut full = ledger();
        full.record_many(&event, u64::MAX).unwrap();
        let before = full.clone();
        assert!(full.record(&event).is_err() && full.record(&DpEvent::gaussian(3.0)).is_err());
        let mut two = ledger();
        two.record(&DpEvent::gaussian(5.0)).unwrap();
        two.record(&event).unwrap();
        let mut other = before.clone();
        assert!(other.merge(&two).is_err());
        assert!(full == before && other == before);
        let mut small = two.clone();
        assert!(small.merge(&before).is_err());
        assert!(small == two);
    }
}
