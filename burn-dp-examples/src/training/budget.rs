//! The end of training whose next step would exceed the budget.

use burn_dp::DpError;
use burn_dp::optim::RefusedStep;

use super::TrainError;

/// Returns the model after a step, and the reason why training stops there if the step would have
/// exceeded the budget, in which case it did not run.
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the step was rejected for another reason.
pub fn within_budget<M>(
    step: Result<M, Box<RefusedStep<M>>>,
) -> Result<(M, Option<String>), TrainError> {
    match step {
        Ok(model) => Ok((model, None)),
        Err(refused) if matches!(refused.error(), DpError::BudgetExhausted { .. }) => {
            let reason = refused.to_string();
            Ok((refused.into_model(), Some(reason)))
        }
        Err(refused) => Err(DpError::from(refused).into()),
    }
}
