//! The privacy statement of a run.

use burn_dp::DpError;
use burn_dp::optim::DpOptimizer;
use burn_dp_accountant::PrivacyStatement;

use super::TrainError;

/// Returns the statement of all releases.
///
/// # Arguments
///
/// - `deltas`: values of δ at which ε is stated
/// - `group`: the number of units for which ε is also stated, for example for several examples of
///   one person
/// - `facts`: public facts by name, for example the data set
/// - `not_covered`: facts that ε does not cover in this training run
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the accountant cannot analyze the releases, or if `group` is
/// 0.
pub fn statement(
    optim: &DpOptimizer,
    deltas: &[f64],
    group: Option<u64>,
    facts: impl IntoIterator<Item = (&'static str, String)>,
    not_covered: &[&str],
) -> Result<PrivacyStatement, TrainError> {
    const CHOSEN: &str =
        "Settings that were chosen by looking at results of earlier runs on the same data.";
    let mut statement = optim.statement(deltas)?;
    if let Some(units) = group {
        statement = statement.with_group(optim.ledger(), units).map_err(DpError::from)?;
    }
    statement.facts.extend(facts.into_iter().map(|(name, fact)| (name.to_string(), fact)));
    statement.not_covered.extend(not_covered.iter().chain([&CHOSEN]).map(ToString::to_string));
    Ok(statement)
}
