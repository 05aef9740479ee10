//! Removes each guard of the library, and checks that the tests on the page of sharp edges notice.
//!
//! | file | content |
//! |---|---|
//! | `catalog` | the list of guards, in `xtask/guards` |
//! | `page` | the entries of the page, and the tests that they name |
//! | `faults` | what is wrong with the list; a test of this program, so that the list stays true |
//! | `copy` | a copy of the workspace in which each guard can be taken away |
//! | `build` | one build of its tests |
//! | `run` | each test without its guard |
//! | `report` | the results |

mod build;
mod catalog;
mod copy;
mod faults;
mod page;
mod report;
mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::lint;
use crate::workspace;

use self::catalog::{Edge, Guard};
use self::report::Row;
use self::run::{Outcome, Task};

/// The packages whose guards are taken away. The tests run in the folder of the first.
const PACKAGES: [&str; 2] = ["burn-dp", "burn-dp-accountant"];

/// What `cargo xtask guards` does.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Take away these guards only.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<String>,
    /// Print the guards and their tests, and run nothing.
    #[arg(long)]
    list: bool,
    /// Only check that the copy without the guards compiles, which takes a few minutes.
    #[arg(long, conflicts_with_all = ["only", "list", "json"])]
    build_only: bool,
    /// Also write the results to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End a test after this many seconds; a test that hangs has noticed nothing.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

/// Runs the command.
///
/// # Errors
///
/// Returns a message if the list has faults, the copy does not compile, a test fails with all
/// guards in place, or a test does not fail without its guard.
pub(crate) fn run(options: &Options, root: &Path) -> Result<(), String> {
    let paths = lint::paths(root)?;
    let edges = checked(root, &paths)?;
    let chosen = chosen(&edges, &options.only)?;
    if options.list {
        chosen.iter().for_each(|(edge, guard)| println!("{}", report::listed(edge, guard)));
        return Ok(());
    }
    let folder = workspace::target().join("guards");
    copy::write(root, &folder, &paths, &edges)?;
    if options.build_only {
        return build::check(&folder);
    }
    let built = build::tests(&folder)?;
    let mut tasks = Vec::new();
    let mut owners = Vec::new();
    for (edge, guard) in &chosen {
        for name in &guard.tests {
            let found = built.get(name).ok_or_else(|| format!("the build has no test `{name}`"))?;
            for test in found {
                tasks.push(Task { switch: Some(guard.switch()), test });
                owners.push((*edge, *guard));
            }
        }
    }
    let (package, limit) = (folder.join(PACKAGES[0]), Duration::from_secs(options.timeout));
    every_guard_in_place(&tasks, &package, limit)?;
    let report = |index: usize, outcome| {
        println!("{}", report::line(&owners[index].1.id, &tasks[index].test.path, outcome));
    };
    let results = run::run_all(&tasks, &package, limit, report)?;
    let rows: Vec<Row> = owners
        .iter()
        .zip(&tasks)
        .zip(results)
        .map(|(((edge, guard), task), result)| Row::new(edge, guard, &task.test.path, result))
        .collect();
    if let Some(path) = &options.json {
        report::write(path, &rows)?;
    }
    report::summary(&rows)
}

/// Returns the list of guards.
///
/// # Errors
///
/// Returns a message with all faults of the list.
fn checked(root: &Path, paths: &[String]) -> Result<Vec<Edge>, String> {
    let edges = catalog::read(root)?;
    let text = |path: &String| std::fs::read_to_string(root.join(path)).ok();
    let page = text(&page::PAGE.to_string()).ok_or("the page of sharp edges is missing")?;
    let of_library = |path: &&String| {
        let folder = path.split('/').next().unwrap_or_default();
        path.ends_with(".rs") && PACKAGES.contains(&folder)
    };
    let sources: BTreeMap<_, _> = paths
        .iter()
        .filter(of_library)
        .filter_map(|path| Some((path.clone(), text(path)?)))
        .collect();
    let faults = faults::faults(&edges, &page::entries(&page), &sources);
    if faults.is_empty() { Ok(edges) } else { Err(faults.join("\n")) }
}

fn chosen<'a>(edges: &'a [Edge], only: &[String]) -> Result<Vec<(&'a Edge, &'a Guard)>, String> {
    let ids: Vec<&str> = catalog::guards(edges).map(|(_, guard)| guard.id.as_str()).collect();
    if let Some(id) = only.iter().find(|id| !ids.contains(&id.as_str())) {
        return Err(format!("there is no guard `{id}`; `cargo xtask guards --list` lists them"));
    }
    let is_chosen = |guard: &Guard| only.is_empty() || only.contains(&guard.id);
    Ok(catalog::guards(edges).filter(|(_, guard)| is_chosen(guard)).collect())
}

/// Checks that the tests pass in the copy while no guard is removed.
fn every_guard_in_place(tasks: &[Task], package: &Path, limit: Duration) -> Result<(), String> {
    let mut tests: Vec<_> = tasks.iter().map(|task| task.test).collect();
    tests.sort();
    tests.dedup();
    eprintln!("running {} tests with every guard in place", tests.len());
    let tasks: Vec<_> = tests.into_iter().map(|test| Task { switch: None, test }).collect();
    let results = run::run_all(&tasks, package, limit, |_, _| ())?;
    let failed = tasks.iter().zip(results).filter(|(_, (outcome, _))| *outcome != Outcome::Passed);
    let failed: Vec<&str> = failed.map(|(task, _)| task.test.path.as_str()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("these fail although every guard is there: {}", failed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_entry_of_the_page_has_guards_that_are_in_the_sources() {
        let root = workspace::root();
        let edges = checked(&root, &lint::paths(&root).unwrap()).unwrap_or_else(|faults| {
            panic!("the page of sharp edges and xtask/guards differ:\n{faults}")
        });
        assert!(catalog::guards(&edges).count() > 100);
    }

    #[test]
    fn the_page_says_how_many_guards_were_taken_away() {
        let root = workspace::root();
        let page = std::fs::read_to_string(root.join(page::PAGE)).unwrap();
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let guards = catalog::guards(&catalog::read(&root).unwrap()).count();
        assert!(page.contains(&format!("of {guards} guards")), "{guards} guards are listed");
    }

    #[test]
    fn an_unknown_guard_is_refused() {
        let error = chosen(&[], &["x".to_string()]).unwrap_err();
        assert!(error.contains("no guard `x`"), "{error}");
    }
}
