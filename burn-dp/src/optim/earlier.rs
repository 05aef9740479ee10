//! Releases on the same data that took place before a run.

use std::fmt;

use burn_dp_accountant::{
    AccountantError, DpEvent, LedgerEntry, LedgerHeader, NeighboringRelation, NoiseProvenance,
    PrivacyLedger, UnitOfPrivacy,
};
use serde::{Deserialize, Serialize};

use super::PUBLIC_DATA;
use super::engine::not_covered;
use crate::DpError;
use crate::updates::MiniSets;

/// The ledgers of earlier releases, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct EarlierReleases(Vec<PrivacyLedger>);

impl EarlierReleases {
    pub(super) fn push(&mut self, ledger: PrivacyLedger) {
        self.0.push(ledger);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all entries, in order, and what their ledgers do not cover.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] for a ledger of another unit, of other mini-sets, or of
    /// another relation, and for a ledger whose noise can be reproduced, and
    /// [`DpError::Accountant`] if the number of releases overflows.
    pub(super) fn checked(
        &self,
        unit: &UnitOfPrivacy,
        relation: NeighboringRelation,
        mini_sets: Option<&MiniSets>,
    ) -> Result<Earlier, DpError> {
        let mut all = PrivacyLedger::new(LedgerHeader::new(unit.clone(), relation));
        let mut earlier = Earlier::default();
        for ledger in &self.0 {
            match (unit, mini_sets) {
                (UnitOfPrivacy::MiniSet, Some(sets)) => check_members(ledger.header(), sets)?,
                (UnitOfPrivacy::MiniSet, None) if ledger.releases() > 0 => {
                    return Err(DpError::invalid(
                        "earlier_releases",
                        "must be of the same mini-sets, got a plan that does not name its own; \
                         create it with `PrivacyPlanConfig::for_mini_sets`",
                    ));
                }
                _ => {}
            }
            earlier.describe(ledger.header());
            if let NoiseProvenance::Insecure { reason } = &ledger.header().noise_source {
                return Err(DpError::invalid(
                    "earlier_releases",
                    format!(
                        "must have secret noise, got a ledger whose noise can be reproduced \
                         ({reason}): nothing that is composed with it is private; leave it out if \
                         it was made of other data"
                    ),
                ));
            }
            all.merge(ledger).map_err(|error| match error {
                AccountantError::Mismatch { .. } => DpError::invalid(
                    "earlier_releases",
                    format!(
                        "must be for {unit} and \"{relation}\" as the plan is, got a ledger for \
                         {} and \"{}\"; plan with the sampler and the unit of the earlier releases",
                        ledger.header().unit,
                        ledger.header().relation
                    ),
                ),
                error => error.into(),
            })?;
        }
        Ok(Earlier { entries: all.entries().to_vec(), ..earlier })
    }
}

/// Returns an error unless a ledger has the mini-sets of the plan: another division has other
/// units, and one of its mini-sets has examples of many of the plan's mini-sets.
fn check_members(header: &LedgerHeader, sets: &MiniSets) -> Result<(), DpError> {
    let own = sets.describe(LedgerHeader::new(header.unit.clone(), header.relation));
    for (name, expected) in &own.facts {
        let found = header.facts.get(name);
        if found != Some(expected) {
            let found = found.map_or("not stated", String::as_str);
            return Err(DpError::invalid(
                "earlier_releases",
                format!(
                    "must be of the mini-sets of the plan: {name} is {expected}, and {found} in \
                     the ledger; plan with the same mini-sets (the same seed and size)"
                ),
            ));
        }
    }
    Ok(())
}

/// The releases before the first step of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Earlier {
    pub(super) entries: Vec<LedgerEntry>,
    not_covered: Vec<String>,
    public_data: Vec<String>,
}

/// Prefix of a sentence from an earlier ledger.
const OF_EARLIER: &str = "Of an earlier release: ";

/// A case that the sum of privacy losses does not cover.
const CHOSEN_LATER: &str = "A choice of noise, sampling or number of steps of this run that was \
     made after results of the earlier releases were seen: epsilon is for settings that were fixed \
     before the first release.";

impl Earlier {
    /// Adds the limitations of a ledger and the public data that it names.
    fn describe(&mut self, header: &LedgerHeader) {
        let new = |known: &[String], text: &String| !known.contains(text);
        // What the statement of every run says.
        let usual = not_covered::sentences();
        for sentence in &header.not_covered {
            let is_usual = sentence == CHOSEN_LATER || usual.contains(sentence);
            if !is_usual && new(&self.not_covered, sentence) {
                self.not_covered.push(sentence.clone());
            }
        }
        for name in [PUBLIC_DATA, PUBLIC_DATA_OF_EARLIER] {
            let data = header.facts.get(name).filter(|data| new(&self.public_data, data));
            self.public_data.extend(data.cloned());
        }
    }
}

