//! Checks the tests that the page of sharp edges names.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Adds the names of all tests in the files below `folder` to `found`.
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

/// Returns the names in the third column of the page's tables.
fn tests_of_rows(page: &str) -> impl Iterator<Item = &str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.filter_map(|line| line.split('|').nth(3)).flat_map(in_backticks)
}

/// Returns the names after `Tests:` in the page's lists.
fn tests_of_items(page: &str) -> impl Iterator<Item = &str> {
    let items = page.split("\n- ").filter_map(|item| item.split_once("Tests:"));
    items.filter_map(|(_, tests)| tests.split("\n\n").next()).flat_map(in_backticks)
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn tests_named_on_the_page_exist() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    for folder in ["src", "tests"] {
        tests_below(&crate_folder.join(folder), &mut found);
    }
    let page = fs::read_to_string(crate_folder.join("docs/sharp-edges.md")).unwrap();
    let named: Vec<&str> = tests_of_rows(&page).chain(tests_of_items(&page)).collect();
    assert!(named.len() > 40, "the page names {} tests", named.len());
    let missing: Vec<_> = named.iter().filter(|name| !found.contains(**name)).collect();
    assert!(missing.is_empty(), "not found: {missing:?}");
}
