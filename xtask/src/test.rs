//! The tests of all crates.

use std::process::{Command, Stdio};

use crate::announcement::Announcement;
use crate::backend::Backend;
use crate::process::Process;
use crate::vulkan;
use crate::workspace::{ACCOUNTANT, BOOK, EXAMPLES, FULL, FULL_PARTS, LIBRARY, TESTED};

/// The variable that selects the backend on which `runs` and `learner` of `burn-dp` run their
/// steps.
const TEST_BACKEND: &str = "BURN_DP_TEST_BACKEND";

/// The variable that seeds the cases of property tests, and its value where it is not set: every
/// run has the same cases, so that none fails by chance. `random` draws new ones.
pub(crate) const CASES: (&str, &str) = ("PROPTEST_RNG_SEED", "0");

/// Returns whether `cargo nextest` is installed.
pub(crate) fn nextest_found() -> bool {
    Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns the tests, with nextest where it is installed, then the doc tests, which nextest
/// does not run.
///
/// All tests run, even after a failure.
pub(crate) fn processes(backend: Option<Backend>, args: &[String], nextest: bool) -> Vec<Process> {
    let mut processes = Vec::new();
    let runner: &[&str] = if nextest {
        &["nextest", "run", "--no-fail-fast"]
    } else {
        &["test", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"]
    };
    let mut tests = selected(Process::cargo().args(runner.iter().copied()), backend);
    if backend.is_none_or(Backend::is_in_full) {
        tests = tests.args(["-p", "xtask"]);
    }
    processes.push(tests.args(args.iter().cloned()));
    // A filter is meant for the tests; a full run has the accountant's program, whose features no
    // other crate needs, and the examples of the documentation too.
    if args.is_empty() {
        if backend.is_none_or(Backend::is_in_full) {
            processes.push(of_accountant_program(nextest));
        }
        let doc_tests = Process::cargo().args(["test", "--doc", "--no-fail-fast", "-p", BOOK]);
        processes.push(selected(doc_tests, backend));
    }
    processes
}

/// Returns the tests of the library, and of whole runs, whose names contain one of `filters`.
///
/// Nothing else is built: every other crate would be built again for the backend.
pub(crate) fn of_library(backend: Backend, filters: &[&str], nextest: bool) -> Process {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let tests = Process::cargo().args(runner.iter().copied());
    let tests = tests.args(["-p", LIBRARY]).args(library_features(backend));
    let tests = tests.args(["--lib", "--test", "runs", "--no-fail-fast"]);
    on(tests, Some(backend)).args(["--"]).args(filters.iter().copied())
}

fn of_accountant_program(nextest: bool) -> Process {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let tests = Process::cargo().args(runner.iter().copied());
    let tests = tests.args(["-p", ACCOUNTANT.package, "--features", "cli"]);
    tests.args(["--bins", "--no-fail-fast"]).default_env(CASES)
}

/// Returns a command over all tested packages, with the features and variables of the tests.
pub(crate) fn selected(mut process: Process, backend: Option<Backend>) -> Process {
    for package in TESTED {
        process = process.args(["-p", package]);
    }
    on(process.args(features(backend)), backend)
}

/// Sets what the tests need on a backend.
fn on(process: Process, backend: Option<Backend>) -> Process {
    let mut process = process.default_env(CASES);
    // Whole steps run on the device of this backend.
    let other = backend.filter(|backend| !backend.is_in_full());
    if let Some(name) = other.and_then(Backend::feature) {
        process = process.env(TEST_BACKEND, name);
    }
    if backend == Some(Backend::Wgpu) {
        process = process
            .envs(vulkan::environment())
            .envs(&[vulkan::QUICK_KERNELS])
            .private_folder(vulkan::RUNTIME_FOLDER);
    }
    let parts: Vec<_> =
        FULL_PARTS.iter().copied().chain(backend.and_then(Backend::feature)).collect();
    process.builds(Announcement::new("the tests", &parts))
}

/// Returns the features with which the tests are built.
fn features(backend: Option<Backend>) -> Vec<String> {
    with_backend(FULL, &format!("{EXAMPLES}/"), &["untuned"], backend)
}

/// Returns the features of the library for the tests of a backend.
fn library_features(backend: Backend) -> Vec<String> {
    with_backend("train", "", &["flex", "simd", "rayon", "x86-v4"], Some(backend))
}

/// Returns `whole`, and the feature of a backend of the package that `prefix` names.
///
/// Autotuning would take most of the time of the tests, also on a GPU, because it compiles every
/// variant of a kernel, and tests have many shapes: `untuned` replaces the default features.
fn with_backend(
    whole: &str,
    prefix: &str,
    untuned: &[&str],
    backend: Option<Backend>,
) -> Vec<String> {
    let mut features = vec![whole.to_string()];
    let mut arguments = Vec::new();
    let of_package = |feature: &str| format!("{prefix}{feature}");
    if let Some(backend) = backend.filter(|backend| !backend.is_in_full()) {
        arguments.push("--no-default-features".into());
        features.extend(untuned.iter().map(|feature| of_package(feature)));
        features.extend(backend.feature().map(of_package));
    }
    arguments.extend(["--features".into(), features.join(",")]);
    arguments
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;
    use crate::workspace::BASE;

    fn lines(backend: Option<Backend>, args: &[&str], nextest: bool) -> Vec<String> {
        let args: Vec<_> = args.iter().map(|arg| arg.to_string()).collect();
        processes(backend, &args, nextest).iter().map(Process::to_string).collect()
    }

    const PACKAGES: &str = "-p burn-dp-accountant -p burn-dp-kernels -p burn-dp \
         -p burn-dp-examples -p burn-dp-bench -p burn-dp-models \
         --features burn-dp-examples/full,burn-dp-bench/full,burn-dp-models/full";

    const PROGRAM: &str = "cargo RUNNER -p burn-dp-accountant --features cli \
         --bins --no-fail-fast";

    #[test]
    fn nextest_is_used_where_it_is_installed_and_doc_tests_always() {
        assert_eq!(
            lines(None, &[], true),
            [
                format!("cargo nextest run --no-fail-fast {PACKAGES} -p xtask"),
                PROGRAM.replace("RUNNER", "nextest run"),
                format!("cargo test --doc --no-fail-fast -p burn-dp-book {PACKAGES}"),
            ]
        );
    }

    #[test]
    fn without_nextest_cargo_runs_the_same_tests() {
        let targets = "--lib --bins --tests --examples";
        assert_eq!(
            lines(None, &[], false),
            [
                format!("cargo test {targets} --no-fail-fast {PACKAGES} -p xtask"),
                PROGRAM.replace("RUNNER", "test"),
                format!("cargo test --doc --no-fail-fast -p burn-dp-book {PACKAGES}"),
            ]
        );
    }

    #[test]
    fn a_cpu_backend_changes_no_feature() {
        for backend in [Backend::Flex, Backend::Ndarray] {
            assert_eq!(lines(Some(backend), &[], true), lines(None, &[], true));
        }
    }

    #[test]
    fn a_gpu_backend_is_a_feature_of_the_tests_and_of_the_doc_tests() {
        let (packages, full) = PACKAGES.split_once(" --features ").unwrap();
        let features = format!("{full},burn-dp-examples/untuned,burn-dp-examples/cuda");
        let end = format!("{packages} --no-default-features --features {features}");
        for line in lines(Some(Backend::Cuda), &[], true) {
            assert!(line.ends_with(&end), "{line}");
        }
    }

    #[test]
    fn kernels_are_not_tuned_in_tests() {
        let full = format!("--no-default-features --features {FULL},burn-dp-examples/untuned");
        for (backend, name) in [(Backend::Wgpu, "wgpu"), (Backend::Cuda, "cuda")] {
            let arguments = features(Some(backend)).join(" ");
            assert_eq!(arguments, format!("{full},burn-dp-examples/{name}"));
        }
    }

    #[test]
    fn the_software_driver_compiles_quickly_in_tests() {
        for process in processes(Some(Backend::Wgpu), &[], true) {
            assert!(process.to_string().contains("GALLIVM_PERF=nopt"), "{process}");
        }
    }

    #[test]
    fn some_tests_of_the_library_are_built_without_other_crates() {
        for (nextest, runner) in [(true, "nextest run"), (false, "test")] {
            assert_eq!(
                of_library(Backend::Cuda, &["ghost", "clip"], nextest).to_string(),
                format!(
                    "BURN_DP_TEST_BACKEND=cuda cargo {runner} -p burn-dp --no-default-features \
                     --features train,flex,simd,rayon,x86-v4,cuda --lib --test runs \
                     --no-fail-fast -- ghost clip"
                )
            );
        }
        assert_eq!(
            library_features(Backend::Wgpu).join(" "),
            "--no-default-features --features train,flex,simd,rayon,x86-v4,wgpu"
        );
    }

    #[test]
    fn property_tests_have_the_same_cases_in_every_run() {
        let all = processes(None, &[], true);
        for process in all.iter().chain([&of_library(Backend::Wgpu, &[], true)]) {
            assert!(format!("{process:?}").contains(r#"Some(("PROPTEST_RNG_SEED", "0"))"#));
        }
    }

    #[test]
    fn a_filter_leaves_the_doc_tests_out() {
        let lines = lines(None, &["ghost"], true);
        assert_eq!(lines, [format!("cargo nextest run --no-fail-fast {PACKAGES} -p xtask ghost")]);
    }

    /// Returns the packages that the first `cargo xtask train` compiles on Linux, with this kind of
    /// edges. Only the folders of workspace members remain in brackets.
    fn packages_of_the_default_run(edges: &str) -> BTreeSet<String> {
        let mut tree = Command::new("cargo");
        tree.args(["tree", "--locked", "--quiet", "--prefix", "none", "-e", edges]);
        tree.args(["--target", "x86_64-unknown-linux-gnu"]);
        let output = tree.args(["--format", "{p}", "-p", EXAMPLES]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let packages = text.lines().map(|line| line.replace(" (proc-macro)", ""));
        packages.filter(|line| !line.is_empty() && !line.ends_with("(*)")).collect()
    }

    /// Returns the third-party crates that the program depends on, without the ones that only build
    /// scripts need.
    fn dependencies_of_the_default_run() -> BTreeSet<String> {
        let packages = packages_of_the_default_run("normal");
        packages.into_iter().filter(|line| !line.contains('(')).collect()
    }

    #[test]
    fn the_default_run_depends_on_at_most_200_crates_beyond_build_scripts() {
        let crates = dependencies_of_the_default_run();
        assert!(crates.iter().any(|name| name.starts_with("burn-core ")), "{crates:?}");
        assert!(crates.len() <= 200, "{} crates", crates.len());
    }

    /// Everything that is compiled: also the crates of this workspace and of build scripts.
    #[test]
    fn the_default_run_compiles_at_most_the_crates_that_it_announces() {
        let compiled = packages_of_the_default_run("normal,build").len();
        assert!(compiled > dependencies_of_the_default_run().len());
        assert!((BASE.crates - 10..=BASE.crates).contains(&compiled), "{compiled} crates");
    }

    #[test]
    fn the_default_run_needs_no_dashboard_network_codecs_or_second_backend() {
        let heavy = [
            ["ratatui", "reqwest", "hyper"],
            ["rav1e", "exr", "tiff"],
            ["burn-ndarray", "burn-vision", "burn-train"],
        ];
        let crates = dependencies_of_the_default_run();
        for name in heavy.concat() {
            let found = crates.iter().find(|package| package.split(' ').next() == Some(name));
            assert_eq!(found, None);
        }
    }
}
