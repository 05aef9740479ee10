//! The sum of a logical step that is not released yet.

use crate::DpError;
use crate::clipping::{ClippedSum, Thresholds};
use crate::sampling::{Draw, DrawPart, RecordFacts};

/// The units of the current logical step that were clipped, and their sum.
pub(super) struct Pending {
    pub(super) draw: Draw,
    /// Whether the unit at each position of the draw is in the sum.
    pub(super) given: Vec<bool>,
    /// What all parts state about their records.
    pub(super) records: RecordFacts,
    pub(super) sum: ClippedSum,
}

impl Pending {
    /// Starts a logical step with the clipped sum of the units of `part`.
    pub(super) fn new(part: &DrawPart, sum: ClippedSum) -> Self {
        let (draw, records) = (part.draw().clone(), part.records().clone());
        let mut given = vec![false; draw.private_indices().len()];
        given[part.positions()].fill(true);
        Self { draw, given, records, sum }
    }

    /// Returns an error if a unit of `part` is in the sum, or if `part` is of another draw.
    pub(super) fn check(&self, part: &DrawPart) -> Result<(), DpError> {
        if *part.draw() != self.draw {
            return Err(other_draw(self.draw.step()));
        }
        if let (Some(digest), Some(other)) = (self.records.digest, part.records().digest)
            && digest != other
        {
            return Err(other_records());
        }
        let mut units = part.positions().zip(part.private_indices());
        match units.find(|&(position, _)| self.given[position]) {
            Some((_, &unit)) => Err(given_twice(unit, part.step())),
            None => Ok(()),
        }
    }

    /// Adds the clipped sum of the units of `part`, which was [checked](Self::check).
    pub(super) fn add(&mut self, part: &DrawPart, sum: ClippedSum) -> Result<(), DpError> {
        self.sum.accumulate(sum)?;
        self.given[part.positions()].fill(true);
        let (records, other) = (&mut self.records, part.records());
        records.identity = records.identity.min(other.identity);
        records.digest = records.digest.filter(|_| other.digest.is_some());
        Ok(())
    }
}

/// Returns an error unless `sum` was clipped to `thresholds` and contains each unit of `part` once.
pub(super) fn check_sum(
    part: &DrawPart,
    sum: &ClippedSum,
    thresholds: &Thresholds,
) -> Result<(), DpError> {
    if sum.thresholds() != thresholds {
        return Err(DpError::invalid(
            "sum",
            format!(
                "must be clipped to the thresholds of the logical step, {:?}, got {:?}; use \
                 `DpOptimizer::thresholds`",
                thresholds.norms(),
                sum.thresholds().norms()
            ),
        ));
    }
    let (clipped, units) = (sum.examples(), part.positions().len());
    if clipped != units {
        return Err(DpError::invalid(
            "sum",
            format!("must contain every unit of its part once, got {clipped} units for {units}"),
        ));
    }
    Ok(())
}

/// The error for a unit that is already in the sum of its step.
pub(crate) fn given_twice(unit: usize, step: u64) -> DpError {
    DpError::state(format!(
        "unit {unit} of step {step} was given twice, and would contribute twice the clipping \
         threshold; give every physical batch of the logical batch once, and call `discard` before \
         a logical batch is clipped again"
    ))
}

/// The error for records that the steps before did not have, or had in another order.
pub(super) fn other_records() -> DpError {
    DpError::invalid(
        "dataset",
        "must have the records of the run, in the same order in all steps and after it is \
         resumed: the draws assume that an index is always the same record; load the records in \
         the order of the first step, or start a new run with its own budget",
    )
}

/// The error for a draw that is not the one that was clipped.
pub(super) fn other_draw(step: u64) -> DpError {
    DpError::state(format!(
        "two different draws of step {step} were given; draw each step once, with \
         `PrivacyPlan::sampler`"
    ))
}
