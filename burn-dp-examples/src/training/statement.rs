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

const REFUSED: &str = "That the program did not start, and its message, where the data decide it: \
     a file that cannot be read, too few rows or users, other classes than the public examples \
     have, or public or test examples that are the private ones.";

impl Described {
    /// Returns the ledger of all releases so far, with these facts and sentences.
    pub fn ledger(&self, optim: &DpOptimizer) -> PrivacyLedger {
        const CHOSEN: &str =
            "Settings that were chosen by looking at results of earlier runs on the same data.";
        let mut ledger = optim.ledger();
        self.facts.iter().for_each(|(name, fact)| ledger.add_fact(name, fact));
        let sentences = self.not_covered.iter().map(String::as_str);
        sentences.chain([CHOSEN, REFUSED]).for_each(|sentence| ledger.add_not_covered(sentence));
        ledger
    }
}

/// Returns that the number of units is public.
pub(super) fn published_number(units: &str) -> String {
    format!(
        "The number of {units} that are trained on: it is published, and determines the sampling \
         probability and the number of steps."
    )
}

/// Returns that a part of the files was trained on: with a file that has one unit less, another one
/// moves up.
///
/// # Arguments
///
/// - `option`, `number`: the option that gave the number of units, and the number
pub(super) fn first_of_files(option: &str, number: usize, units: &str) -> String {
    format!(
        "The choice of the first {number} {units} of the files ({option}): if one of them is \
         removed from the files, another one takes its place, and epsilon is not for such a pair \
         of changes."
    )
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
