//! The page of sharp edges names tests that exist.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Names of the functions that are tests, in all files below `folder`.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for test in text.split("#[test]").skip(1) {
                let name = test.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
                found.extend(name.map(str::to_string));
            }
        }
    }
}

#[test]
fn every_test_that_the_page_names_exists() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    for folder in ["src", "tests"] {
        tests_below(&crate_folder.join(folder), &mut found);
    }
    let page = fs::read_to_string(crate_folder.join("docs/sharp-edges.md")).unwrap();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(3))
        .collect();
    let named: Vec<&str> =
        rows.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 40, "the page has a table of tests");
    let missing: Vec<_> = named.iter().filter(|name| !found.contains(**name)).collect();
    assert!(missing.is_empty(), "not found: {missing:?}");
}
