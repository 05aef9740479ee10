//! The privacy statement: the guarantee, its terms, and its limits.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::comparison::Comparison;
use crate::epsilon::Epsilon;
use crate::error::AccountantError;
use crate::group::GroupEpsilon;
use crate::ledger::{LedgerEntry, NoiseProvenance, PrivacyLedger, UnitOfPrivacy};
use crate::relation::NeighboringRelation;
use crate::rounded::{Rounded, with_short_numbers};
use crate::strict_json;

/// A privacy statement of a ledger, as text ([`Display`](fmt::Display)) or JSON.
///
/// Every ε in the text is an upper bound, rounded up. The text rounds numbers to the digits that
/// are meaningful; the JSON is exact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PrivacyStatement {
    /// The unit whose presence is hidden.
    pub unit: UnitOfPrivacy,
    /// The neighboring relation.
    pub relation: NeighboringRelation,
    /// Whether there is a finite guarantee: false if the noise can be reproduced or an event is not
    /// private.
    pub private: bool,
    /// ε for each δ.
    pub epsilons: Vec<Epsilon>,
    /// ε for several units at once, for each δ, if it was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupEpsilon>,
    /// Description of the sampling.
    pub sampler: String,
    /// Description of the clipping.
    pub clipping: String,
    /// Provenance of the noise.
    pub noise_source: NoiseProvenance,
    /// The releases, with sampling probability, noise multiplier and number of steps.
    pub releases: Vec<LedgerEntry>,
    /// Further public facts.
    pub facts: BTreeMap<String, String>,
    /// What the guarantee does not cover.
    pub not_covered: Vec<String>,
}

impl PrivacyStatement {
    /// Creates the statement of `ledger` with one ε for each of `deltas`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `deltas` is empty or contains a δ that is
    /// not between 0 and 1, and [`AccountantError::Unsupported`] if an event cannot be analyzed.
    pub fn from_ledger(ledger: &PrivacyLedger, deltas: &[f64]) -> Result<Self, AccountantError> {
        if deltas.is_empty() {
            return Err(AccountantError::invalid("deltas", "must contain at least one δ"));
        }
        let epsilons: Vec<Epsilon> =
            deltas.iter().map(|&delta| ledger.epsilon(delta)).collect::<Result<_, _>>()?;
        let header = ledger.header();
        let mut not_covered = vec![
            "Everything that was derived from the private data outside of the recorded releases: \
             preprocessing, choice of the model or of hyperparameters, metrics on training data."
                .to_string(),
            "Buffers of the model that are not released through the mechanism, such as running \
             statistics of batch normalization."
                .to_string(),
            "Side channels: timing, memory use, batch sizes that an observer can see.".to_string(),
        ];
        if header.unit == UnitOfPrivacy::Example {
            not_covered.push(
                "A person with several examples: the guarantee covers one example.".to_string(),
            );
        }
        not_covered.extend(header.not_covered.iter().cloned());
        if let Some(units) = header.units() {
            let large = deltas.iter().filter(|&&delta| delta * units >= 1.0);
            not_covered.extend(large.map(|delta| {
                format!(
                    "Publishing a unit outright: delta = {delta:e} is not below one over the \
                     {units} units."
                )
            }));
        }
        Ok(Self {
            unit: header.unit.clone(),
            relation: header.relation,
            private: epsilons.iter().all(|e| e.upper.is_finite()),
            epsilons,
            groups: Vec::new(),
            sampler: header.sampler.clone(),
            clipping: header.clipping.clone(),
            noise_source: header.noise_source.clone(),
            releases: ledger.entries().to_vec(),
            facts: header.facts.clone(),
            not_covered,
        })
    }

