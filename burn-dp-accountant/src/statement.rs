//! The privacy statement: what is promised, to whom, and what is not.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::epsilon::Upward;
use crate::{
    AccountantError, Epsilon, LedgerEntry, NeighboringRelation, NoiseSource, PrivacyLedger,
    UnitOfPrivacy,
};

/// A statement made from a ledger, for people ([`Display`](fmt::Display)) and for machines (JSON).
/// Every ε in it is an upper bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PrivacyStatement {
    /// Whose presence is hidden.
    pub unit: UnitOfPrivacy,
    /// Which data sets are neighbours.
    pub relation: NeighboringRelation,
    /// Whether the guarantee holds: false if the noise can be reproduced or an event is not private.
    pub private: bool,
    /// ε for each δ.
    pub epsilons: Vec<Epsilon>,
    /// How units were drawn.
    pub sampler: String,
    /// How contributions were clipped.
    pub clipping: String,
    /// Where the noise came from.
    pub noise_source: NoiseSource,
    /// The releases, with the numbers (sampling probability, noise multiplier, steps) they used.
    pub releases: Vec<LedgerEntry>,
    /// Further public facts.
    pub facts: BTreeMap<String, String>,
    /// What the guarantee does not cover.
    pub not_covered: Vec<String>,
}

impl PrivacyStatement {
    /// The statement of `ledger` for each of `deltas`.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] if `deltas` is empty or holds a δ outside of (0, 1), and
    /// the errors of [`PrivacyLedger::epsilon`].
    pub fn from_ledger(ledger: &PrivacyLedger, deltas: &[f64]) -> Result<Self, AccountantError> {
        if deltas.is_empty() {
            return Err(AccountantError::invalid("deltas", "must hold at least one δ"));
        }
        let epsilons: Vec<Epsilon> =
            deltas.iter().map(|&delta| ledger.epsilon(delta)).collect::<Result<_, _>>()?;
        let header = ledger.header();
        let mut not_covered = vec![
            "Everything that was derived from the private data outside of the recorded releases: pre-processing, choice of the model or of hyper-parameters, metrics on training data.".to_string(),
            "Buffers of the model that are not released through the mechanism, such as running statistics of batch normalisation.".to_string(),
            "Side channels: timing, memory, batch sizes that an observer can see.".to_string(),
        ];
        if header.unit == UnitOfPrivacy::Example {
            not_covered.push(
                "A person with several examples: the guarantee is for one example.".to_string(),
            );
        }
        not_covered.extend(header.not_covered.iter().cloned());
        Ok(Self {
            unit: header.unit.clone(),
            relation: header.relation,
            private: epsilons.iter().all(|e| e.upper.is_finite()),
            epsilons,
            sampler: header.sampler.clone(),
            clipping: header.clipping.clone(),
            noise_source: header.noise_source.clone(),
            releases: ledger.entries().to_vec(),
            facts: header.facts.clone(),
            not_covered,
        })
    }

    /// The statement as JSON text.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Format`] if a number cannot be written.
    pub fn to_json(&self) -> Result<String, AccountantError> {
        serde_json::to_string_pretty(self).map_err(|source| AccountantError::Format {
            reason: "the statement cannot be written".to_string(),
            source: Some(source),
        })
    }
}

impl fmt::Display for PrivacyStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Privacy statement")?;
        if !self.private {
            writeln!(f, "  NOT PRIVATE: no finite epsilon is guaranteed.")?;
        }
        writeln!(f, "  unit of privacy:      {}", self.unit)?;
        writeln!(f, "  neighbouring data:    {}", self.relation)?;
        for epsilon in &self.epsilons {
            writeln!(
                f,
                "  guarantee:            epsilon <= {} at delta = {:e} ({})",
                Upward(epsilon.upper),
                epsilon.delta,
                epsilon.method
            )?;
            for note in &epsilon.notes {
                writeln!(f, "                        {note}")?;
            }
        }
        let or_unstated =
            |text: &str| if text.is_empty() { "not stated".to_string() } else { text.to_string() };
        writeln!(f, "  sampling:             {}", or_unstated(&self.sampler))?;
        writeln!(f, "  clipping:             {}", or_unstated(&self.clipping))?;
        match &self.noise_source {
            NoiseSource::Secure => writeln!(
                f,
                "  noise:                cryptographic generator, entropy of the operating system"
            )?,
            NoiseSource::Insecure { reason } => {
                writeln!(f, "  noise:                INSECURE: {reason}")?
            }
        }
        writeln!(
            f,
            "  releases:             {}",
            if self.releases.is_empty() { "none" } else { "" }
        )?;
        for entry in &self.releases {
            writeln!(f, "    {} x {}", entry.count, entry.event)?;
        }
        for (name, value) in &self.facts {
            writeln!(f, "  {:<21} {value}", format!("{name}:"))?;
        }
        writeln!(f, "  not covered:")?;
        for sentence in &self.not_covered {
            writeln!(f, "    - {sentence}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{DpEvent, LedgerHeader};

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
    fn the_statement_says_everything_that_epsilon_depends_on() {
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
        assert!(statement.private);
        let read: PrivacyStatement = serde_json::from_str(&statement.to_json().unwrap()).unwrap();
        assert_eq!(read, statement);
    }

    #[test]
    fn an_insecure_ledger_has_a_statement_that_says_so_first() {
        let mut ledger = ledger();
        ledger.mark_insecure("fixed seed 42");
        let statement = PrivacyStatement::from_ledger(&ledger, &[1e-5]).unwrap();
        assert!(!statement.private);
        assert!(statement.to_string().contains("NOT PRIVATE"));
        assert!(PrivacyStatement::from_ledger(&ledger, &[]).is_err());
    }
}
