//! A copy of the workspace in which each guard can be removed.
//!
//! All edits are in one copy, which is built once: each of them is in force only if an environment
//! variable has the id of its guard.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use super::catalog::{self, Edge};

/// The variable that names the guard to remove.
pub(crate) const VARIABLE: &str = "BURN_DP_REMOVED_GUARD";

/// The pages of the documentation, which the sources include. The copy has one line of each, so a
/// change to their text rebuilds nothing.
const PAGES: &str = "burn-dp/docs/";

/// The function that is added to the root of a library.
const FUNCTION: &str = r#"
/// Returns whether the guard `id` is taken away.
pub(crate) fn removed_guard(id: &str) -> bool {
    static REMOVED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    REMOVED.get_or_init(|| std::env::var("VARIABLE").ok()).as_deref() == Some(id)
}
"#;

/// The manifest with the version of all crates.
const MANIFEST: &str = "Cargo.toml";

/// The roots of the libraries, which get the function that reads the variable.
const LIBRARIES: [&str; 2] = ["burn-dp/src/lib.rs", "burn-dp-accountant/src/lib.rs"];

/// Writes the files `paths` of the workspace at `root` to `folder`, with the edits of all guards.
///
/// A file whose content stays the same is not written, so that cargo rebuilds nothing.
///
/// # Errors
///
/// Returns a message if two edits overlap, or if a file cannot be read or written.
pub(crate) fn write(
    root: &Path,
    folder: &Path,
    paths: &[String],
    edges: &[Edge],
) -> Result<(), String> {
    let mut edits: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for (_, guard) in catalog::guards(edges) {
        for edit in &guard.edit {
            let code = edit.code(&guard.id);
            edits.entry(&edit.file).or_default().push((&edit.original, code));
        }
    }
    for path in paths {
        let from = root.join(path);
        let mut bytes = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        let edits = edits.remove(path.as_str()).unwrap_or_default();
        let is_library = LIBRARIES.contains(&path.as_str());
        if !edits.is_empty() || is_library {
            let text = String::from_utf8(bytes).map_err(|error| format!("{path}: {error}"))?;
            let mut text = edited(&text, &edits).map_err(|reason| format!("{path}: {reason}"))?;
            if is_library {
                text += &FUNCTION.replace("VARIABLE", VARIABLE);
            }
            bytes = text.into_bytes();
        }
        if path == MANIFEST {
            bytes = own_version(&String::from_utf8_lossy(&bytes)).into_bytes();
        }
        if path.starts_with(PAGES) {
            bytes = b"A page.\n".to_vec();
        }
        update(&folder.join(path), &bytes)?;
    }
    let kept = paths.iter().map(String::as_str).collect();
    remove_others(folder, folder, &kept)
}

/// Returns the manifest of the workspace with a version of its own.
///
/// For Cargo, crates of two copies of a workspace differ in name and version only. With the same
/// version, the next build of the sources in the same folder for build results would take
/// the crates of the copy, whose guards can be removed, as up to date.
fn own_version(manifest: &str) -> String {
    let own = |line: &str| match line.strip_prefix("version = \"").and_then(|l| l.strip_suffix('"'))
    {
        Some(version) => format!("version = \"{version}+guards\"\n"),
        None => format!("{line}\n"),
    };
    manifest.lines().map(own).collect()
}

/// Returns `text` with all replacements made.
fn edited(text: &str, edits: &[(&str, String)]) -> Result<String, String> {
    let mut places: Vec<(Range<usize>, &str)> = Vec::new();
    for (original, code) in edits {
        let start = text.find(original).ok_or_else(|| format!("`{original}` is not there"))?;
        places.push((start..start + original.len(), code));
    }
    places.sort_by_key(|(place, _)| place.start);
    let (mut result, mut end) = (String::new(), 0);
    for (place, code) in places {
        if place.start < end {
            return Err(format!("two edits overlap at `{}`", &text[place]));
        }
        result += &text[end..place.start];
        result += code;
        end = place.end;
    }
    Ok(result + &text[end..])
}

fn update(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    let failed = |error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, bytes).map_err(failed)
}

/// Removes the files below `folder` that an earlier copy had.
fn remove_others(root: &Path, folder: &Path, kept: &BTreeSet<&str>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(root, &path, kept)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if !kept.contains(name.as_str()) {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_crates_of_the_copy_have_a_version_of_their_own() {
        let manifest = std::fs::read_to_string(crate::workspace::root().join(MANIFEST)).unwrap();
        let copy = own_version(&manifest);
        let changed: Vec<_> = manifest.lines().zip(copy.lines()).filter(|(a, b)| a != b).collect();
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(changed[0].1.starts_with("version = ") && changed[0].1.ends_with("+guards\""));
    }

    #[test]
    fn all_edits_of_a_file_are_made_at_once() {
        let edits = [("c", "C!".to_string()), ("a", "removed a".to_string())];
        assert_eq!(edited("a b c d", &edits).unwrap(), "removed a b C! d");
    }

    #[test]
    fn edits_that_overlap_or_have_no_place_are_refused() {
        let edits = [("a b", String::new()), ("b c", String::new())];
        assert!(edited("a b c", &edits).unwrap_err().contains("overlap"));
        assert!(edited("a", &[("z", String::new())]).unwrap_err().contains("not there"));
    }
}
