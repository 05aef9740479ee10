//! The checks before a release.

use burn_dp_accountant::DpEvent;

use super::PrivacyEngine;
use crate::DpError;
use crate::sampling::Draw;

impl PrivacyEngine {
    /// Returns an error unless the draw is the next one of the plan's sampler and every drawn unit
    /// was clipped once.
    pub(super) fn check_draw(&self, draw: &Draw) -> Result<(), DpError> {
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
        let seen = self.pending.as_ref().map_or(0, |sum| sum.statistics().reveal().examples);
        if seen != draw.private_indices().len() {
            return Err(DpError::state(
                "the losses given to `backward` are not one for each drawn unit; give every \
                 physical batch of the logical batch to `backward` exactly once",
            ));
        }
        Ok(())
    }

    /// Returns an error if the next step cannot be made, before its examples are used.
    #[cfg(feature = "train")]
    pub(crate) fn check_next(&mut self) -> Result<(), DpError> {
        let batch = self.plan.expected_batch_size;
        let multiplier = self.plan.noise_multiplier_at(self.next_step);
        let thresholds = match &self.frozen {
            Some(thresholds) => thresholds.clone(),
            None => self.plan.clipping.thresholds(self.next_step)?,
        };
        let noise = thresholds.noise(multiplier, batch)?;
        self.check_budget(&self.plan.mechanism.event(noise.event))
    }

    /// Returns an error if the release would exceed the budget or follows the last planned step.
    pub(super) fn check_budget(&self, event: &DpEvent) -> Result<(), DpError> {
        // A repeated step was paid for.
        let paid = self.next_step < self.ledger.releases();
        if let Some(budget) = self.plan.budget
            && !paid
            && !self.plan.is_certified(self.next_step, event, &self.ledger)
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