/// The fact of a statement that names the public data of earlier releases.
const PUBLIC_DATA_OF_EARLIER: &str = "public_data_of_earlier_releases";

/// Returns each event with its number of releases.
pub(super) fn counted(entries: &[LedgerEntry]) -> impl Iterator<Item = (&DpEvent, u64)> {
    entries.iter().map(|entry| (&entry.event, entry.count))
}

/// Returns the number of releases of entries.
fn releases(entries: &[LedgerEntry]) -> u64 {
    entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.count))
}

/// The earlier releases of a plan in words, with a digest that makes them exact.
struct Described<'a>(&'a [LedgerEntry]);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = serde_json::to_vec(self.0).unwrap_or_default();
        let digest = &blake3::hash(&exact).to_hex()[..16];
        write!(f, "{} of earlier ledgers, {digest}", releases(self.0))
    }
}

impl Earlier {
    /// Returns how many releases of the ledger of a run are its own, after the earlier ones.
    pub(super) fn own_releases(&self, ledger: &PrivacyLedger) -> u64 {
        ledger.releases().saturating_sub(releases(&self.entries))
    }

    /// Returns whether a ledger has these releases and then the first of the `planned` ones: the
    /// first of these may continue the last entry of the earlier releases.
    pub(super) fn is_prefix(&self, planned: &[(DpEvent, u64)], ledger: &PrivacyLedger) -> bool {
        let header = ledger.header();
        // Called in every step, so the header is not described.
        let mut expected = self.recorded(LedgerHeader::new(header.unit.clone(), header.relation));
        let mut left = self.own_releases(ledger);
        for (event, count) in planned {
            let taken = left.min(*count);
            if expected.record_many(event, taken).is_err() {
                return false;
            }
            left -= taken;
        }
        left == 0 && expected.entries() == ledger.entries()
    }

    /// Returns the releases in words; `None` if there are none.
    pub(super) fn in_words(&self) -> Option<String> {
        (!self.entries.is_empty()).then(|| Described(&self.entries).to_string())
    }

    /// Returns the ledger with this header before the first step: with these releases.
    pub(super) fn ledger(&self, mut header: LedgerHeader) -> PrivacyLedger {
        if let Some(earlier) = self.in_words() {
            let earlier = format!("{earlier}; they are the first releases, and part of epsilon");
            header = header.with_fact("earlier_releases", earlier).with_not_covered(CHOSEN_LATER);
            if !self.public_data.is_empty() {
                header = header.with_fact(PUBLIC_DATA_OF_EARLIER, self.public_data.join("; "));
            }
            for sentence in &self.not_covered {
                if header.not_covered.contains(sentence) {
                    continue;
                }
                let sentence = sentence.strip_prefix(OF_EARLIER).unwrap_or(sentence);
                header = header.with_not_covered(format!("{OF_EARLIER}{sentence}"));
            }
        }
        self.recorded(header)
    }

    /// Returns a ledger of these releases.
    fn recorded(&self, header: LedgerHeader) -> PrivacyLedger {
        let mut ledger = PrivacyLedger::new(header);
        for entry in &self.entries {
            // Entries of a ledger are valid; otherwise nothing may be claimed.
            if ledger.record_many(&entry.event, entry.count).is_err() {
                ledger.mark_insecure("an earlier release cannot be recorded");
            }
        }
        ledger
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::config::Config;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::Device;
    use burn_dp_accountant::Budget;

    use super::*;
    use crate::optim::{PrivacyPlanConfig, SamplingScheme};
    use crate::schedule::Schedule;
    use crate::updates::UnitUpdate;

    fn header() -> LedgerHeader {
        LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne)
    }

    fn ledger(event: &DpEvent, count: u64) -> PrivacyLedger {
        let mut ledger = PrivacyLedger::new(header());
        ledger.record_many(event, count).unwrap();
        ledger
    }

    fn config() -> PrivacyPlanConfig {
        PrivacyPlanConfig::new(10_000, 100.0).with_steps(500)
    }