    /// Creates the statement of several runs on the same data, for whoever sees all of their
    /// results, or one that was chosen among them.
    ///
    /// The best of several runs must not be reported as one run: which one it is depends on the
    /// results of all. Their number and settings must be fixed before the first run; where results
    /// of one decide about the next, use a [`PrivacyFilter`](crate::PrivacyFilter). A random,
    /// secret number of runs costs far less: see [`search`](crate::search).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] without ledgers, [`AccountantError::Mismatch`]
    /// if their units, mini-sets or relations differ, and the errors of
    /// [`from_ledger`](Self::from_ledger).
    pub fn from_runs(ledgers: &[PrivacyLedger], deltas: &[f64]) -> Result<Self, AccountantError> {
        let [first, others @ ..] = ledgers else {
            return Err(AccountantError::invalid("ledgers", "must contain at least one run"));
        };
        let mut all = first.clone();
        others.iter().try_for_each(|other| all.merge(other))?;
        let mut statement = Self::from_ledger(&all, deltas)?;
        if others.is_empty() {
            return Ok(statement);
        }
        statement.facts.insert("runs".into(), format!("{}, all counted", ledgers.len()));
        statement.not_covered.push(
            "Settings of a run, or whether it took place, that were chosen after results of \
             another one were seen: epsilon is for runs that were fixed before the first one."
                .into(),
        );
        Ok(statement)
    }

    /// Adds the guarantee of `ledger`, which the statement was created from, for `units` units at
    /// once.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `units` is 0, and
    /// [`AccountantError::Unsupported`] if an event cannot be analyzed.
    pub fn with_group(
        mut self,
        ledger: &PrivacyLedger,
        units: u64,
    ) -> Result<Self, AccountantError> {
        for epsilon in &self.epsilons {
            self.groups.push(ledger.group_epsilon_of(units, epsilon.delta)?);
        }
        Ok(self)
    }

    /// Compares the guarantees with another statement at every δ that both have. A comparison at
    /// one δ does not determine the result at another one, because the curves of two mechanisms can
    /// cross.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Mismatch`] if the units of privacy or the neighboring relations
    /// differ, or no δ is in both, because the numbers are then not comparable.
    pub fn compare(&self, other: &Self) -> Result<Vec<Comparison>, AccountantError> {
        let mismatch = |what: &str, one: &dyn fmt::Display, two: &dyn fmt::Display| {
            let reason = format!(
                "the statements cannot be compared: {what} is {one} in one and {two} in the other"
            );
            Err(AccountantError::Mismatch { reason })
        };
        if self.unit != other.unit {
            return mismatch("the unit of privacy", &self.unit, &other.unit);
        }
        if self.relation != other.relation {
            return mismatch("the neighboring relation", &self.relation, &other.relation);
        }
        let at = |delta| other.epsilons.iter().find(|second| second.delta == delta);
        let pairs = self.epsilons.iter().filter_map(|first| Some((first, at(first.delta)?)));
        let found: Vec<_> = pairs.map(|(first, second)| Comparison::of(first, second)).collect();
        if found.is_empty() {
            let reason = "the statements cannot be compared: no δ is in both; state both at \
                          one δ"
                .to_string();
            return Err(AccountantError::Mismatch { reason });
        }
        Ok(found)
    }

    /// Reads the JSON text of [`to_json`](Self::to_json).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Format`] if the text is not a statement, or has an unknown or
    /// repeated field.
    pub fn from_json(text: &str) -> Result<Self, AccountantError> {
        strict_json::read(text).map_err(|source| AccountantError::Format {
            reason: "not a privacy statement".to_string(),
            source: Some(source),
        })
    }

