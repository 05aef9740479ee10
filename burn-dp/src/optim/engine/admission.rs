//! The checks before a unit is added to a step, and before the release.

use burn_dp_accountant::{DpEvent, PrivacyLedger};

use super::pending::{Pending, other_draw, other_records};
use crate::DpError;
use crate::clipping::Thresholds;
use crate::optim::PrivacyPlan;
use crate::sampling::{Draw, DrawPart};

/// The state that decides what may enter the next step, and whether it may be released.
pub(crate) struct Admission<'a> {
    pub(super) plan: &'a PrivacyPlan,
    pub(super) ledger: &'a PrivacyLedger,
    pub(super) next_step: u64,
    pub(super) pending: Option<&'a Pending>,
    /// The mark of the records of earlier steps.
    pub(super) records: Option<&'a str>,
    /// The thresholds of the step, if they are fixed.
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    pub(super) frozen: Option<&'a Thresholds>,
}

impl Admission<'_> {
    /// Returns an error unless the units of `part` belong to the next step and are not in its sum,
    /// and its data set has the units of the plan and the records of earlier steps.
    pub(crate) fn check_part(&self, part: &DrawPart) -> Result<(), DpError> {
        self.check_origin(part.draw())?;
        self.plan.check_dataset(part.records())?;
        if let (Some(records), Some(digest)) = (self.records, &part.records().digest)
            && !self.plan.source.is_forgotten()
            && self.plan.key().mark_of(digest) != records
        {
            return Err(other_records());
        }
        self.pending.map_or(Ok(()), |pending| pending.check(part))
    }

    /// Returns an error unless the draw is the next one of the plan's sampler and every drawn unit
    /// was clipped once.
    pub(super) fn check_draw(&self, draw: &Draw) -> Result<(), DpError> {
        self.check_key()?;
        self.check_origin(draw)?;
        let missing = match self.pending {
            Some(pending) if pending.draw != *draw => return Err(other_draw(draw.step())),
            Some(pending) => pending.given.iter().position(|given| !given),
            None => (!draw.private_indices().is_empty()).then_some(0),
        };
        match missing {
            Some(position) => Err(DpError::state(format!(
                "unit {} of step {} was drawn, but never given; give every physical batch of the \
                 logical batch to `backward` once",
                draw.private_indices()[position],
                draw.step()
            ))),
            None => Ok(()),
        }
    }

    /// Returns an error unless the draw is the next one of the plan's sampler.
    fn check_origin(&self, draw: &Draw) -> Result<(), DpError> {
        if draw.step() != self.next_step {
            return Err(DpError::state(format!(
                "the draw of step {} was given to step {}; use each logical batch for one step, in \
                 order, and `LogicalBatches::skip_to` to resume",
                draw.step(),
                self.next_step
            )));
        }
        if self.plan.mechanism != *draw.mechanism() {
            return Err(DpError::state(format!(
                "the batch was drawn by {}, which is not what the plan accounts for; draw with \
                 `PrivacyPlan::sampler`",
                draw.mechanism()
            )));
        }
        if draw.origin() != self.plan.origin {
            return Err(DpError::state(
                "the batch was drawn with a key that is not the plan's; draw with \
                 `PrivacyPlan::sampler`, whose key is as secret as the noise",
            ));
        }
        Ok(())
    }

    /// Returns an error if the key was erased.
    pub(crate) fn check_key(&self) -> Result<(), DpError> {
        match self.plan.source.is_forgotten() {
            false => Ok(()),
            true => Err(DpError::state(format!(
                "the key of the run was erased after {} steps, so the run is over; plan a new run, \
                 with its own budget",
                self.next_step
            ))),
        }
    }

    /// Returns an error if the next step cannot run, before its examples are used.
    #[cfg(feature = "train")]
    pub(crate) fn check_next(&self) -> Result<(), DpError> {
        self.check_key()?;
        let batch = self.plan.expected_batch_size;
        let multiplier = self.plan.noise_multiplier_at(self.next_step);
        let thresholds = match self.frozen {
            Some(thresholds) => thresholds.clone(),
            None => self.plan.clipping.thresholds(self.next_step)?,
        };
        let noise = thresholds.noise(multiplier, batch)?;
        self.check_budget(&self.plan.event_of(self.next_step, &noise)?)
    }

    /// Returns an error if the release would exceed the budget, could not be recorded in the
    /// ledger, or follows the last planned step.
    pub(super) fn check_budget(&self, event: &DpEvent) -> Result<(), DpError> {
        // A repeated step is already in the ledger.
        let paid = self.next_step < self.plan.own_releases(self.ledger);
        if let Some(budget) = self.plan.budget
            && !paid
            && !self.plan.is_certified(self.next_step, event, self.ledger)
            && !self.ledger.within_budget(event, 1, budget)?
        {
            let mut after = self.ledger.clone();
            after.record(event)?;
            return Err(DpError::BudgetExhausted {
                epsilon: after.nominal_epsilon(budget.delta())?.upper,
                budget: budget.epsilon(),
                delta: budget.delta(),
                steps: self.next_step,
            });
        }
        // A run with a bound on participation is one release, whose steps the ledger continues.
        if !paid
            && let DpEvent::CorrelatedGaussian { .. } = event
            && let Some(planned) = self.plan.planned_event(self.next_step)
            && planned != *event
        {
            return Err(DpError::state(format!(
                "the clipping policy releases other counts, or with other noise, in step {} than \
                 in the first one ({event} instead of {planned}), but all steps of a run with \
                 correlated noise, or with a sampler that bounds participation, are one release; \
                 use a policy with the same counts in all steps, or Poisson sampling",
                self.next_step
            )));
        }
        if self.next_step >= self.plan.steps {
            return Err(DpError::state(format!(
                "all {} planned steps were made; make a longer plan, whose noise is calibrated for \
                 its length",
                self.plan.steps
            )));
        }
        Ok(())
    }
}
