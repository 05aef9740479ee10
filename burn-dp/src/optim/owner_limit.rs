//! The guarantee of a plan for examples with several owners.

use burn_dp_accountant::{LedgerHeader, NeighboringRelation, UnitOfPrivacy};
use serde::{Deserialize, Serialize};

use super::SamplingScheme;
use crate::DpError;
use crate::sampling::OwnedExamples;

/// The public numbers of a selection of [`OwnedExamples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnerLimit {
    users: usize,
    max_examples: usize,
    /// Which examples were selected.
    digest: u64,
}

impl From<&OwnedExamples> for OwnerLimit {
    fn from(selection: &OwnedExamples) -> Self {
        Self {
            users: selection.users(),
            max_examples: selection.max_examples(),
            digest: selection.digest(),
        }
    }
}

impl OwnerLimit {
    /// Returns the digest of the selection, as the data set of the selected examples states it.
    pub(crate) fn members(self) -> String {
        format!("{:016x}", self.digest)
    }

    /// Returns the number of units that δ is compared with: there can be more users than examples.
    pub(crate) fn units(self, examples: usize) -> usize {
        examples.max(self.users)
    }

    /// Returns the relation for a sampler with the given relation: the ownership graph is fixed, so
    /// an example is never added or removed, and contributes nothing instead.
    pub(crate) fn relation(self, of_sampler: NeighboringRelation) -> NeighboringRelation {
        match of_sampler {
            NeighboringRelation::AddOrRemoveOne => NeighboringRelation::ReplaceSpecial,
            other => other,
        }
    }

    /// Returns the unit: the user if neighbors differ in one selected example, or if this was
    /// requested.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if another unit was given, if the unit is the user and
    /// the sampling does not account for several of their examples, or if a file has numbers that
    /// no selection has.
    pub(crate) fn unit(
        self,
        given: &UnitOfPrivacy,
        scheme: SamplingScheme,
    ) -> Result<UnitOfPrivacy, DpError> {
        let Self { users, max_examples, .. } = self;
        if users == 0 || max_examples == 0 {
            return Err(DpError::invalid(
                "owners",
                format!(
                    "must be at least one user with at least one example, got {users} and \
                     {max_examples}"
                ),
            ));
        }
        let user = || {
            let user = "one user, with the content of all examples that they own alone or with \
                        others";
            Ok(UnitOfPrivacy::Other(user.into()))
        };
        match given {
            UnitOfPrivacy::Example if max_examples == 1 => user(),
            UnitOfPrivacy::Example => Ok(UnitOfPrivacy::Example),
            UnitOfPrivacy::User if max_examples == 1 || accounts_for_several(scheme) => user(),
            UnitOfPrivacy::User => Err(DpError::invalid(
                "unit",
                format!(
                    "is one user, who owns up to {max_examples} examples, and no analysis of this \
                     sampling is known for several examples of a user; use Poisson sampling, \
                     sampling with replacement or shuffled epochs, a selection of one example for \
                     each user, or leave the unit out"
                ),
            )),
            other => Err(DpError::invalid(
                "unit",
                format!(
                    "is {other}, but follows from the selection, in which a user owns up to \
                     {max_examples} examples; leave it out"
                ),
            )),
        }
    }

    /// Returns the maximum number of examples of one unit.
    pub(crate) fn examples_of(self, unit: &UnitOfPrivacy) -> u64 {
        match unit {
            UnitOfPrivacy::Example => 1,
            _ => self.max_examples as u64,
        }
    }

    /// Adds the numbers to a ledger, and the limits of the guarantee.
    pub(crate) fn describe(self, unit: &UnitOfPrivacy, header: LedgerHeader) -> LedgerHeader {
        let Self { users, max_examples, .. } = self;
        let header = header
            .with_fact("owners", users)
            .with_fact("examples_of_an_owner", max_examples)
            .with_not_covered(
                "The ownership graph: who owns which examples, alone or with others, and who is a \
                 user at all. It is public, and a user who is added or removed with their examples \
                 changes which other examples are selected.",
            );
        match (max_examples, unit) {
            (2.., UnitOfPrivacy::Example) => header.with_not_covered(format!(
                "A user: they own up to {max_examples} of the examples, alone or with others, \
                 which is a group of {max_examples} units."
            )),
            _ => header,
        }
    }
}