    #[test]
    fn the_budget_covers_the_earlier_releases_and_the_run() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let before = ledger(&DpEvent::gaussian(8.0), 2);
        let alone = config().with_budget(budget).init().unwrap();
        let schedule = || Schedule::steps([(250, 2.0)]).unwrap();
        for config in [config(), config().with_noise_schedule(schedule())] {
            let config = config.with_earlier_releases(before.clone());
            let plan = config.with_budget(budget).init().unwrap();
            if plan.planned.len() == 1 {
                assert!(plan.noise_multiplier() > alone.noise_multiplier());
            }
            let mut all = before.clone();
            for (event, count) in &plan.planned {
                all.record_many(event, *count).unwrap();
            }
            let spent = all.epsilon(1e-5).unwrap().upper;
            assert!((1.99..=2.0).contains(&spent), "{spent}");
            assert!((plan.epsilon_at_end(1e-5).unwrap() / spent - 1.0).abs() < 1e-9);
            assert!(
                plan.is_prefix(&plan.new_ledger())
                    && plan.is_prefix(&{
                        let mut ledger = plan.new_ledger();
                        ledger.record_many(&plan.event(), 7).unwrap();
                        ledger
                    })
            );
            assert_eq!(plan.own_releases(&plan.new_ledger()), 0);
        }
        let spent = ledger(&DpEvent::gaussian(1.0), 1);
        let error = config().with_budget(budget).with_earlier_releases(spent).init().unwrap_err();
        assert!(error.to_string().contains("the earlier releases alone cost"), "{error}");
    }

    #[test]
    fn a_run_stops_where_it_and_the_earlier_releases_reach_the_budget() {
        let budget = Budget::new(2.0, 1e-4).unwrap();
        let plan = PrivacyPlanConfig::new(2_000, 100.0)
            .with_steps(1_000)
            .with_noise_multiplier(1.0)
            .with_budget(budget)
            .with_earlier_releases(ledger(&DpEvent::gaussian(100.0), 900))
            .init()
            .unwrap();
        let expected = plan.new_ledger().max_steps_within(&plan.event(), budget).unwrap();
        assert!((1..900).contains(&expected), "{expected}");
        let sampler = plan.sampler().unwrap();
        let mut model = LinearConfig::new(1, 1).init(&Device::flex().autodiff());
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let error = loop {
            let draw = sampler.draw(optim.next_step()).unwrap();
            let zero = |_: Linear, _: usize| Ok(UnitUpdate::zero());
            optim.unit_updates(&model, &draw, zero).unwrap();
            match optim.step(0.1, model, draw) {
                Ok(next) => model = next,
                Err(refused) => break DpError::from(refused),
            }
        };
        assert!(matches!(error, DpError::BudgetExhausted { .. }), "{error}");
        assert_eq!(optim.next_step(), expected);
        assert_eq!(optim.ledger().releases(), 900 + expected);
        let text = optim.statement(&[1e-4]).unwrap().to_string();
        assert!(text.contains("900 x ") && text.contains("earlier releases:"), "{text}");
    }

    #[test]
    fn a_run_after_an_equal_run_is_counted_apart() {
        let step = DpEvent::dp_sgd_step(0.01, 2.0);
        let config = config().with_noise_multiplier(2.0);
        let plan = config.with_earlier_releases(ledger(&step, 300)).init().unwrap();
        let mut after = plan.new_ledger();
        assert_eq!((after.releases(), plan.own_releases(&after)), (300, 0));
        after.record_many(&step, 500).unwrap();
        assert_eq!((after.entries().len(), plan.own_releases(&after)), (1, 500));
        assert!(plan.is_prefix(&after));
        after.record(&step).unwrap();
        assert!(!plan.is_prefix(&after));
        // A ledger without the earlier releases does not belong to this plan.
        assert!(!plan.is_prefix(&ledger(&step, 200)));
        assert!(!plan.is_prefix(&ledger(&DpEvent::gaussian(9.0), 300)));
    }

    #[test]
    fn earlier_releases_of_another_guarantee_are_refused() {
        let budget = || config().with_noise_multiplier(2.0);
        let refused = |ledger: PrivacyLedger, config: PrivacyPlanConfig| {
            config.with_earlier_releases(ledger).init().unwrap_err().to_string()
        };
        let step = DpEvent::gaussian(9.0);
        let error = refused(ledger(&step, 1), budget().with_unit(UnitOfPrivacy::User));
        assert!(error.contains("earlier_releases must be for one user"), "{error}");
        assert!(error.contains("got a ledger for one example"), "{error}");
        let error = refused(ledger(&step, 1), budget().with_sampling(SamplingScheme::FixedSize));
        assert!(error.contains("replace one unit") && error.contains("sampler"), "{error}");
        let mut insecure = ledger(&step, 1);
        insecure.mark_insecure("fixed seed 42");
        let error = refused(insecure, budget());
        assert!(error.contains("fixed seed 42") && error.contains("leave it out"), "{error}");
    }

    #[test]
    fn mini_sets_of_another_division_are_other_units() {
        let config = |seed| {
            let sets = MiniSets::shuffled(600, 60, seed).unwrap();
            PrivacyPlanConfig::for_mini_sets(&sets, 2.0).with_steps(5).with_noise_multiplier(2.0)
        };
        let mut before = config(1).init().unwrap().new_ledger();
        before.record(&DpEvent::gaussian(9.0)).unwrap();
        let after = |seed| config(seed).with_earlier_releases(before.clone()).init();
        assert_eq!(after(1).unwrap().new_ledger().releases(), 1);
        let error = after(2).unwrap_err().to_string();
        assert!(
            error.contains("must be of the mini-sets of the plan: mini_set_members"),
            "{error}"
        );
        let mut unknown = LedgerHeader::new(UnitOfPrivacy::MiniSet, before.header().relation);
        unknown.facts.clear();
        let error = config(1).with_earlier_releases(PrivacyLedger::new(unknown)).init();
        assert!(error.unwrap_err().to_string().contains("not stated in the ledger"));
        // A plan of mini-sets that it does not name.
        let unnamed = PrivacyPlanConfig::new(10, 2.0).with_steps(5).with_noise_multiplier(2.0);
        let unnamed = unnamed.with_unit(UnitOfPrivacy::MiniSet);
        assert!(unnamed.clone().init().is_ok());
        let error = unnamed.with_earlier_releases(before).init().unwrap_err().to_string();
        assert!(error.contains("`PrivacyPlanConfig::for_mini_sets`"), "{error}");
    }

    #[test]
    fn what_earlier_ledgers_do_not_cover_the_statement_repeats() {
        let scores = "The other runs of the search.";
        let step = DpEvent::gaussian(50.0);
        let mut first = PrivacyLedger::new(
            header().with_not_covered(scores).with_fact(PUBLIC_DATA, "public images"),
        );
        first.record(&step).unwrap();
        let next = |before: PrivacyLedger| {
            let config = config().with_noise_multiplier(2.0).with_earlier_releases(before);
            config.init().unwrap().new_ledger()
        };
        let second = next(first.clone());
        // Also for the releases before the earlier ones.
        for ledger in [&second, &next(second.clone())] {
            let sentences = &ledger.header().not_covered;
            let count = |text: &str| sentences.iter().filter(|found| *found == text).count();
            assert_eq!(count(&format!("{OF_EARLIER}{scores}")), 1, "{sentences:?}");
            assert_eq!(count(CHOSEN_LATER), 1);
            let all: std::collections::BTreeSet<_> = sentences.iter().collect();
            assert_eq!(all.len(), sentences.len());
            assert_eq!(ledger.header().facts[PUBLIC_DATA_OF_EARLIER], "public images");
        }
    }

    #[test]
    fn earlier_releases_are_saved_with_the_configuration_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let with = |sigma: f64| {
            let config = config().with_noise_multiplier(2.0);
            config.with_earlier_releases(ledger(&DpEvent::gaussian(sigma), 3))
        };
        with(9.0).save(&path).unwrap();
        let loaded = PrivacyPlanConfig::load(&path).unwrap();
        assert_eq!(loaded.earlier, with(9.0).earlier);
        let fingerprint = |config: PrivacyPlanConfig| config.init().unwrap().fingerprint();
        assert_eq!(fingerprint(loaded), fingerprint(with(9.0)));
        assert_ne!(fingerprint(with(9.0)), fingerprint(with(8.0)));
        // The last of two counts would otherwise be the one that counts.
        let text = serde_json::to_string(&with(9.0)).unwrap();
        assert!(serde_json::from_str::<PrivacyPlanConfig>(&text).is_ok());
        let repeated = text.replacen("\"count\":3", "\"count\":3,\"count\":1", 1);
        assert_ne!(repeated, text);
        assert!(serde_json::from_str::<PrivacyPlanConfig>(&repeated).is_err());
        let named = "earlier_releases";
        assert!(fingerprint(with(9.0))[named].starts_with("3 of earlier ledgers"));
        assert!(!fingerprint(config().with_noise_multiplier(2.0)).contains_key(named));
    }
}
