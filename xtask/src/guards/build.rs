//! The tests of the copy: one build, and the names of all tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::announcement::Announcement;
use crate::workspace;

/// The packages whose tests run, and the features that they are built with. The dependencies then
/// have the same features as in all tests, so that they are not built again.
const PACKAGES: [&str; 6] =
    ["-p", "burn-dp", "-p", "burn-dp-accountant", "--features", "burn-dp/ndarray,burn-dp/train"];

/// A test: the program that it is in, and its name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    /// The program.
    pub(crate) program: PathBuf,
    /// The path of the function in the program.
    pub(crate) path: String,
}

/// Builds the tests in the copy at `folder`, and returns them by the names of their functions.
///
/// # Errors
///
/// Returns a message if the copy does not compile, or if a program does not list its tests.
pub(crate) fn tests(folder: &Path) -> Result<BTreeMap<String, Vec<Test>>, String> {
    let arguments = ["test", "--no-run", "--lib", "--tests"];
    let messages = cargo(folder, &arguments, &["--message-format=json-render-diagnostics"])?;
    let mut tests: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    for program in programs(&messages) {
        let output = Command::new(&program).args(["--list", "--format", "terse"]).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        for path in listed(&String::from_utf8_lossy(&output.stdout)) {
            let name = path.rsplit("::").next().unwrap_or(path).to_string();
            let test = Test { program: program.clone(), path: path.into() };
            tests.entry(name).or_default().push(test);
        }
    }
    Ok(tests)
}

/// Checks that the libraries of the copy at `folder` compile, without their tests.
///
/// # Errors
///
/// Returns a message if they do not.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    cargo(folder, &["check", "--lib"], &[]).map(drop)
}

/// Runs cargo on the copy at `folder`, and returns what it prints.
fn cargo(folder: &Path, command: &[&str], more: &[&str]) -> Result<String, String> {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    Announcement::new("the library without its guards", &["ndarray", "train"]).print();
    eprintln!("$ cargo {} {} (in {})", command.join(" "), PACKAGES.join(" "), folder.display());
    let output = cargo
        .args(command)
        .args(PACKAGES)
        .args(more)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", workspace::target())
        // The tests take less time than their build.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "the copy in {} does not compile; correct the replacements in xtask/guards",
            folder.display()
        )),
    }
}

/// Returns the programs with tests among the messages of a build.
fn programs(messages: &str) -> Vec<PathBuf> {
    let values = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    let executable = |message: serde_json::Value| {
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        message["executable"].as_str().filter(|_| is_test).map(PathBuf::from)
    };
    values.filter_map(executable).collect()
}

/// Returns the tests of a list like `module::name: test`.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_suffix(": test"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_copy_that_does_not_compile_is_an_error() {
        let absent = ["--manifest-path", "absent/Cargo.toml"];
        let error = cargo(&workspace::root(), &["check"], &absent).unwrap_err();
        assert!(error.contains("does not compile"), "{error}");
    }

    #[test]
    fn the_programs_are_the_executables_of_tests() {
        let messages = r#"{"reason":"x","profile":{"test":true},"executable":"/t/a"}
            {"reason":"x","profile":{"test":false},"executable":"/t/b"}
            {"reason":"x","profile":{"test":true},"executable":null}
            not json"#;
        assert_eq!(programs(messages), [PathBuf::from("/t/a")]);
    }

    #[test]
    fn benchmarks_and_totals_are_not_listed() {
        let found: Vec<_> = listed("a::b: test\nc: benchmark\n\n1 test, 1 benchmark").collect();
        assert_eq!(found, ["a::b"]);
    }
}
