//! The tests of devices that other processes and hosts serve.

use std::process::{Command, Stdio};

use crate::announcement::Announcement;
use crate::backend::Backend;
use crate::process::Process;
use crate::test;
use crate::workspace::LIBRARY;

/// The features of the tests, with `train`.
pub(crate) const FEATURES: [&str; 2] = ["remote-websocket", "remote-server"];

/// The variable that makes it an error if network namespaces cannot be made.
const NAMESPACES: &str = "BURN_DP_TEST_NAMESPACES";

/// Printed where network namespaces cannot be made.
const NO_NAMESPACES: &str = "no network namespaces can be made here, so the tests of hosts of \
     their own do nothing; they need Linux, `ip` (Debian's package iproute2) and root";

/// Returns the tests: servers in processes of their own on the loopback interface, and in network
/// namespaces where they can be made.
pub(crate) fn tests(nextest: bool) -> Process {
    let features = format!("train,{}", FEATURES.join(","));
    with_namespaces(process(["--features".into(), features], nextest))
}

/// Returns the same tests, with the features of [`test::of_library`] on a backend, so that the
/// library is not built once more.
pub(crate) fn tests_beside(backend: Backend, nextest: bool) -> Process {
    with_namespaces(process(test::library_features(backend, &FEATURES), nextest))
}

/// Requires the tests in network namespaces where these can be made, and prints a note elsewhere.
fn with_namespaces(process: Process) -> Process {
    if can_make_namespaces() {
        return process.env(NAMESPACES, "1");
    }
    eprintln!("note: {NO_NAMESPACES}");
    process
}

fn process(features: impl IntoIterator<Item = String>, nextest: bool) -> Process {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    Process::cargo()
        .args(runner.iter().copied())
        .args(["-p", LIBRARY])
        .args(features)
        .args(["--test", "remote", "--no-fail-fast"])
        .builds(Announcement::new("the remote backend", &["remote-server"]))
}

/// Makes a network namespace and removes it again.
fn can_make_namespaces() -> bool {
    let name = format!("burn-dp-{}", std::process::id());
    let ip = |verb: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", verb, &name]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ip("add") && ip("del")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_tests_of_servers_are_built_with_their_features_alone() {
        let expected = "cargo nextest run -p burn-dp --features \
             train,remote-websocket,remote-server --test remote --no-fail-fast";
        assert!(tests(true).to_string().ends_with(expected), "{}", tests(true));
        let expected = expected.replace("nextest run", "test");
        assert!(tests(false).to_string().ends_with(&expected), "{}", tests(false));
    }

    #[test]
    fn beside_a_backend_they_need_no_other_build() {
        let features = |process: Process| {
            let text = process.to_string();
            let (_, rest) = text.split_once("--features ").unwrap();
            rest.split(' ').next().unwrap().to_string()
        };
        let library = test::of_library(Backend::Wgpu, &FEATURES, &["any"], true);
        assert_eq!(features(tests_beside(Backend::Wgpu, true)), features(library));
    }
}
