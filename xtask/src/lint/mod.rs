//! Checks of the structure and the words of the repository, run by `cargo xtask lint`.
//!
//! Each check is a pure function from paths and texts to findings. Only [`run`] reads files.

mod circles;
mod code;
mod columns;
mod documents;
mod finding;
mod imports;
mod items;
mod length;
mod lexer;
mod modules;
mod phrases;
mod texts;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use crate::workspace::SOURCES;

use self::finding::Finding;
use self::texts::Texts;

pub(crate) use self::texts::paths;

/// Runs all checks on the files of the repository at `root` and prints what they find.
///
/// # Errors
///
/// Returns a message with the number of findings of each check, or if the files cannot be listed.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let paths = texts::paths(root)?;
    let texts = texts::read(root, &paths);
    let findings = findings(&paths, &texts);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match summary(&findings) {
        None => Ok(()),
        Some(summary) => Err(summary),
    }
}

/// Returns what all checks find, by path and line.
fn findings(paths: &[String], texts: &Texts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in SOURCES {
        for root in modules::roots(source, texts) {
            let tree = modules::Tree::new(&root, texts);
            findings.extend(imports::circles(source, &tree));
            findings.extend(length::long_files(&tree, texts));
        }
    }
    for (path, text) in texts {
        findings.extend(phrases::banned(path, text));
        findings.extend(columns::long_lines(path, text));
        findings.extend(documents::dead_addresses(path, text));
        if path.ends_with("/troubleshooting.md") {
            let messages = documents::messages(texts, &SOURCES);
            findings.extend(documents::unknown_messages(path, text, &messages));
        }
        if path.ends_with(".md") {
            findings.extend(documents::missing_files(path, text, paths, texts));
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Returns the number of findings of each check, or nothing if there are none.
fn summary(findings: &[Finding]) -> Option<String> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry(finding.check).or_insert(0) += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(check, count)| format!("{check} {count}")).collect();
    (!counts.is_empty()).then(|| format!("the checks found: {}", counts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_its_own_count() {
        let finding = |check| Finding::new(check, "a.rs", 1, "wrong");
        let found = [finding("columns"), finding("words"), finding("columns")];
        assert_eq!(summary(&found).as_deref(), Some("the checks found: columns 2, words 1"));
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn every_planted_fault_is_found_and_a_clean_tree_passes() {
        let line = "x".repeat(101);
        let word = concat!("neighb", "our");
        let planted: Texts = [
            ("burn-dp/src/lib.rs".into(), "pub mod a;\npub mod b;\n".into()),
            ("burn-dp/src/a.rs".into(), "use crate::b::B;\npub struct A(B);\n".into()),
            ("burn-dp/src/b.rs".into(), "use crate::a::A;\npub struct B(A);\n".into()),
            ("README.md".into(), format!("{line} {line}\na {word}\nrun `tools/none.py`\n")),
        ]
        .into();
        let paths: Vec<_> = planted.keys().cloned().collect();
        let text = summary(&findings(&paths, &planted)).unwrap_or_default();
        assert_eq!(text, "the checks found: columns 1, documents 1, imports 2, words 1");

        let clean: Texts = [
            ("burn-dp/src/lib.rs".into(), "pub mod a;\npub mod b;\n".into()),
            ("burn-dp/src/a.rs".into(), "use crate::b::B;\npub struct A(B);\n".into()),
            ("burn-dp/src/b.rs".into(), "pub struct B;\n".into()),
            ("README.md".into(), "A neighbor.\nRead `burn-dp/src/a.rs`.\n".into()),
        ]
        .into();
        let paths: Vec<_> = clean.keys().cloned().collect();
        assert_eq!(findings(&paths, &clean), []);
    }
}
