//! The public facts that ε depends on.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::monte_carlo::Simulation;
use crate::relation::NeighboringRelation;

/// The unit whose presence is hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnitOfPrivacy {
    /// One training example.
    Example,
    /// All examples of one user.
    User,
    /// One fixed group of examples (batch clipping).
    MiniSet,
    /// Another unit, in words.
    Other(String),
}

impl fmt::Display for UnitOfPrivacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Example => f.write_str("one example"),
            Self::User => f.write_str("one user, with all of their examples"),
            Self::MiniSet => f.write_str("one mini-set of examples"),
            Self::Other(unit) => f.write_str(unit),
        }
    }
}

/// The provenance of the noise: whether somebody can reproduce it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case", deny_unknown_fields)]
pub enum NoiseProvenance {
    /// A cryptographic generator, seeded by the operating system.
    Secure,
    /// Noise that can be reproduced. A ledger with it is never private again.
    Insecure {
        /// Why it can be reproduced, for instance "fixed seed".
        reason: String,
    },
}

/// The public facts of a training run, which the privacy statement reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LedgerHeader {
    /// The unit whose presence is hidden.
    pub unit: UnitOfPrivacy,
    /// The neighboring relation.
    pub relation: NeighboringRelation,
    /// Provenance of the noise.
    pub noise_source: NoiseProvenance,
    /// Description of the sampling.
    pub sampler: String,
    /// Description of the clipping.
    pub clipping: String,
    /// Further public facts, such as the expected batch size, the model, or the size of the data
    /// set if it is public.
    pub facts: BTreeMap<String, String>,
    /// Sentences about what the guarantee does not cover, in addition to the list of the statement.
    pub not_covered: Vec<String>,
    /// The simulation that may narrow the upper end of ε; `None` for only certified answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
}

impl LedgerHeader {
    /// Creates a header with secure noise and no further facts.
    pub fn new(unit: UnitOfPrivacy, relation: NeighboringRelation) -> Self {
        Self {
            unit,
            relation,
            noise_source: NoiseProvenance::Secure,
            sampler: String::new(),
            clipping: String::new(),
            facts: BTreeMap::new(),
            not_covered: Vec::new(),
            simulation: None,
        }
    }

    /// Sets the description of the sampler.
    pub fn with_sampler(mut self, sampler: impl Into<String>) -> Self {
        self.sampler = sampler.into();
        self
    }

    /// Sets the description of the clipping.
    pub fn with_clipping(mut self, clipping: impl Into<String>) -> Self {
        self.clipping = clipping.into();
        self
    }

    /// Sets the provenance of the noise.
    pub fn with_noise_source(mut self, noise_source: NoiseProvenance) -> Self {
        self.noise_source = noise_source;
        self
    }

    /// Adds a public fact.
    pub fn with_fact(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.facts.insert(name.into(), value.to_string());
        self
    }

    /// Lets the ledger bound ε by simulation where that is tighter than the certified analysis;
    /// `None` for only certified answers. See [`Simulation`] for what the failure probability
    /// covers.
    pub fn with_simulation(mut self, simulation: impl Into<Option<Simulation>>) -> Self {
        self.simulation = simulation.into();
        self
    }

    /// Adds a sentence about what the guarantee does not cover.
    pub fn with_not_covered(mut self, sentence: impl Into<String>) -> Self {
        self.not_covered.push(sentence.into());
        self
    }

    /// Adds what `other` says about another run on the same data: descriptions, facts, and
    /// sentences that are not here yet.
    pub(super) fn join(&mut self, other: &Self) {
        join_values(&mut self.sampler, &other.sampler);
        join_values(&mut self.clipping, &other.clipping);
        other.facts.iter().for_each(|(name, value)| self.join_fact(name, value));
        other.not_covered.iter().for_each(|sentence| self.join_not_covered(sentence));
    }

    /// Adds a value of a fact, which keeps its other values.
    pub(super) fn join_fact(&mut self, name: &str, value: &str) {
        join_values(self.facts.entry(name.into()).or_default(), value);
    }

    /// Adds a sentence that is not here yet.
    pub(super) fn join_not_covered(&mut self, sentence: &str) {
        if self.not_covered.iter().all(|known| known != sentence) {
            self.not_covered.push(sentence.into());
        }
    }

    /// Returns the first fact about the division into units that differs from `other`, with both
    /// values. A mini-set of one division has examples of many mini-sets of another one.
    pub(super) fn other_division<'a>(&'a self, other: &'a Self) -> Option<[&'a str; 3]> {
        if self.unit != UnitOfPrivacy::MiniSet {
            return None;
        }
        fn of<'a>(header: &'a LedgerHeader, name: &str) -> &'a str {
            header.facts.get(name).map_or("not stated", String::as_str)
        }
        let differs = |name: &&str| of(self, name) != of(other, name);
        let name = DIVISION.into_iter().find(differs)?;
        Some([name, of(self, name), of(other, name)])
    }

    /// Returns the number of units that δ must stay below the inverse of, if the facts have it: for
    /// mini-sets, the number of examples.
    pub fn units(&self) -> Option<f64> {
        let values = |name: &str| self.facts.get(name).map_or("", String::as_str).split("; ");
        let found = ["dataset_size", "examples", "owners"].into_iter().flat_map(values);
        let numbers = found.filter_map(|value| value.parse().ok());
        numbers.filter(|units| (1.0..f64::INFINITY).contains(units)).reduce(f64::max)
    }
}

/// The facts that say which mini-sets a ledger is about.
const DIVISION: [&str; 3] = ["mini_set_size", "examples", "mini_set_members"];

/// Adds the values of a description that are not there yet.
#[doc(hidden)]
pub fn join_values(text: &mut String, other: &str) {
    for value in other.split("; ").filter(|value| !value.is_empty()) {
        if text.is_empty() {
            *text = value.into();
        } else if text.split("; ").all(|known| known != value) {
            *text = format!("{text}; {value}");
        }
    }
}
