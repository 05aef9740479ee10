//! The privacy statement of a run.

use burn_dp::DpError;
use burn_dp::optim::DpOptimizer;
use burn_dp_accountant::{PrivacyLedger, PrivacyStatement};

use super::TrainError;

/// What a program says about its runs, beyond what the optimizer says: in the ledger, so that a
/// statement of the ledger, or of a later run that counts it, says it too.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// Public facts by name, for example the data set.
    pub facts: Vec<(&'static str, String)>,
    /// Sentences about what ε does not cover.
    pub not_covered: Vec<String>,
}

impl Described {
    /// Returns the ledger of all releases so far, with these facts and sentences.
    pub fn ledger(&self, optim: &DpOptimizer) -> PrivacyLedger {
        const CHOSEN: &str =
            "Settings that were chosen by looking at results of earlier runs on the same data.";
        let mut ledger = optim.ledger();
        self.facts.iter().for_each(|(name, fact)| ledger.add_fact(name, fact));
        let sentences = self.not_covered.iter().map(String::as_str);
        sentences.chain([CHOSEN]).for_each(|sentence| ledger.add_not_covered(sentence));
        ledger
    }
}

/// Returns the statement of all releases of a ledger.
///
/// # Arguments
///
/// - `deltas`: values of δ at which ε is stated
/// - `group`: the number of units for which ε is also stated, for example for several examples of
///   one person
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the accountant cannot analyze the releases, or if `group` is
/// 0.
pub(super) fn statement(
    ledger: &PrivacyLedger,
    deltas: &[f64],
    group: Option<u64>,
) -> Result<PrivacyStatement, TrainError> {
    let statement = PrivacyStatement::from_ledger(ledger, deltas);
    let statement = match group {
        Some(units) => statement.and_then(|statement| statement.with_group(ledger, units)),
        None => statement,
    };
    Ok(statement.map_err(DpError::from)?)
}
