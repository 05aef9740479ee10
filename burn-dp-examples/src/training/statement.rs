//! The privacy statement of a run, for people and for machines.

use burn_dp::optim::DpOptimizer;
use burn_dp_accountant::PrivacyStatement;

use super::{PrivacySettings, Settings, TrainError, files};

/// Name of the file with the privacy statement as JSON.
pub const STATEMENT_JSON: &str = "privacy.json";

/// Name of the file with the privacy statement as text.
pub const STATEMENT_TEXT: &str = "privacy.txt";

/// Values of δ that a statement gives ε at, beside that of the run.
const DELTAS: [f64; 4] = [1e-4, 1e-5, 1e-6, 1e-8];

/// The statement of what was released, at several δ.
///
/// # Errors
///
/// Those of the accountant.
pub(super) fn statement(
    optim: &DpOptimizer,
    privacy: PrivacySettings,
    dataset: &str,
) -> Result<PrivacyStatement, TrainError> {
    let mut statement = optim.statement(&deltas(privacy.delta, optim.plan().dataset_size()))?;
    statement.facts.insert("dataset".into(), dataset.into());
    statement.not_covered.extend(
        [
            "What the program printed while it trained: the share of clipped gradients comes from \
             the private data.",
            "The images and labels of the test set, which is taken as public.",
            "Settings that were chosen by looking at results of earlier runs on the same data.",
        ]
        .map(String::from),
    );
    Ok(statement)
}

/// The δ of the run first, then the smaller ones and those that are still below 1/N.
fn deltas(delta: f64, dataset_size: usize) -> Vec<f64> {
    let below = |other: &f64| *other != delta && *other < 1.0 / dataset_size as f64;
    [delta].into_iter().chain(DELTAS.into_iter().filter(below)).collect()
}

/// Writes both forms into the output folder.
///
/// # Errors
///
/// When a file cannot be written.
pub(super) fn write(statement: &PrivacyStatement, settings: &Settings) -> Result<(), TrainError> {
    files::write_json(&settings.file(STATEMENT_JSON), statement)?;
    files::write(&settings.file(STATEMENT_TEXT), statement.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delta_of_the_run_comes_first_and_none_allows_publishing_an_image() {
        assert_eq!(deltas(1e-5, 60_000), [1e-5, 1e-6, 1e-8]);
        assert_eq!(deltas(2e-5, 12_000), [2e-5, 1e-5, 1e-6, 1e-8]);
        assert_eq!(deltas(1e-3, 100), [1e-3, 1e-4, 1e-5, 1e-6, 1e-8]);
    }
}
