//! The end of a training whose next step would exceed the budget.

use burn_dp::DpError;
use burn_dp::optim::RefusedStep;

use super::TrainError;

/// Returns the model after a step, and why the training stops there if the step would have exceeded
/// the budget: then it was not made.
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the step was refused for another reason.
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