/// Returns whether the events of a scheme cover several examples of a unit.
fn accounts_for_several(scheme: SamplingScheme) -> bool {
    matches!(
        scheme,
        SamplingScheme::Poisson
            | SamplingScheme::WithReplacement
            | SamplingScheme::Shuffled
            | SamplingScheme::ShuffledOnce
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::config::Config;
    use burn_dp_accountant::correlated_noise::Strategy;
    use burn_dp_accountant::{Accountant, Budget, DpEvent, PldAccountant};

    use super::*;
    use crate::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
    use crate::schedule::Schedule;
    use crate::updates::MiniSets;

    /// Each of 300 examples belongs to two of 100 users.
    fn selection(max_examples: usize) -> OwnedExamples {
        let owners = (0..300).map(|i| vec![i % 100, (7 * i + 3) % 100]);
        OwnedExamples::in_order(owners, max_examples).unwrap()
    }

    fn config(max_examples: usize) -> PrivacyPlanConfig {
        PrivacyPlanConfig::for_owned_examples(&selection(max_examples), 5.0)
            .with_steps(10)
            .with_noise_multiplier(1.0)
    }

    fn not_covered(plan: &PrivacyPlan) -> String {
        plan.new_ledger().header().not_covered.join(" ")
    }

    #[test]
    fn the_unit_is_the_user_only_if_users_own_one_selected_example() {
        let one = config(1).init().unwrap();
        assert!(one.unit().to_string().starts_with("one user, with the content"));
        assert_eq!(one.dataset_size(), selection(1).len());
        assert!(not_covered(&one).contains("ownership graph"));
        assert!(!not_covered(&one).contains("group of"));
        let several = config(3).init().unwrap();
        assert_eq!(*several.unit(), UnitOfPrivacy::Example);
        assert!(not_covered(&several).contains("group of 3 units"));
        for scheme in [SamplingScheme::FixedSize, SamplingScheme::CyclicPoisson { parts: 2 }] {
            let user = config(3).with_unit(UnitOfPrivacy::User).with_sampling(scheme);
            let error = user.init().unwrap_err().to_string();
            assert!(error.contains("up to 3 examples") && error.contains("Poisson"), "{error}");
        }
        let set = config(3).with_unit(UnitOfPrivacy::MiniSet);
        assert!(set.init().unwrap_err().to_string().contains("up to 3 examples"));
    }

    #[test]
    fn a_user_with_several_examples_in_a_draw_is_accounted_for() {
        use crate::clipping::{CountNoise, QuantileClipping};
        let epsilon = |plan: &PrivacyPlan| plan.epsilon_at_end(1e-3).unwrap();
        let user = |k| config(k).with_unit(UnitOfPrivacy::User).init().unwrap();
        let plan = user(3);
        assert!(plan.unit().to_string().starts_with("one user, with the content"));
        assert!(!not_covered(&plan).contains("group of"));
        assert_eq!(user(1).unit(), config(1).init().unwrap().unit());
        let q = plan.sampling_probability();
        let event = DpEvent::poisson_sampled_examples(q, 1.0, 3).unwrap();
        let relation = NeighboringRelation::ReplaceSpecial;
        let expected = PldAccountant::new([(&event, 10)], relation).unwrap();
        let expected = expected.epsilon(1e-3).unwrap().upper;
        assert!((epsilon(&plan) / expected - 1.0).abs() < 1e-6, "{expected}");
        assert!(epsilon(&plan) > epsilon(&config(3).init().unwrap()));
        // The counts of adaptive clipping change by as many contributions as the sum.
        let counts = QuantileClipping::new(0.5).unwrap().with_count_noise(CountNoise::Share(0.1));
        let counted = config(3).with_unit(UnitOfPrivacy::User).with_clipping(counts);
        assert!((epsilon(&counted.init().unwrap()) / expected - 1.0).abs() < 1e-6);
        // A budget is met, with more noise than for an example.
        let budget = Budget::new(1.0, 1e-3).unwrap();
        let calibrated = |unit| {
            let config = PrivacyPlanConfig::for_owned_examples(&selection(3), 5.0).with_steps(10);
            config.with_budget(budget).with_unit(unit).init().unwrap()
        };
        let (user, example) = (calibrated(UnitOfPrivacy::User), calibrated(UnitOfPrivacy::Example));
        assert!(epsilon(&user) <= 1.0 && epsilon(&user) > 0.99, "{}", epsilon(&user));
        assert!(user.noise_multiplier() > 1.3 * example.noise_multiplier());
    }

    #[test]
    fn several_examples_in_draws_with_replacement_and_in_epochs_are_accounted_for() {
        let epsilon = |plan: PrivacyPlan| plan.epsilon_at_end(1e-3).unwrap();
        let user = |scheme, multiplier: f64| {
            let config = PrivacyPlanConfig::for_owned_examples(&selection(3), 5.0).with_steps(10);
            let config = config.with_noise_multiplier(multiplier).with_sampling(scheme);
            config.with_unit(UnitOfPrivacy::User).init().unwrap()
        };
        // Each draw is an example of the user with a probability of at most 1 / ⌊N/3⌋.
        let examples = selection(3).len() as u64;
        let event = DpEvent::SampledWithReplacement {
            dataset_size: examples / 3,
            sample_size: 5,
            event: Box::new(DpEvent::gaussian(1.0)),
        };
        let relation = NeighboringRelation::ReplaceOne;
        let expected = PldAccountant::new([(&event, 10)], relation).unwrap();
        let expected = expected.epsilon(1e-3).unwrap().upper;
        let found = epsilon(user(SamplingScheme::WithReplacement, 1.0));
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        // Where a step counts as if it had all units: three times the noise of one example. Also
        // with correlated noise, with a schedule, and with counts.
        use crate::clipping::{CountNoise, QuantileClipping};
        let strategy = Strategy::banded_toeplitz(10, &[1.0, 0.5]).unwrap();
        let schedule = Schedule::exponential(0.95, 3).unwrap();
        for scheme in [SamplingScheme::Shuffled, SamplingScheme::ShuffledOnce] {
            let plain = |config: PrivacyPlanConfig| config;
            let correlated =
                |config: PrivacyPlanConfig| config.with_correlated_noise(strategy.clone());
            let scheduled =
                |config: PrivacyPlanConfig| config.with_noise_schedule(schedule.clone());
            let counted = |config: PrivacyPlanConfig| {
                let quantile = QuantileClipping::new(0.5).unwrap();
                config.with_clipping(quantile.with_count_noise(CountNoise::Share(0.1)))
            };
            let ways: [&dyn Fn(PrivacyPlanConfig) -> PrivacyPlanConfig; 4] =
                [&plain, &correlated, &scheduled, &counted];
            for (way, change) in ways.into_iter().enumerate() {
                let plan = |multiplier: f64, unit| {
                    let config = PrivacyPlanConfig::for_owned_examples(&selection(3), 5.0);
                    let config = config.with_steps(10).with_sampling(scheme).with_unit(unit);
                    change(config.with_noise_multiplier(multiplier)).init().unwrap()
                };
                let user = epsilon(plan(6.0, UnitOfPrivacy::User));
                let example = epsilon(plan(2.0, UnitOfPrivacy::Example));
                assert!((user / example - 1.0).abs() < 1e-6, "{scheme:?} {way}: {user} {example}");
            }
        }
    }

    #[test]
    fn a_fixed_graph_never_adds_or_removes() {
        let relation = |scheme| config(1).with_sampling(scheme).init().unwrap().relation();
        assert_eq!(relation(SamplingScheme::Poisson), NeighboringRelation::ReplaceSpecial);
        assert_eq!(relation(SamplingScheme::FixedSize), NeighboringRelation::ReplaceOne);
        let plan = config(1).init().unwrap();
        assert_eq!(plan.new_ledger().header().relation, NeighboringRelation::ReplaceSpecial);
        // The noise equals the noise of an ordinary plan of this size.
        let size = selection(1).len();
        let plain = PrivacyPlanConfig::new(size, 5.0).with_steps(10).with_noise_multiplier(1.0);
        let epsilon = |plan: PrivacyPlan| plan.epsilon_at_end(1e-3).unwrap();
        assert_eq!(epsilon(plan), epsilon(plain.init().unwrap()));
    }

    #[test]
    fn delta_is_below_one_over_the_users_also_if_there_are_fewer_examples() {
        assert!(selection(1).len() < 100);
        let budget = Budget::new(1.0, 0.01).unwrap();
        let error = config(1).with_budget(budget).init().unwrap_err().to_string();
        assert!(error.contains("= 1e-2"), "{error}");
    }

    #[test]
    fn a_saved_selection_is_the_same_plan_and_contradictions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        config(1).save(&path).unwrap();
        let loaded = PrivacyPlanConfig::load(&path).unwrap().init().unwrap();
        let plan = config(1).init().unwrap();
        assert_eq!(loaded.fingerprint(), plan.fingerprint());
        assert_ne!(loaded.fingerprint(), config(2).init().unwrap().fingerprint());
        // Another selection with the same number of examples gives the units other owners.
        let pairs = || (0..200).map(|i| vec![i / 2]);
        let shuffled = |seed| {
            let selection = OwnedExamples::shuffled(pairs(), 1, seed).unwrap();
            assert_eq!(selection.len(), 100);
            PrivacyPlanConfig::for_owned_examples(&selection, 5.0).with_noise_multiplier(1.0)
        };
        let fingerprint = |seed| shuffled(seed).with_steps(3).init().unwrap().fingerprint();
        assert_eq!(fingerprint(1), fingerprint(1));
        assert_ne!(fingerprint(1), fingerprint(2));

        let mut json = serde_json::to_value(config(1)).unwrap();
        json["owners"]["max_examples"] = 0.into();
        let other: PrivacyPlanConfig = serde_json::from_value(json.clone()).unwrap();
        assert!(other.init().unwrap_err().to_string().contains("at least one example"));
        let sets = MiniSets::consecutive(100, 10).unwrap();
        json["owners"]["max_examples"] = 1.into();
        json["mini_sets"] = serde_json::to_value(&sets).unwrap();
        json["dataset_size"] = 10.into();
        let other: PrivacyPlanConfig = serde_json::from_value(json).unwrap();
        let error = other.init().unwrap_err().to_string();
        assert!(error.contains("mini-sets and a selection"), "{error}");
    }
}
