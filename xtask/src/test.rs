//! The tests of all crates.

use std::process::{Command, Stdio};

use crate::backend::Backend;
use crate::checks::PUBLISHED;
use crate::process::Process;
use crate::vulkan;

/// Whether `cargo nextest` is installed.
pub(crate) fn nextest_found() -> bool {
    Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The tests, with nextest where it is installed, then the doc tests, which nextest does not run.
///
/// The packages and features are those of the programs, so that one build of Burn serves both.
pub(crate) fn processes(backend: Option<Backend>, args: &[String], nextest: bool) -> Vec<Process> {
    let mut processes = Vec::new();
    let runner: &[&str] = if nextest {
        &["nextest", "run"]
    } else {
        &["test", "--lib", "--bins", "--tests", "--examples"]
    };
    let mut tests = selected(Process::cargo().args(runner.iter().copied()), backend);
    if backend.and_then(Backend::feature).is_none() {
        tests = tests.args(["-p", "xtask"]);
    }
    processes.push(tests.args(args.iter().cloned()));
    // A filter is meant for the tests; a full run has the examples of the documentation too.
    if args.is_empty() {
        processes.push(selected(Process::cargo().args(["test", "--doc"]), backend));
    }
    processes
}

/// The tests of the libraries alone whose names contain one of `filters`.
///
/// Nothing else is linked: with a backend of its own features, every other program would be built for it too.
pub(crate) fn of_libraries(backend: Backend, filters: &[&str], nextest: bool) -> Process {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let tests = Process::cargo().args(runner.iter().copied()).args(["--lib"]);
    selected(tests, Some(backend)).args(["--"]).args(filters.iter().copied())
}

fn selected(mut process: Process, backend: Option<Backend>) -> Process {
    for package in PUBLISHED {
        process = process.args(["-p", package]);
    }
    if let Some(backend) = backend {
        process = process.args(features(backend, vulkan::gpu_found()));
    }
    if backend == Some(Backend::Wgpu) {
        process = process.envs(vulkan::environment()).envs(&[vulkan::QUICK_KERNELS]);
    }
    process
}

/// The features with which the tests are built.
///
/// Without a GPU the kernels of WGPU are compiled by a software driver. Autotuning, which compiles every
/// variant of a kernel to find the fastest, would take nearly all of the time of the tests there.
fn features(backend: Backend, gpu: bool) -> Vec<String> {
    let Some(feature) = backend.feature() else { return Vec::new() };
    let backend_alone = format!("burn-dp-examples/{feature}");
    if backend != Backend::Wgpu || gpu {
        return vec!["--features".into(), backend_alone];
    }
    let untuned = format!("burn-dp-examples/untuned,{backend_alone}");
    vec!["--no-default-features".into(), "--features".into(), untuned]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;

    fn lines(backend: Option<Backend>, args: &[&str], nextest: bool) -> Vec<String> {
        let args: Vec<_> = args.iter().map(|arg| arg.to_string()).collect();
        processes(backend, &args, nextest).iter().map(Process::to_string).collect()
    }

    const PACKAGES: &str = "-p burn-dp-accountant -p burn-dp -p burn-dp-examples";

    #[test]
    fn nextest_is_used_where_it_is_installed_and_doc_tests_always() {
        assert_eq!(
            lines(None, &[], true),
            [
                format!("cargo nextest run {PACKAGES} -p xtask"),
                format!("cargo test --doc {PACKAGES}"),
            ]
        );
    }

    #[test]
    fn without_nextest_cargo_runs_the_same_tests() {
        assert_eq!(
            lines(None, &[], false),
            [
                format!("cargo test --lib --bins --tests --examples {PACKAGES} -p xtask"),
                format!("cargo test --doc {PACKAGES}"),
            ]
        );
    }

    #[test]
    fn a_cpu_backend_changes_no_feature() {
        assert_eq!(lines(Some(Backend::Ndarray), &[], true), lines(None, &[], true));
    }

    #[test]
    fn a_gpu_backend_is_a_feature_of_the_tests_and_of_the_doc_tests() {
        for line in lines(Some(Backend::Cuda), &[], true) {
            assert!(line.ends_with(&format!("{PACKAGES} --features burn-dp-examples/cuda")));
        }
    }

    #[test]
    fn kernels_are_tuned_only_where_there_is_a_gpu() {
        assert_eq!(features(Backend::Wgpu, true), ["--features", "burn-dp-examples/wgpu"]);
        assert_eq!(features(Backend::Cuda, false), ["--features", "burn-dp-examples/cuda"]);
        let untuned = "burn-dp-examples/untuned,burn-dp-examples/wgpu";
        assert_eq!(
            features(Backend::Wgpu, false),
            ["--no-default-features", "--features", untuned]
        );
    }

    #[test]
    fn the_software_driver_compiles_quickly_in_tests() {
        for process in processes(Some(Backend::Wgpu), &[], true) {
            assert!(process.to_string().contains("GALLIVM_PERF=nopt"), "{process}");
        }
    }

    #[test]
    fn some_tests_of_the_libraries_are_built_without_programs() {
        for (nextest, runner) in [(true, "nextest run"), (false, "test")] {
            assert_eq!(
                of_libraries(Backend::Cuda, &["ghost", "clip"], nextest).to_string(),
                format!(
                    "cargo {runner} --lib {PACKAGES} --features burn-dp-examples/cuda -- ghost clip"
                )
            );
        }
    }

    #[test]
    fn a_filter_leaves_the_doc_tests_out() {
        let lines = lines(None, &["ghost"], true);
        assert_eq!(lines, [format!("cargo nextest run {PACKAGES} -p xtask ghost")]);
    }

    /// The features of every dependency that `cargo tree` lists, by name and version.
    fn dependencies(args: &[&str]) -> BTreeMap<String, String> {
        let mut tree = Command::new("cargo");
        tree.args(["tree", "--locked", "--quiet", "--prefix", "none", "--no-dedupe"]);
        let output = tree.args(["--format", "{p}|{f}"]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once('|'));
        lines.map(|(package, features)| (package.into(), features.into())).collect()
    }

    #[test]
    fn programs_and_tests_share_one_build_of_every_dependency() {
        let programs = dependencies(&["-p", "burn-dp-examples", "-e", "normal,build"]);
        let mut packages: Vec<_> = PUBLISHED.iter().flat_map(|package| ["-p", package]).collect();
        packages.extend(["-e", "normal,build,dev"]);
        let tests = dependencies(&packages);
        assert!(programs.keys().any(|package| package.starts_with("burn-core ")));
        for (package, wanted) in &programs {
            assert_eq!(tests.get(package), Some(wanted), "features of {package} in the tests");
        }
    }
}
