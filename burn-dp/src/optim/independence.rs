//! Whether the independence of the examples was tested in a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::grads::Probe;
use crate::random::NoiseSource;

/// The result of testing the assumption that loss i depends on example i alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Independence {
    /// Not tested: disabled, or no batch so far was conclusive.
    NotChecked,
    /// Every unit is computed separately: there is no batch in which examples could mix.
    ByConstruction,
    /// Tested on the batches of that step without a finding.
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
            // Without the step, so that a resumed run has the same statement.
            Self::Checked { .. } => f.write_str("checked on the first batches"),
        }
    }
}

/// Tests the batches of the first step of a run, and of the next steps until a test is conclusive.
///
/// A step that a resumed run repeats is tested, with the same random factors, if and only if it was
/// tested before: the factors can take bits from very small gradients, and then the repeated step
/// would differ.
#[derive(Debug)]
pub(crate) struct IndependenceCheck {
    found: Independence,
    enabled: bool,
    /// Whether any batch was given to a backward pass, also before the run was resumed.
    batches: bool,
    probe: Option<Probe>,
    /// Threads that work at the same time have a probe each. Of this step.
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

    /// Returns a test that has seen nothing, enabled like this one.
    pub(crate) fn renewed(&self) -> Self {
        Self { enabled: self.enabled, ..Self::new() }
    }

    /// Enables or disables the test; its result is kept.
    pub(crate) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        if !enabled {
            self.probe = None;
        }
    }

    /// Continues a saved run, whose state was [`seen`](Self::seen).
    pub(crate) fn continue_from(&mut self, seen: Option<Independence>) {
        if let Some(found) = seen {
            self.found = found;
            self.batches = found != Independence::ByConstruction;
        }
    }

    /// Returns the result for the whole run.
    pub(crate) fn found(&self) -> Independence {
        self.found
    }

    /// Returns the result for a checkpoint; `None` if there was no example yet.
    pub(crate) fn seen(&self) -> Option<Independence> {
        (self.batches || self.found != Independence::NotChecked).then_some(self.found)
    }

    /// Returns the probe for the next backward pass of a step, if it is tested. Return it with
    /// [`give_back`](Self::give_back).
    pub(crate) fn take_probe(&mut self, source: &NoiseSource, step: u64) -> Option<Probe> {
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
            Probe::new(source, step, self.probes - 1)
        }))
    }

    /// Keeps the observations of a probe, merged with those that other threads made at the same
    /// time.
    pub(crate) fn give_back(&mut self, probe: Option<Probe>) {
        self.probe = match (self.probe.take(), probe) {
            (Some(before), Some(probe)) => Some(before.merged(probe)),
            (before, probe) => before.or(probe),
        };
    }

    /// Notes that units were computed one by one, not as rows of a batch.
    pub(crate) fn units_by_themselves(&mut self) {
        if !self.batches {
            self.found = Independence::ByConstruction;
        }
    }

    /// Ends the test of a step that was made.
    pub(crate) fn end_of_step(&mut self, step: u64) {
        self.probes = 0;
        if self.probe.take().is_some_and(|probe| probe.is_conclusive()) {
            self.found = Independence::Checked { step };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_result_of_a_resumed_run_covers_both_parts() {
        use Independence::{ByConstruction, Checked, NotChecked};
        let checked = Checked { step: 3 };
        let source = NoiseSource::from_os().unwrap();
        // Before, after, and of both; nothing where no example was seen.
        for (before, after, both) in [
            (None, None, NotChecked),
            (Some(checked), None, checked),
            (Some(checked), Some(NotChecked), checked),
            (Some(checked), Some(ByConstruction), checked),
            (Some(ByConstruction), None, ByConstruction),
            (Some(ByConstruction), Some(ByConstruction), ByConstruction),
            (Some(ByConstruction), Some(NotChecked), NotChecked),
            (Some(NotChecked), Some(ByConstruction), NotChecked),
            (Some(NotChecked), Some(checked), checked),
            (None, Some(ByConstruction), ByConstruction),
        ] {
            let mut check = IndependenceCheck::new();
            check.continue_from(before);
            match after {
                None => {}
                Some(ByConstruction) => check.units_by_themselves(),
                Some(found) => {
                    let probe = check.take_probe(&source, 4);
                    // Whoever was checked is not tested again.
                    assert_eq!(probe.is_none(), before == Some(checked));
                    check.give_back(probe);
                    if found == checked {
                        check.found = checked;
                    }
                }
            }
            assert_eq!(check.found(), both, "{before:?} {after:?}");
            assert_eq!(check.seen(), before.or(after).map(|_| both));
        }
    }
}
