//! The tests of devices that other processes and hosts serve.

use std::process::{Command, Stdio};

use crate::process::Process;
use crate::test;

/// The variable that makes it an error if network namespaces cannot be made.
const NAMESPACES: &str = "BURN_DP_TEST_NAMESPACES";

/// Printed where network namespaces cannot be made.
const NO_NAMESPACES: &str = "no network namespaces can be made here, so the tests of hosts of \
     their own do nothing; they need Linux, `ip` (Debian's package iproute2) and root";

/// Returns the tests: servers in processes of their own on the loopback interface, and in network
/// namespaces where they can be made. They are among the tests of `cargo xtask test` and have its
/// build.
pub(crate) fn tests(nextest: bool) -> Process {
    with_namespaces(process(nextest))
}

/// Requires the tests in network namespaces where these can be made, and prints a note elsewhere.
fn with_namespaces(process: Process) -> Process {
    if can_make_namespaces() {
        return process.env(NAMESPACES, "1");
    }
    eprintln!("note: {NO_NAMESPACES}");
    process
}

fn process(nextest: bool) -> Process {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    test::selected(Process::cargo().args(runner.iter().copied()), None).args([
        "-p",
        "xtask",
        "--test",
        "remote",
        "--no-fail-fast",
    ])
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
    fn the_tests_of_servers_share_the_build_of_all_tests() {
        let all = test::processes(None, &[], true).remove(0).to_string();
        let packages = all.strip_prefix("cargo nextest run --no-fail-fast ").unwrap();
        let expected = format!("cargo nextest run {packages} --test remote --no-fail-fast");
        assert_eq!(process(true).to_string(), expected);
        assert_eq!(process(false).to_string(), expected.replace("nextest run", "test"));
    }
}
