//! The files of the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The texts of a repository, by path from its root with forward slashes.
pub(crate) type Texts = BTreeMap<String, String>;

/// Endings of the files that are read, and the script of the checks.
const ENDINGS: [&str; 9] =
    [".css", ".html", ".js", ".md", ".py", ".rs", ".toml", ".yml", ".ci/run"];

/// Reads the files to check.
pub(crate) fn read(root: &Path, paths: &[String]) -> Texts {
    let is_text = |path: &&String| ENDINGS.iter().any(|ending| path.ends_with(ending));
    let read = |path: &String| Some((path.clone(), std::fs::read_to_string(root.join(path)).ok()?));
    paths.iter().filter(is_text).filter_map(read).collect()
}

/// Returns the paths of all files that git tracks or would track.
///
/// # Errors
///
/// Returns a message if git cannot list them.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().map_err(|error| format!("cannot start `git`: {error}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`git ls-files` failed: {}", reason.trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let there = |path: &&str| !path.is_empty() && root.join(path).is_file();
    Ok(text.split('\0').filter(there).map(String::from).collect())
}
