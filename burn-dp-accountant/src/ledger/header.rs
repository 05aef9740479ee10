//! The facts that a number ε cannot be read without.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NeighboringRelation;

/// Whose presence is hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnitOfPrivacy {
    /// One training example.
    Example,
    /// Everything of one user.
    User,
    /// One fixed group of examples (batch clipping).
    MiniSet,
    /// Something else, in words.
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

/// Where the noise came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case", deny_unknown_fields)]
pub enum NoiseSource {
    /// A cryptographic generator with entropy of the operating system.
    Secure,
    /// Noise that somebody can reproduce. The ledger is not private, for ever.
    Insecure {
        /// Why, for instance "fixed seed".
        reason: String,
    },
}

/// Everything about a training that is public and that the privacy statement says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LedgerHeader {
    /// Whose presence is hidden.
    pub unit: UnitOfPrivacy,
    /// Which data sets are neighbours.
    pub relation: NeighboringRelation,
    /// Where the noise came from.
    pub noise_source: NoiseSource,
    /// How units were drawn, in words.
    pub sampler: String,
    /// How contributions were clipped, in words.
    pub clipping: String,
    /// Further public facts: data set size if it is public, expected batch size, model ...
    pub facts: BTreeMap<String, String>,
    /// What the guarantee does not cover, in sentences, in addition to the statement's own list.
    pub not_covered: Vec<String>,
}

impl LedgerHeader {
    /// A header with secure noise and no further facts.
    pub fn new(unit: UnitOfPrivacy, relation: NeighboringRelation) -> Self {
        Self {
            unit,
            relation,
            noise_source: NoiseSource::Secure,
            sampler: String::new(),
            clipping: String::new(),
            facts: BTreeMap::new(),
            not_covered: Vec::new(),
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

    /// Sets the source of the noise.
    pub fn with_noise_source(mut self, noise_source: NoiseSource) -> Self {
        self.noise_source = noise_source;
        self
    }

    /// Adds a public fact.
    pub fn with_fact(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.facts.insert(name.into(), value.to_string());
        self
    }

    /// Adds something that the guarantee does not cover.
    pub fn with_not_covered(mut self, sentence: impl Into<String>) -> Self {
        self.not_covered.push(sentence.into());
        self
    }
}
