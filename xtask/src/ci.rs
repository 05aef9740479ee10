//! Everything that has to pass before a change is merged.

use std::path::Path;

use crate::backend::Backend;
use crate::checks;
use crate::process::Process;
use crate::program;
use crate::test;

/// Parts of names of the tests that run on a software driver within a few minutes together: the oracle tests of
/// all primitives. Those of recurrent layers and of transformers take a minute or more each;
/// `cargo xtask test --backend wgpu` runs all.
const WGPU_TESTS: [&str; 11] = [
    "ops::row_sums",
    "rules::linear",
    "rules::conv",
    "rules::embedding",
    "rules::scale",
    "rules::parameter",
    "tests::wrappers",
    "tests::half",
    "tests::robustness",
    "tests::frozen",
    "every_option_of_cross_attention",
];

/// Said when the tests on the WGPU backend are left out.
pub(crate) const NO_DRIVER: &str = "no Vulkan driver, so the tests on wgpu are left out; Debian's \
     packages libvulkan1 and mesa-vulkan-drivers bring one that needs no GPU";

/// The processes of `cargo xtask ci`, the cheap ones first.
///
/// # Errors
///
/// Never in practice: the arguments of the training run are fixed.
pub(crate) fn processes(nextest: bool, vulkan: bool) -> Result<Vec<Process>, String> {
    let mut processes = checks::lint();
    processes.push(checks::package(false));
    processes.push(checks::doc(false));
    processes.extend(test::processes(None, &[], nextest));
    let output = std::env::temp_dir().join(format!("burn-dp-ci-{}", std::process::id()));
    processes.push(short_training(&output)?);
    if vulkan {
        processes.push(test::of_libraries(Backend::Wgpu, &WGPU_TESTS, nextest));
    }
    Ok(processes)
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

    fn lines(vulkan: bool) -> Vec<String> {
        processes(true, vulkan).unwrap().iter().map(Process::to_string).collect()
    }

    #[test]
    fn the_checks_lint_package_document_test_and_train() {
        let lines = lines(false);
        let wanted = ["fmt", "clippy", "package", "doc", "nextest", "test --doc", "--bin train"];
        let mut rest = lines.iter();
        for word in wanted {
            assert!(rest.any(|line| line.contains(word)), "{word} in its order in {lines:?}");
        }
    }

    #[test]
    fn wgpu_is_tested_only_where_there_is_a_driver() {
        let wgpu = |lines: &[String]| lines.iter().filter(|line| line.contains("wgpu")).count();
        assert_eq!(wgpu(&lines(false)), 0);
        assert_eq!(wgpu(&lines(true)), 1);
        let last = lines(true).pop().unwrap();
        assert!(last.contains("--lib") && WGPU_TESTS.iter().all(|test| last.contains(test)));
    }
}
