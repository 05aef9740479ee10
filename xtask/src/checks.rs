//! Formatting, lints, documentation and packages.

use std::process::{Command, Stdio};

use crate::announcement::Announcement;
use crate::backend::Backend;
use crate::process::Process;
use crate::step::Step;
use crate::workspace::{self, EXAMPLES, FULL, FULL_PARTS, PUBLISHED, TESTED, TRAIN};

/// The folder of the type check of the fuzz targets, in the target folder.
const FUZZ: &str = "fuzz/debug";

/// Returns the checks of the code: formatting and structure, then Clippy and the documentation
/// unless `quick`.
pub(crate) fn lint(quick: bool) -> Vec<Step> {
    let mut steps =
        vec![Process::cargo().args(["fmt", "--all", "--check"]).into(), Step::Structure];
    if !quick {
        steps.push(clippy().into());
        steps.push(clippy_of_training().into());
        steps.push(doc(false).into());
    }
    steps
}

/// Clippy over all targets and all features that run on a CPU, with warnings as errors.
fn clippy() -> Process {
    let process = Process::cargo()
        .args(["clippy", "--workspace", "--all-targets", "--features", FULL])
        .builds(Announcement::new("the workspace", &FULL_PARTS));
    without_warnings(process)
}

/// Makes warnings of Clippy errors.
fn without_warnings(process: Process) -> Process {
    process
        .args(["--", "-D", "warnings"])
        .remedy("`rustup component add clippy` installs Clippy if it is missing")
}

/// Clippy over what the first command builds: code that only more features use is unused there, and
/// the first thing that a new user would see is its warning.
fn clippy_of_training() -> Process {
    let process = Process::cargo()
        .args(["clippy", "-p", TRAIN.package, "--bin", TRAIN.binary])
        .builds(Announcement::new("the training program", &[]));
    without_warnings(process)
}

/// Returns the build of the documentation, with warnings as errors.
pub(crate) fn doc(open: bool) -> Process {
    let process =
        packages(Process::cargo().args(["doc", "--no-deps"]), &TESTED).args(["--features", FULL]);
    let process = if open { process.arg("--open") } else { process };
    process
        .env("RUSTDOCFLAGS", "-D warnings")
        .builds(Announcement::new("the documentation", &FULL_PARTS))
}

/// Returns the archives of the published crates.
pub(crate) fn package(verify: bool) -> Process {
    let process = packages(Process::cargo().arg("package"), &PUBLISHED);
    match verify {
        true => process.builds(Announcement::new("the packages", &[])),
        false => process.arg("--no-verify"),
    }
}

/// Returns the type check of everything with one more backend, by Clippy, with warnings as errors.
pub(crate) fn type_check(backend: Backend) -> Process {
    let process = packages(Process::cargo().args(["clippy", "--all-targets"]), &TESTED);
    let parts: Vec<_> = FULL_PARTS.into_iter().chain(backend.feature()).collect();
    let process = process.builds(Announcement::new("the type check", &parts));
    let process = match backend.feature() {
        Some(feature) => without_native_libraries(process)
            .args(["--features".into(), format!("{FULL},{EXAMPLES}/{feature}")]),
        None => process,
    };
    without_warnings(process)
}

/// Skips what only linking needs: with CUDA, CubeCL downloads LLVM unless docs.rs builds it.
fn without_native_libraries(process: Process) -> Process {
    process.env("DOCS_RS", "1")
}

/// Returns the type check of the fuzz targets, which are a separate workspace.
pub(crate) fn fuzz() -> Process {
    Process::cargo()
        .args(["check", "--all-targets", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"])
        .arg(workspace::target().join("fuzz").to_string_lossy())
        .builds(Announcement::new("the fuzz targets", &["finetune", "images"]).in_folder(FUZZ))
}

/// Returns whether typos is installed.
pub(crate) fn typos_found() -> bool {
    let mut typos = Command::new("typos");
    typos.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    typos.status().is_ok_and(|status| status.success())
}

/// Returns the check of the spelling.
pub(crate) fn typos() -> Process {
    Process::new("typos").remedy("`cargo install typos-cli` installs typos if it is missing")
}

/// Returns the check of licenses, advisories and sources of the dependencies.
pub(crate) fn deny() -> Process {
    Process::cargo()
        .args(["deny", "check"])
        .remedy("`cargo install cargo-deny` installs cargo-deny if it is missing")
}

fn packages(process: Process, packages: &[&str]) -> Process {
    packages.iter().fold(process, |process, package| process.args(["-p", package]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_errors() {
        let lint: Vec<_> = lint(false).iter().map(Step::to_string).collect();
        assert_eq!(lint[0], "cargo fmt --all --check");
        assert_eq!(lint[1], Step::Structure.to_string());
        assert!(lint[2].starts_with("cargo clippy --workspace --all-targets --features "));
        assert!(lint[2].ends_with("/full -- -D warnings"), "{lint:?}");
        assert_eq!(lint[3], "cargo clippy -p burn-dp-examples --bin train -- -D warnings");
        let doc = &lint[4];
        assert!(doc.starts_with("RUSTDOCFLAGS='-D warnings' cargo doc --no-deps -p "), "{doc}");
        assert!(doc.ends_with(&format!(" --features {FULL}")), "{doc}");
    }

    #[test]
    fn a_quick_lint_compiles_nothing() {
        let is_built =
            |step: &Step| [" clippy ", " doc "].iter().any(|it| step.to_string().contains(it));
        assert!(!lint(true).iter().any(is_built));
        assert_eq!(lint(false).iter().filter(|step| is_built(step)).count(), 3);
        assert!(lint(true).contains(&Step::Structure));
    }

    #[test]
    fn every_build_that_takes_minutes_is_announced() {
        let builds = [
            package(true),
            doc(false),
            clippy(),
            clippy_of_training(),
            type_check(Backend::Wgpu),
            type_check(Backend::Cuda),
            fuzz(),
        ];
        for process in builds {
            assert!(process.announced().is_some(), "{process}");
        }
        let wgpu: Vec<_> = FULL_PARTS.into_iter().chain(["wgpu"]).collect();
        let expected = Announcement::new("the type check", &wgpu);
        assert_eq!(type_check(Backend::Wgpu).announced(), Some(&expected));
        assert_eq!(package(false).announced(), None);
    }

    #[test]
    fn all_published_crates_are_packaged_together() {
        let expected = "cargo package -p burn-dp-accountant -p burn-dp-kernels -p burn-dp \
                        -p burn-dp-examples";
        assert_eq!(package(true).to_string(), expected);
        assert_eq!(package(false).to_string(), format!("{expected} --no-verify"));
    }

    #[test]
    fn a_type_check_names_the_feature_of_its_backend() {
        let text = type_check(Backend::Wgpu).to_string();
        let features = format!("{FULL},burn-dp-examples/wgpu");
        assert!(text.ends_with(&format!("--features {features} -- -D warnings")), "{text}");
        assert!(!type_check(Backend::Flex).to_string().contains("--features"));
        assert!(type_check(Backend::Cuda).to_string().starts_with("DOCS_RS=1 cargo clippy"));
    }
}
