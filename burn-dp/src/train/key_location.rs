//! Locations where the key of a run must not be.

use std::path::{Path, PathBuf};

use crate::DpError;

/// Returns an error if the file `key` is in the folder `results`.
pub(super) fn key_among(results: &Path, key: &Path) -> Option<DpError> {
    // A path with only a file name has an empty parent.
    let path = std::path::absolute(key).unwrap_or_else(|_| key.to_path_buf());
    let folder = path.parent().unwrap_or(&path);
    real(folder).starts_with(real(results)).then(|| {
        DpError::invalid(
            "key_file",
            format!(
                "{} is in the folder of the results, {}, which may be published, and whoever has \
                 the key can subtract the noise; give another folder of checkpoints, or \
                 `PrivateTrainingConfig::with_key_file`",
                key.display(),
                results.display()
            ),
        )
    })
}

/// Returns the path without links, even if its end does not exist yet.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let existing = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match existing {
        Some((part, real)) => match path.strip_prefix(part) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_below_the_results_is_found_before_the_folders_exist() {
        for (key, is_among) in [
            ("out/run/private.key", true),
            ("out/run/./deep/private.key", true),
            ("out/run-private.key", false),
            ("out/run.key", false),
            ("private.key", false),
        ] {
            let found = key_among(Path::new("out/run"), Path::new(key));
            assert_eq!(found.is_some(), is_among, "{key}");
        }
        let everything = key_among(Path::new("."), Path::new("private.key"));
        assert!(everything.is_some());
    }
}
