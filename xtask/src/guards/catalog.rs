//! The guards of the library, as the files of `xtask/guards` list them.

use std::path::Path;

use serde::Deserialize;

/// The folder of the files, from the root of the repository.
const FOLDER: &str = "xtask/guards";

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    edge: Vec<Edge>,
}

/// An entry of the page of sharp edges.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    /// Its bold sentence.
    pub(crate) name: String,
    /// Why there is no guard.
    pub(crate) reason: Option<String>,
    /// What the library does about it.
    #[serde(default)]
    pub(crate) guard: Vec<Guard>,
    /// Tests that no removal of a guard makes fail.
    #[serde(default)]
    pub(crate) unguarded: Vec<Unguarded>,
}

/// A piece of code that can be removed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guard {
    /// A name, which occurs once in all files.
    pub(crate) id: String,
    /// The tests of the page that fail without the guard.
    pub(crate) tests: Vec<String>,
    /// Another guard, together with which this one is removed.
    pub(crate) same_as: Option<String>,
    /// Another guard, one of whose edits names this one.
    pub(crate) edit_of: Option<String>,
    /// The edits that remove the guard.
    #[serde(default)]
    pub(crate) edit: Vec<Edit>,
}

/// A test without a guard.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unguarded {
    /// The name of its function.
    pub(crate) test: String,
    /// Why nothing makes it fail.
    pub(crate) reason: String,
}

/// A replacement in a file of the library.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// The path from the root of the repository.
    pub(crate) file: String,
    /// Text that occurs once in the file.
    pub(crate) original: String,
    /// Code with the condition `removed!()`, or `removed!("other-id")`.
    pub(crate) replacement: String,
}

impl Guard {
    /// Returns the name under which the guard is removed.
    pub(crate) fn switch(&self) -> &str {
        self.same_as.as_deref().unwrap_or(&self.id)
    }
}

impl Edit {
    /// Returns the replacement with conditions that compile.
    pub(crate) fn code(&self, id: &str) -> String {
        let own = format!("crate::removed_guard(\"{id}\")");
        self.replacement.replace("removed!()", &own).replace("removed!(", "crate::removed_guard(")
    }
}

/// Returns the entries of all files.
///
/// # Errors
///
/// Returns a message if a file cannot be read.
pub(crate) fn read(root: &Path) -> Result<Vec<Edge>, String> {
    let folder = root.join(FOLDER);
    let failed =
        |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let entries = std::fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut edges = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let file: File = toml::from_str(&text).map_err(|error| failed(&path, &error))?;
        edges.extend(file.edge);
    }
    Ok(edges)
}

/// Returns all guards, each with its entry.
pub(crate) fn guards(edges: &[Edge]) -> impl Iterator<Item = (&Edge, &Guard)> {
    edges.iter().flat_map(|edge| edge.guard.iter().map(move |guard| (edge, guard)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_its_guard_or_another_one() {
        let edit = Edit {
            file: String::new(),
            original: String::new(),
            replacement: "if removed!() || removed!(\"b\") {".into(),
        };
        let expected = "if crate::removed_guard(\"a\") || crate::removed_guard(\"b\") {";
        assert_eq!(edit.code("a"), expected);
    }
}