    /// Returns the guarantee as text: what is hidden, ε, and the releases. The whole statement,
    /// with further facts and what is not covered, is its [`Display`](fmt::Display) form.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        self.write_summary(&mut text).unwrap_or_default();
        text
    }

    fn write_summary(&self, f: &mut impl fmt::Write) -> fmt::Result {
        writeln!(f, "Privacy statement")?;
        if !self.private {
            writeln!(f, "  NOT PRIVATE: no finite epsilon is guaranteed.")?;
        }
        line(f, "unit of privacy", &self.unit)?;
        line(f, "neighboring data", self.relation)?;
        for Epsilon { upper, delta, method, notes, .. } in &self.epsilons {
            let guarantee = match upper.is_finite() {
                true => {
                    format!("epsilon <= {} at delta = {delta:e} ({method})", Rounded::up(*upper))
                }
                false => format!("none at delta = {delta:e}"),
            };
            line(f, "guarantee", guarantee)?;
            for note in notes {
                writeln!(f, "{:28}{note}", "")?;
            }
        }
        for GroupEpsilon { units, epsilon: Epsilon { upper, delta, .. } } in &self.groups {
            let guarantee = match upper.is_finite() {
                true => format!("epsilon <= {} at delta = {delta:e}", Rounded::up(*upper)),
                false => format!("no guarantee at delta = {delta:e}"),
            };
            line(f, &format!("{units} units at once"), guarantee)?;
        }
        let or_unstated = |text: &str| {
            if text.is_empty() { "not stated".into() } else { with_short_numbers(text) }
        };
        line(f, "sampling", or_unstated(&self.sampler))?;
        line(f, "clipping", or_unstated(&self.clipping))?;
        let source = match &self.noise_source {
            NoiseProvenance::Secure => "cryptographic generator, seeded by the operating system",
            NoiseProvenance::Insecure { reason } => &format!("INSECURE: {reason}"),
        };
        line(f, "noise source", source)?;
        if self.releases.is_empty() {
            return line(f, "releases", "none");
        }
        writeln!(f, "  releases:")?;
        for entry in &self.releases {
            writeln!(f, "    {} x {}", entry.count, entry.event)?;
        }
        Ok(())
    }

    /// Returns the statement as JSON text.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Format`] if a number cannot be written.
    pub fn to_json(&self) -> Result<String, AccountantError> {
        serde_json::to_string_pretty(self).map_err(|source| AccountantError::Format {
            reason: "the statement cannot be written".to_string(),
            source: Some(source),
        })
    }
}

impl fmt::Display for PrivacyStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        for (name, value) in &self.facts {
            line(f, &name.replace('_', " "), with_short_numbers(value))?;
        }
        writeln!(f, "  not covered:")?;
        for sentence in &self.not_covered {
            writeln!(f, "    - {sentence}")?;
        }
        Ok(())
    }
}

