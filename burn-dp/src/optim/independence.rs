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
pub(crate) struct IndependenceCheck {
    found: Independence,
    enabled: bool,
    /// Whether any batch was given to a backward pass.
    batches: bool,
    probe: Option<Probe>,
    /// Threads that work at the same time have a probe each.
    probes: u32,
}

impl IndependenceCheck {
    pub(crate) fn new() -> Self {
        Self {
            found: Independence::NotChecked,
            enabled: true,
            batches: false,
            probe: None,
            probes: 0,
        }
    }

    pub(crate) fn off() -> Self {
        Self { enabled: false, ..Self::new() }
    }

    pub(crate) fn found(&self) -> Independence {
        self.found
    }

    /// The probe for the next backward pass, if it is to be tested; to be given back.
    pub(super) fn take_probe(&mut self, source: &NoiseSource) -> Option<Probe> {
        if matches!(self.found, Independence::Checked { .. }) {
            return None;
        }
        self.found = Independence::NotChecked;
        self.batches = true;
        if !self.enabled {
            return None;
        }
        Some(self.probe.take().unwrap_or_else(|| {
            self.probes += 1;
            Probe::new(source, self.probes - 1)
        }))
    }

    /// Keeps what the probe saw, together with what other threads saw at the same time.
    pub(super) fn give_back(&mut self, probe: Option<Probe>) {
        self.probe = match (self.probe.take(), probe) {
            (Some(before), Some(probe)) => Some(before.merged(probe)),
            (before, probe) => before.or(probe),
        };
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
