//! Earlier releases on the same data as a run.

use std::path::{Path, PathBuf};

use burn_dp::DpError;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp_accountant::{DpEvent, PrivacyLedger};

use super::{LEDGER_FILE, TrainError};

/// The ledgers of the releases before a run. A plan counts them, and a checkpoint compares them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EarlierLedgers(Vec<PrivacyLedger>);

impl EarlierLedgers {
    /// Reads the files of `--earlier-ledger` for a run that writes to the folder `output`.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a file that is not a ledger, that has no release (it
    /// would be taken for a proof that nothing was released), or that the run would replace with
    /// its own ledger.
    pub fn read(files: &[PathBuf], output: &Path) -> Result<Self, TrainError> {
        let replaced = output.join(LEDGER_FILE).canonicalize().ok();
        let ledgers = files.iter().map(|path| {
            let refused = |reason: String| TrainError::option("--earlier-ledger", reason);
            if replaced.is_some() && path.canonicalize().ok() == replaced {
                return Err(refused(format!(
                    "{} is in the output folder, where the ledger of this run replaces it; copy \
                     it, or give another --output",
                    path.display()
                )));
            }
            let ledger = PrivacyLedger::load(path).map_err(|error| {
                refused(format!(
                    "must be the ledger.json of an output folder, which is next to its \
                     privacy.json: {error}"
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

    /// Returns the releases, each with its count.
    pub fn releases(&self) -> impl Iterator<Item = (&DpEvent, u64)> {
        self.0.iter().flat_map(PrivacyLedger::entries).map(|entry| (&entry.event, entry.count))
    }

    /// Returns the ledgers as text, to compare them.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if a ledger cannot be written.
    pub fn to_json(&self) -> Result<Vec<String>, TrainError> {
        let json = |ledger: &PrivacyLedger| Ok(ledger.to_json().map_err(DpError::from)?);
        self.0.iter().map(json).collect()
    }

    /// Returns the configuration of a run after these releases.
    pub fn before(&self, config: PrivacyPlanConfig) -> PrivacyPlanConfig {
        self.0.iter().cloned().fold(config, PrivacyPlanConfig::with_earlier_releases)
    }
}
