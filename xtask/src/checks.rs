//! Formatting, lints, documentation and packages.

use crate::backend::Backend;
use crate::process::Process;

/// The crates that are published, each after those that it depends on.
pub(crate) const PUBLISHED: [&str; 3] = ["burn-dp-accountant", "burn-dp", "burn-dp-examples"];

/// Formatting, then Clippy over all targets, warnings being errors.
pub(crate) fn lint() -> Vec<Process> {
    vec![
        Process::cargo().args(["fmt", "--all", "--check"]),
        Process::cargo()
            .args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
            .remedy("`rustup component add clippy` installs Clippy if it is missing"),
    ]
}

/// The documentation of the published crates, warnings being errors.
pub(crate) fn doc(open: bool) -> Process {
    let process = packages(Process::cargo().args(["doc", "--no-deps"]));
    let process = if open { process.arg("--open") } else { process };
    process.env("RUSTDOCFLAGS", "-D warnings")
}

/// The archives of the published crates.
pub(crate) fn package(verify: bool) -> Process {
    let process = packages(Process::cargo().arg("package"));
    if verify { process } else { process.arg("--no-verify") }
}

/// The type check of everything with one more backend.
pub(crate) fn type_check(backend: Backend) -> Process {
    let process = packages(Process::cargo().args(["check", "--all-targets"]));
    match backend.feature() {
        Some(feature) => process.args(["--features".into(), format!("burn-dp-examples/{feature}")]),
        None => process,
    }
}

/// The spelling.
pub(crate) fn typos() -> Process {
    Process::new("typos").remedy("`cargo install typos-cli` installs typos if it is missing")
}

/// Licences, advisories and sources of the dependencies.
pub(crate) fn deny() -> Process {
    Process::cargo()
        .args(["deny", "check"])
        .remedy("`cargo install cargo-deny` installs cargo-deny if it is missing")
}

fn packages(process: Process) -> Process {
    PUBLISHED.iter().fold(process, |process, package| process.args(["-p", package]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_errors() {
        let lint: Vec<_> = lint().iter().map(Process::to_string).collect();
        assert_eq!(
            lint,
            ["cargo fmt --all --check", "cargo clippy --workspace --all-targets -- -D warnings"]
        );
        let doc = doc(false).to_string();
        assert!(doc.starts_with("RUSTDOCFLAGS='-D warnings' cargo doc --no-deps -p "), "{doc}");
    }

    #[test]
    fn all_published_crates_are_packaged_together() {
        let expected = "cargo package -p burn-dp-accountant -p burn-dp -p burn-dp-examples";
        assert_eq!(package(true).to_string(), expected);
        assert_eq!(package(false).to_string(), format!("{expected} --no-verify"));
    }

    #[test]
    fn a_type_check_names_the_feature_of_its_backend() {
        let text = type_check(Backend::Wgpu).to_string();
        assert!(text.ends_with("--features burn-dp-examples/wgpu"), "{text}");
        assert!(!type_check(Backend::Flex).to_string().contains("--features"));
    }
}
