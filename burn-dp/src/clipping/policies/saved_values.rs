use crate::DpError;

/// Returns `count` values from the saved state of a policy.
///
/// # Errors
///
/// Returns [`DpError::SavedState`] if the state is not a list of `count` numbers, or if `is_valid`
/// rejects a number at its index.
pub(super) fn saved_values(
    name: &str,
    state: &serde_json::Value,
    count: usize,
    is_valid: impl Fn(usize, f64) -> bool,
) -> Result<Vec<f64>, DpError> {
    let values: Option<Vec<f64>> = serde_json::from_value(state.clone()).ok();
    values
        .filter(|values| values.len() == count)
        .filter(|values| values.iter().enumerate().all(|(index, &value)| is_valid(index, value)))
        .ok_or_else(|| {
            DpError::saved_state(format!(
                "the {name} of the clipping policy are {state}, and {count} numbers within its \
                 limits are expected; resume with the policy of the run"
            ))
        })
}

/// Returns positive, finite values from the saved state of a policy, one for each group.
///
/// # Errors
///
/// Returns [`DpError::SavedState`] if the state is anything else.
pub(super) fn saved_norms(state: &serde_json::Value, groups: usize) -> Result<Vec<f64>, DpError> {
    saved_values("norms", state, groups, |_, value| value > 0.0 && value.is_finite())
}
