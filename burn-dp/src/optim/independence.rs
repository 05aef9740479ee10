//! Whether the independence of the examples was tested in a run.

use std::fmt;

use crate::grads::Probe;
use crate::noise::NoiseSource;

/// What is known of the assumption that loss i depends on example i alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Independence {
    /// Not tested: switched off, or no batch so far could tell.
    NotChecked,
    /// Every unit is computed by itself: there is no batch in which examples could mix.
    ByConstruction,
    /// Tested on the batches of that step, and nothing was found.
    Checked {
        /// The step.
        step: u64,
    },
}

impl fmt::Display for Independence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotChecked => f.write_str("not checked"),
            Self::ByConstruction => f.write_str("every unit is computed by itself"),
            // A resumed run tests again: the words are those of the whole run.
            Self::Checked { .. } => f.write_str("checked on the first batches"),
        }
    }
}

/// Tests the batches of the first step of a run, and of the next ones until one could tell.
#[derive(Debug)]
pub(super) struct IndependenceCheck {
    found: Independence,
    enabled: bool,
    /// Whether any batch was given to a backward pass.
    batches: bool,
    probe: Option<Probe>,
}

impl IndependenceCheck {
    pub(super) fn new() -> Self {
        Self { found: Independence::NotChecked, enabled: true, batches: false, probe: None }
    }

    pub(super) fn off() -> Self {
        Self { enabled: false, ..Self::new() }
    }

    pub(super) fn found(&self) -> Independence {
        self.found
    }

    /// The probe for the next backward pass, if it is to be tested.
    pub(super) fn probe(&mut self, source: &NoiseSource) -> Option<&mut Probe> {
        if matches!(self.found, Independence::Checked { .. }) {
            return None;
        }
        self.found = Independence::NotChecked;
        self.batches = true;
        if !self.enabled {
            return None;
        }
        Some(self.probe.get_or_insert_with(|| Probe::new(source)))
    }

    /// Units were computed one by one, not as rows of a batch.
    pub(super) fn units_by_themselves(&mut self) {
        if !self.batches {
            self.found = Independence::ByConstruction;
        }
    }

    /// The step was made: what it showed is kept.
    pub(super) fn end_of_step(&mut self, step: u64) {
        if self.probe.as_ref().is_some_and(Probe::is_conclusive) {
            self.found = Independence::Checked { step };
            self.probe = None;
        }
    }
}