/// Writes a name and its value in two columns.
fn line(f: &mut impl fmt::Write, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {:<25} {value}", format!("{name}:"))
}
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::DpEvent;
    use crate::ledger::LedgerHeader;

    #[test]
    fn the_best_of_several_runs_costs_all_of_them() {
        let run = |sigma: f64, clipping: &str| {
            let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::ReplaceOne)
                .with_clipping(clipping)
                .with_fact("dataset_size", 100)
                .with_not_covered(format!("what {clipping} leaves out"));
            let mut ledger = PrivacyLedger::new(header);
            ledger.record_many(&DpEvent::gaussian(sigma), 3).unwrap();
            ledger
        };
        let runs = [run(8.0, "flat"), run(9.0, "automatic"), run(9.0, "flat")];
        let statement = PrivacyStatement::from_runs(&runs, &[1e-5]).unwrap();
        let one = PrivacyStatement::from_runs(&runs[..1], &[1e-5]).unwrap();
        assert_eq!(one, PrivacyStatement::from_ledger(&runs[0], &[1e-5]).unwrap());
        let mut all = runs[0].clone();
        runs[1..].iter().for_each(|other| all.merge(other).unwrap());
        assert_eq!(statement.epsilons[0], all.epsilon(1e-5).unwrap());
        assert!(statement.epsilons[0].upper > 1.5 * one.epsilons[0].upper);
        assert_eq!(statement.clipping, "flat; automatic");
        assert_eq!(statement.facts["dataset_size"], "100");
        assert_eq!(statement.facts["runs"], "3, all counted");
        let covered = statement.not_covered.join(" ");
        assert!(covered.contains("what automatic leaves out") && covered.contains("fixed before"));
        let header = LedgerHeader::new(UnitOfPrivacy::User, NeighboringRelation::ReplaceOne);
        let others = [runs[0].clone(), PrivacyLedger::new(header)];
        assert!(PrivacyStatement::from_runs(&others, &[1e-5]).is_err());
        assert!(PrivacyStatement::from_runs(&[], &[1e-5]).is_err());
    }

    fn ledger() -> PrivacyLedger {
        let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne)
            .with_sampler("Poisson, q = 0.01")
            .with_clipping("flat, C = 1")
            .with_fact("expected_batch_size", 600);
        let mut ledger = PrivacyLedger::new(header);
        ledger.record_many(&DpEvent::dp_sgd_step(0.01, 1.1), 1_000).unwrap();
        ledger
    }

    #[test]
    fn statement_contains_everything_that_epsilon_depends_on() {
        let statement = PrivacyStatement::from_ledger(&ledger(), &[1e-5, 1e-6]).unwrap();
        let text = statement.to_string();
        for part in [
            "one example",
            "add or remove one",
            "1000 x",
            "0.01",
            "1.1",
            "flat, C = 1",
            "1e-5",
            "1e-6",
            "600",
            "not covered",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.contains("\n  expected batch size:      600\n"), "{text}");
        let summary = statement.summary();
        assert!(text.starts_with(&summary) && summary.contains("1000 x"), "{summary}");
        assert!(!summary.contains("not covered"), "{summary}");
        assert!(statement.private);
        let read: PrivacyStatement = serde_json::from_str(&statement.to_json().unwrap()).unwrap();
        assert_eq!(read, statement);
    }

    // Sharp edge: a caveat of a later version is not read as if there were none.
    #[test]
    fn a_statement_with_an_unknown_or_repeated_field_is_refused() {
        let statement = PrivacyStatement::from_ledger(&ledger(), &[1e-5]).unwrap();
        let text = statement.with_group(&ledger(), 2).unwrap().to_json().unwrap();
        PrivacyStatement::from_json(&text).unwrap();
        for field in ["\"sampler\":", "\"method\":", "\"units\":"] {
            let unknown = text.replacen(field, &format!("\"void\": true, {field}"), 1);
            let error = PrivacyStatement::from_json(&unknown).unwrap_err().to_string();
            assert!(error.contains("unknown field `void`"), "{field}: {error}");
        }
        let fact = "\"expected_batch_size\":";
        let repeated = text.replacen(fact, &format!("{fact} \"1\", {fact}"), 1);
        let error = PrivacyStatement::from_json(&repeated).unwrap_err().to_string();
        assert!(error.contains("`expected_batch_size` is repeated"), "{error}");
    }

    #[test]
    fn a_delta_that_publishes_a_unit_outright_is_named() {
        let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::ReplaceOne);
        let ledger = PrivacyLedger::new(header.with_fact("dataset_size", 200_000));
        let statement = PrivacyStatement::from_ledger(&ledger, &[1e-5, 1e-6]).unwrap();
        let named = statement.not_covered.iter().filter(|one| one.contains("outright"));
        let named: Vec<_> = named.collect();
        assert!(named.len() == 1 && named[0].contains("delta = 1e-5 "), "{named:?}");
    }

    #[test]
    fn a_person_reads_six_digits_and_a_program_all_of_them() {
        let header = ledger().header().clone();
        let header = header.with_clipping("per layer, a at most 0.5773502691896258");
        let ledger = PrivacyLedger::new(header);
        let statement = PrivacyStatement::from_ledger(&ledger, &[1e-5]).unwrap();
        assert!(statement.to_string().contains("a at most 0.57735\n"), "{statement}");
        assert!(statement.to_json().unwrap().contains("0.5773502691896258"));
    }

    #[test]
    fn statement_of_an_insecure_ledger_says_not_private() {
        let mut ledger = ledger();
        ledger.mark_insecure("fixed seed 42");
        let statement = PrivacyStatement::from_ledger(&ledger, &[1e-5]).unwrap();
        assert!(!statement.private);
        let text = statement.to_string();
        assert!(text.contains("NOT PRIVATE") && text.contains("none at delta = 1e-5"), "{text}");
        assert!(PrivacyStatement::from_ledger(&ledger, &[]).is_err());
    }
}
