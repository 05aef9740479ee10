//! Everything that must pass before a change is merged.

use std::path::Path;

use crate::backend::Backend;
use crate::checks;
use crate::process::Process;
use crate::program;
use crate::step::Step;
use crate::test;
use crate::vulkan;
use crate::web;

/// Parts of names of the tests that run on a software driver within a few minutes together: the
/// oracle tests of all primitives, the release by kernels, whole steps, and the sensitivity of one
/// policy. The tests of recurrent layers, of transformers, and of the sensitivity of all policies
/// take a minute or more each; `cargo xtask test --backend wgpu` runs them too.
const WGPU_TESTS: [&str; 22] = [
    "ops::row_norms",
    "ops::row_sums",
    "rules::linear",
    "conv::tests",
    "conv::transposed",
    "rules::embedding",
    "rules::scale",
    "rules::parameter",
    "tests::wrappers",
    "tests::half",
    "tests::robustness",
    "tests::frozen",
    "every_option_of_cross_attention",
    "ops::kernels",
    "backends::cube",
    "thresholds::on_device",
    "noise::on_device",
    "noise::correlated_on_device",
    "optim::tests::devices",
    "correlated_noise::a_resumed_run",
    "steps::",
    "sensitivity::a_step_of_one_policy",
];

/// Printed when the tests on the WGPU backend are skipped.
const NO_DRIVER: &str = "no Vulkan driver, so the tests on wgpu are left out; Debian's \
     packages libvulkan1 and mesa-vulkan-drivers bring one that needs no GPU";

/// Printed when the spelling check is skipped.
const NO_TYPOS: &str =
    "no typos, so the spelling is not checked; `cargo install typos-cli` installs it";

/// What the machine has beyond a Rust toolchain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tools {
    /// `cargo nextest`.
    pub(crate) nextest: bool,
    /// A Vulkan driver.
    pub(crate) vulkan: bool,
    /// The compile target of browsers.
    pub(crate) browser: bool,
    /// The check of the spelling.
    pub(crate) typos: bool,
}

impl Tools {
    /// Returns what this machine has, and prints what is skipped because something is missing.
    pub(crate) fn found() -> Self {
        let noted = |is_found: bool, note: &str| {
            if !is_found {
                eprintln!("note: {note}");
            }
            is_found
        };
        Self {
            nextest: test::nextest_found(),
            vulkan: noted(vulkan::driver_found(), NO_DRIVER),
            browser: noted(web::target::found(), web::target::MISSING),
            typos: noted(checks::typos_found(), NO_TYPOS),
        }
    }
}

/// Returns the steps of `cargo xtask ci`, the cheap ones first.
///
/// The doc tests include the Rust blocks of the book.
///
/// # Errors
///
/// Returns the message of the training program, whose fixed arguments are valid.
pub(crate) fn steps(tools: Tools) -> Result<Vec<Step>, String> {
    let mut steps = checks::lint(false);
    if tools.typos {
        steps.push(checks::typos().into());
    }
    steps.push(checks::package(false).into());
    if tools.browser {
        steps.push(web::target::check().into());
        steps.push(web::target::locked().into());
    }
    steps.extend(test::processes(None, &[], tools.nextest).into_iter().map(Step::from));
    let output = std::env::temp_dir().join(format!("burn-dp-ci-{}", std::process::id()));
    steps.push(short_training(&output)?.into());
    if tools.vulkan {
        steps.push(test::of_library(Backend::Wgpu, &WGPU_TESTS, tools.nextest).into());
    }
    steps.push(checks::type_check(Backend::Cuda).into());
    Ok(steps)
}

/// A few private steps from the command line to the files.
fn short_training(output: &Path) -> Result<Process, String> {
    let output = output.to_string_lossy();
    program::train(&program::Args::from([
        "--model",
        "mlp",
        "--steps",
        "5",
        "--batch-size",
        "64",
        "--train-size",
        "1000",
        "--test-size",
        "200",
        "--output",
        &output,
    ]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lines(tools: Tools) -> Vec<String> {
        steps(tools).unwrap().iter().map(Step::to_string).collect()
    }

    #[test]
    fn the_checks_lint_document_package_test_and_train() {
        let lines = lines(Tools { nextest: true, browser: true, typos: true, ..Tools::default() });
        let wanted = [
            "fmt",
            "imports",
            "clippy",
            "doc",
            "typos",
            "package",
            "wasm32-unknown-unknown",
            "update --workspace --locked",
            "nextest",
            "burn-dp-book",
            "--bin train",
            "burn-dp-examples/cuda",
        ];
        let mut rest = lines.iter();
        for word in wanted {
            assert!(rest.any(|line| line.contains(word)), "{word} in its order in {lines:?}");
        }
    }

    #[test]
    fn browsers_are_checked_only_where_their_target_is() {
        let wasm = |tools| lines(tools).iter().any(|line| line.contains("wasm32"));
        assert!(wasm(Tools { browser: true, ..Tools::default() }));
        assert!(!wasm(Tools::default()));
    }

    #[test]
    fn the_spelling_is_checked_only_where_there_is_typos() {
        let typos = |tools| lines(tools).contains(&"typos".to_string());
        assert!(typos(Tools { typos: true, ..Tools::default() }));
        assert!(!typos(Tools::default()));
    }

    #[test]
    fn wgpu_is_tested_only_where_there_is_a_driver() {
        let wgpu = |lines: &[String]| lines.iter().filter(|line| line.contains("wgpu")).count();
        let with_driver = lines(Tools { vulkan: true, ..Tools::default() });
        assert_eq!(wgpu(&lines(Tools::default())), 0);
        assert_eq!(wgpu(&with_driver), 1);
        let tests = with_driver.iter().find(|line| line.contains("wgpu")).unwrap();
        assert!(tests.contains("--lib") && WGPU_TESTS.iter().all(|test| tests.contains(test)));
    }
}
