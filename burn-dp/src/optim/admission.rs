//! Whether a step may be made.

use burn_dp_accountant::DpEvent;

use super::engine::PrivacyEngine;
use crate::DpError;
use crate::sampling::Draw;

impl PrivacyEngine {
    /// Refuses a draw that is not the next one of the plan's sampler, or that was not worked off.
    pub(crate) fn check_draw(&self, draw: &Draw) -> Result<(), DpError> {
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
                "the batch was drawn with another key than that of the plan; draw with \
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

    /// Refuses a release that would break the budget or lies beyond the planned steps.
    pub(crate) fn check_budget(&self, event: &DpEvent) -> Result<(), DpError> {
        // A step that is made again was paid for.
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
