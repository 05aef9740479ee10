//! Releases that were made before a run on the same data.

use burn_dp::optim::PrivacyPlanConfig;
use burn_dp_accountant::PrivacyLedger;

use super::TrainError;
use super::options::PrivacyOptions;

/// The ledgers of the releases before a run. A plan counts them, and a checkpoint compares them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EarlierLedgers(Vec<PrivacyLedger>);

impl EarlierLedgers {
    /// Reads the files of `--earlier-ledger`.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a file that is not a ledger, or that has no release: it
    /// would be taken for a proof that nothing was released.
    pub fn read(options: &PrivacyOptions) -> Result<Self, TrainError> {
        let ledgers = options.earlier_ledger.iter().map(|path| {
            let refused = |reason: String| TrainError::option("--earlier-ledger", reason);
            let ledger = PrivacyLedger::load(path).map_err(|error| {
                refused(format!(
                    "{} cannot be read: {error}; give the ledger.json of an output folder, which \
                     is next to its privacy.json",
                    path.display()
                ))
            })?;
            match ledger.releases() {
                0 => Err(refused(format!(
                    "{} contains no release; leave it out, or give the ledger of what was released",
                    path.display()
                ))),
                _ => Ok(ledger),
            }
        });
        Ok(Self(ledgers.collect::<Result<_, _>>()?))
    }

    /// Returns the configuration of a run after these releases.
    pub fn before(&self, config: PrivacyPlanConfig) -> PrivacyPlanConfig {
        self.0.iter().cloned().fold(config, PrivacyPlanConfig::with_earlier_releases)
    }
}
