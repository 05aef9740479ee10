//! Strategies as files, and searches that keep their results in a folder.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::strategy_search::{StrategyFamily, StrategySearch};
use super::Strategy;
use crate::atomic_file;
use crate::error::AccountantError;
use crate::strict_json;

/// Version of the files.
const FORMAT_VERSION: u32 = 1;

/// Maximum relative difference between the recorded loss and the loss of the strategy in the file.
const LOSS_TOLERANCE: f64 = 1e-9;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StrategyFile {
    format_version: u32,
    strategy: Strategy,
    /// The search that found the strategy, with its loss, in a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_of: Option<SearchResult>,
}

#[derive(Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct SearchResult {
    /// The settings of the search, as text.
    search: String,
    loss: f64,
}

fn write(path: &Path, file: &StrategyFile) -> Result<(), AccountantError> {
    let text = serde_json::to_string_pretty(file).map_err(|source| AccountantError::Format {
        reason: "the strategy cannot be written".to_string(),
        source: Some(source),
    })?;
    atomic_file::replace(path, &text)
}

fn read(path: &Path) -> Result<StrategyFile, AccountantError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| AccountantError::Io { path: path.to_path_buf(), source })?;
    let file: StrategyFile =
        strict_json::read(&text).map_err(|source| AccountantError::Format {
            reason: format!("{} is not a strategy", path.display()),
            source: Some(source),
        })?;
    if file.format_version != FORMAT_VERSION {
        return Err(AccountantError::Format {
            reason: format!(
                "{} has format version {}, this program reads {FORMAT_VERSION}",
                path.display(),
                file.format_version
            ),
            source: None,
        });
    }
    Ok(file)
}

impl Strategy {
    /// Writes the strategy to a file atomically: after a crash the file has the old or the new
    /// content.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Io`] with the path if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), AccountantError> {
        let strategy = self.clone();
        let file = StrategyFile { format_version: FORMAT_VERSION, strategy, result_of: None };
        write(path.as_ref(), &file)
    }

    /// Reads a strategy from a file. Everything in it is checked as in [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Io`] with the path if the file cannot be read, and
    /// [`AccountantError::Format`] if it is not a valid strategy of this format version.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, AccountantError> {
        Ok(read(path.as_ref())?.strategy)
    }

    /// Returns the result of `search`, from `folder` if it exists there; otherwise searches and
    /// writes the result to `folder`.
    ///
    /// A file is used only if it is from the same search and its strategy has the recorded loss,
    /// which is computed again. Any other file is replaced. The privacy of a run does not depend on
    /// the folder, because the sensitivity follows from the strategy that is used.
    ///
    /// # Errors
    ///
    /// Returns the error of the search, and [`AccountantError::Io`] with the path if the file
    /// cannot be written.
    pub fn load_or_search(
        folder: impl AsRef<Path>,
        search: &StrategySearch,
        family: StrategyFamily,
    ) -> Result<Self, AccountantError> {
        let path = folder.as_ref().join(file_name(search, family));
        if let Ok(file) = read(&path)
            && let Some(result) = file.result_of
            && result.search == settings(search, family)
            && file.strategy.steps() == search.steps()
            && let Ok(loss) = search.loss_of(&file.strategy)
            && (loss / result.loss - 1.0).abs() <= LOSS_TOLERANCE
        {
            return Ok(file.strategy);
        }
        let strategy = search.run(family)?;
        let loss = search.loss_of(&strategy)?;
        let result_of = Some(SearchResult { search: settings(search, family), loss });
        let file = StrategyFile { format_version: FORMAT_VERSION, strategy, result_of };
        write(&path, &file)?;
        Ok(file.strategy)
    }
}

/// Returns the name of the file of a result: readable, and different for different searches.
fn file_name(search: &StrategySearch, family: StrategyFamily) -> String {
    // FNV-1a, whose value is the same on every machine. A collision is found on reading.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in settings(search, family).bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{family}-{}-{hash:016x}.json", search.steps())
}

fn settings(search: &StrategySearch, family: StrategyFamily) -> String {
    format!("{family:?} in {search:?}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn strategy_survives_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strategy.json");
        let strategy = Strategy::buffered(100, &[0.9, 1.0 / 3.0], &[0.1, 0.2]).unwrap();
        strategy.save(&path).unwrap();
        strategy.save(&path).unwrap();
        assert_eq!(Strategy::load(&path).unwrap(), strategy);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"format_version\": 1", "\"format_version\": 9"))
            .unwrap();
        let error = Strategy::load(&path).unwrap_err().to_string();
        assert!(error.contains("strategy.json") && error.contains("version 9"), "{error}");
        std::fs::write(&path, text.replace("0.9", "1.9")).unwrap();
        let error = Strategy::load(&path).unwrap_err().to_string();
        assert!(error.contains("between 0 and 1, got 1.9"), "{error}");
        let error = Strategy::load(folder.path().join("missing.json")).unwrap_err().to_string();
        assert!(error.contains("missing.json"), "{error}");
    }

    #[test]
    fn cache_is_used_and_never_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let search = StrategySearch::new(30).unwrap();
        let family = StrategyFamily::BandedToeplitz { bands: 4 };
        let found = Strategy::load_or_search(&folder, &search, family).unwrap();
        assert_eq!(found, search.banded_toeplitz(4).unwrap());
        let file = folder.path().join(file_name(&search, family));
        let good = std::fs::read_to_string(&file).unwrap();
        // A valid file is used: another strategy with its own loss is returned unchanged.
        let other = Strategy::banded_toeplitz(30, &[1.0, 0.5]).unwrap();
        let loss = search.loss_of(&other).unwrap();
        let planted = |strategy: &Strategy, loss: f64, steps: u64| {
            let search = StrategySearch::new(steps).unwrap();
            let result_of = Some(SearchResult { search: settings(&search, family), loss });
            let strategy = strategy.clone();
            write(&file, &StrategyFile { format_version: 1, strategy, result_of }).unwrap();
            Strategy::load_or_search(&folder, &StrategySearch::new(30).unwrap(), family).unwrap()
        };
        assert_eq!(planted(&other, loss, 30), other);
        // A file with a wrong loss, another search, a shorter strategy, or damage is not used.
        assert_eq!(planted(&other, 0.9 * loss, 30), found);
        assert_eq!(planted(&other, loss, 31), found);
        let short = Strategy::banded_toeplitz(20, &[1.0, 0.5]).unwrap();
        assert_eq!(planted(&short, search.loss_of(&short).unwrap(), 30), found);
        for damaged in [&good[..good.len() / 2], "", "{}"] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(Strategy::load_or_search(&folder, &search, family).unwrap(), found);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), good);
        }
    }
}
