//! Errors in the list of guards that can be found by reading.

use std::collections::{BTreeMap, BTreeSet};

use super::catalog::{self, Edge, Guard};
use super::page::{self, Entry};

/// The folders whose files may be edited.
const LIBRARIES: [&str; 2] = ["burn-dp/src/", "burn-dp-accountant/src/"];

/// Returns what is missing, unknown, or incorrect in the list of guards.
///
/// `sources` are the Rust files of the library and of its tests, by path.
pub(crate) fn faults(
    edges: &[Edge],
    entries: &[Entry],
    sources: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut faults = of_entries(edges, entries);
    let ids: Vec<&str> = catalog::guards(edges).map(|(_, guard)| guard.id.as_str()).collect();
    for (index, id) in ids.iter().enumerate() {
        if ids[..index].contains(id) {
            faults.push(format!("{id}: two guards have this id"));
        }
    }
    let tests: BTreeSet<&str> = sources.values().flat_map(|text| page::tests_of(text)).collect();
    for (_, guard) in catalog::guards(edges) {
        faults.extend(of_guard(guard, &ids, sources));
        let unknown = guard.tests.iter().filter(|test| !tests.contains(test.as_str()));
        faults.extend(unknown.map(|test| format!("{}: there is no test `{test}`", guard.id)));
    }
    faults
}

/// Compares the entries of the list with the entries of the page.
fn of_entries(edges: &[Edge], entries: &[Entry]) -> Vec<String> {
    let mut faults = Vec::new();
    for edge in edges {
        if !entries.iter().any(|entry| entry.name == edge.name) {
            faults.push(format!("{}: no such entry of the page", edge.name));
        }
    }
    for Entry { name, tests } in entries {
        let listed: Vec<&Edge> = edges.iter().filter(|edge| edge.name == *name).collect();
        let [edge] = listed[..] else {
            faults.push(format!("{name}: listed {} times, not once", listed.len()));
            continue;
        };
        if edge.guard.is_empty() == edge.reason.is_none() {
            faults.push(format!("{name}: needs a guard, or the reason why there is none"));
        }
        for unguarded in edge.unguarded.iter().filter(|unguarded| unguarded.reason.is_empty()) {
            faults.push(format!("{name}: no reason why `{}` has no guard", unguarded.test));
        }
        let guarded = edge.guard.iter().flat_map(|guard| &guard.tests);
        let found: BTreeSet<&String> =
            guarded.chain(edge.unguarded.iter().map(|unguarded| &unguarded.test)).collect();
        let named: BTreeSet<&String> = tests.iter().collect();
        for test in named.difference(&found) {
            faults.push(format!("{name}: no guard makes `{test}` fail"));
        }
        for test in found.difference(&named) {
            faults.push(format!("{name}: the page does not name `{test}`"));
        }
    }
    faults
}

fn of_guard(guard: &Guard, ids: &[&str], sources: &BTreeMap<String, String>) -> Vec<String> {
    let Guard { id, tests, same_as, edit_of, edit } = guard;
    let mut faults = Vec::new();
    if tests.is_empty() {
        faults.push(format!("{id}: no test"));
    }
    let ways =
        [!edit.is_empty(), same_as.is_some(), edit_of.is_some()].iter().filter(|way| **way).count();
    if ways != 1 {
        faults.push(format!("{id}: needs edits, `same_as` or `edit_of`, one of them"));
    }
    for other in same_as.iter().chain(edit_of) {
        if !ids.contains(&other.as_str()) {
            faults.push(format!("{id}: there is no guard `{other}`"));
        }
    }
    for edit in edit {
        let file = &edit.file;
        let may_be_edited = LIBRARIES.iter().any(|folder| file.starts_with(folder));
        let found = match sources.get(file).filter(|_| may_be_edited) {
            Some(text) => text.matches(&edit.original).count(),
            None => 0,
        };
        if found != 1 {
            let line = edit.original.lines().next().unwrap_or_default();
            faults.push(format!("{id}: `{line}` occurs {found} times in {file}, not once"));
        }
        if !edit.replacement.contains("removed!(") {
            faults.push(format!("{id}: a replacement without the condition `removed!()`"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guards::catalog::Edit;

    fn guard(id: &str, original: &str) -> Guard {
        let edit = Edit {
            file: "burn-dp/src/a.rs".into(),
            original: original.into(),
            replacement: "removed!()".into(),
        };
        let tests = vec!["fails".into()];
        Guard { id: id.into(), tests, same_as: None, edit_of: None, edit: vec![edit] }
    }

    fn found(guards: Vec<Guard>, reason: Option<&str>, named: &[&str]) -> Vec<String> {
        let reason = reason.map(String::from);
        let edge = Edge { name: "Edge.".into(), reason, guard: guards, unguarded: vec![] };
        let tests = named.iter().map(ToString::to_string).collect();
        let entry = Entry { name: "Edge.".into(), tests };
        let text = "check(); twice(); twice(); #[test] fn fails() {}";
        let sources = BTreeMap::from([("burn-dp/src/a.rs".to_string(), text.to_string())]);
        faults(&[edge], &[entry], &sources)
    }

    #[test]
    fn a_complete_list_has_no_faults() {
        assert!(found(vec![guard("a", "check()")], None, &["fails"]).is_empty());
        assert!(found(vec![], Some("a type"), &[]).is_empty());
    }

    #[test]
    fn text_that_is_gone_or_not_unique_is_a_fault() {
        for (original, times) in [("gone()", 0), ("twice()", 2)] {
            let faults = found(vec![guard("a", original)], None, &["fails"]);
            assert_eq!(faults.len(), 1);
            assert!(faults[0].contains(&format!("occurs {times} times")), "{faults:?}");
        }
    }

    #[test]
    fn every_entry_needs_a_guard_or_a_reason() {
        assert!(found(vec![], None, &[])[0].contains("needs a guard"));
    }

    #[test]
    fn every_named_test_needs_a_guard_and_exists() {
        let guards = || vec![guard("a", "check()")];
        let faults = found(guards(), None, &["fails", "passes"]);
        assert!(faults[0].contains("no guard makes `passes` fail"), "{faults:?}");
        let faults = found(guards(), None, &[]);
        assert!(faults[0].contains("does not name `fails`"), "{faults:?}");
        let mut other = guard("a", "check()");
        other.tests = vec!["unknown".into()];
        let faults = found(vec![other], None, &["unknown"]);
        assert!(faults[0].contains("no test `unknown`"), "{faults:?}");
    }

    #[test]
    fn ids_are_unique_and_known() {
        let faults = found(vec![guard("a", "check()"), guard("a", "check()")], None, &["fails"]);
        assert!(faults[0].contains("two guards"), "{faults:?}");
        let same = Guard { edit: vec![], same_as: Some("c".into()), ..guard("b", "") };
        let faults = found(vec![same], None, &["fails"]);
        assert!(faults[0].contains("no guard `c`"), "{faults:?}");
        let none = Guard { edit: vec![], ..guard("b", "") };
        assert!(found(vec![none], None, &["fails"])[0].contains("one of them"));
    }
}
