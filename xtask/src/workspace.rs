//! The packages of the workspace, its programs and the features that select what is compiled.
//!
//! This file is the only place that names them.

use std::path::{Path, PathBuf};

/// The crates that are published, each after its dependencies.
pub(crate) const PUBLISHED: [&str; 4] =
    ["burn-dp-accountant", "burn-dp-kernels", "burn-dp", "burn-dp-examples"];

/// The crates with tests, without this one, which is built with no feature of theirs.
pub(crate) const TESTED: [&str; 6] = [
    "burn-dp-accountant",
    "burn-dp-kernels",
    "burn-dp",
    "burn-dp-examples",
    "burn-dp-bench",
    "burn-dp-models",
];

/// The package of the library.
pub(crate) const LIBRARY: &str = "burn-dp";

/// The package whose doc tests are the Rust blocks of the book.
pub(crate) const BOOK: &str = "burn-dp-book";

/// The package whose features select the backends and the optional parts of everything else.
pub(crate) const EXAMPLES: &str = "burn-dp-examples";

/// The features with everything that runs on a CPU, which tests, Clippy and the documentation use.
pub(crate) const FULL: &str = "burn-dp-examples/full,burn-dp-bench/full,burn-dp-models/full";

/// The features of the soak, whose package does not depend on the models.
pub(crate) const SOAK_FULL: &str = "burn-dp-examples/full,burn-dp-bench/full";

/// The folders of crates that are checked for import circles and for the length of their files.
pub(crate) const SOURCES: [&str; 12] = [
    "burn-dp-accountant/src",
    "burn-dp-bench/src",
    "burn-dp-examples/examples",
    "burn-dp-examples/src",
    "burn-dp-examples/web/src",
    "burn-dp-examples/web/test",
    "burn-dp-kernels/src",
    "burn-dp-models/src",
    "burn-dp/src",
    "fuzz/examples",
    "fuzz/src",
    "xtask/src",
];

/// A program of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package that it belongs to.
    pub(crate) package: &'static str,
    /// The name of its binary.
    pub(crate) binary: &'static str,
}

/// Trains a model.
pub(crate) const TRAIN: Program = Program { package: EXAMPLES, binary: "train" };

/// Searches hyperparameters privately.
pub(crate) const TUNE: Program = Program { package: EXAMPLES, binary: "tune" };

/// Fine-tunes a pre-trained model.
pub(crate) const FINETUNE: Program = Program { package: "burn-dp-models", binary: "finetune" };

/// Measures steps and algorithms.
pub(crate) const BENCH: Program = Program { package: "burn-dp-bench", binary: "bench" };

/// Runs an experiment of a paper.
pub(crate) const EXPERIMENT: Program = Program { package: "burn-dp-bench", binary: "experiment" };

/// Kills runs at random points and resumes them.
pub(crate) const SOAK: Program = Program { package: "burn-dp-bench", binary: "soak" };
/// Audits the library.
pub(crate) const AUDIT: Program = Program { package: "burn-dp-bench", binary: "audit" };

/// The accountant's command line.
pub(crate) const ACCOUNTANT: Program =
    Program { package: "burn-dp-accountant", binary: "burn-dp-accountant" };

/// An optional part of the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The feature that selects it; empty for what every build has.
    pub(crate) feature: &'static str,
    /// A crate that only a build of this part compiles.
    pub(crate) witness: &'static str,
    /// Approximate number of crates that it adds, including build scripts and this workspace.
    pub(crate) crates: usize,
    /// Approximate number of minutes that it adds on two cores.
    pub(crate) minutes: usize,
}

/// What every program on Burn needs.
pub(crate) const BASE: Part = Part { feature: "", witness: "burn-core", crates: 210, minutes: 6 };

/// What a run or a test can add to [`BASE`].
pub(crate) const PARTS: [Part; 8] = [
    Part { feature: "ndarray", witness: "burn-ndarray", crates: 15, minutes: 2 },
    Part { feature: "wgpu", witness: "burn-wgpu", crates: 110, minutes: 8 },
    Part { feature: "cuda", witness: "burn-cuda", crates: 125, minutes: 8 },
    Part { feature: "download", witness: "burn-vision", crates: 135, minutes: 4 },
    Part { feature: "images", witness: "image", crates: 10, minutes: 1 },
    Part { feature: "train", witness: "burn-train", crates: 25, minutes: 1 },
    Part { feature: "finetune", witness: "tokenizers", crates: 40, minutes: 1 },
    Part { feature: "remote-server", witness: "burn-remote", crates: 175, minutes: 3 },
];

/// The features of `full`, as far as they add crates.
pub(crate) const FULL_PARTS: [&str; 5] =
    ["ndarray", "train", "finetune", "images", "remote-server"];

/// The crates that the accountant's command line compiles, and the minutes that it takes.
pub(crate) const ACCOUNTANT_PART: Part =
    Part { feature: "", witness: "burn-dp-accountant", crates: 50, minutes: 1 };

/// The folder of the workspace that cargo runs this program for. The folder at compile time can be
/// another checkout with the same target directory.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR");
    let manifest = manifest.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().unwrap_or(Path::new(".")).to_path_buf()
}

/// The folder that cargo builds in.
pub(crate) fn target() -> PathBuf {
    let chosen = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];
    match chosen.iter().find_map(std::env::var_os) {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_package_is_a_folder_of_the_workspace() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        for package in PUBLISHED.into_iter().chain(TESTED) {
            assert!(manifest.contains(&format!("\"{package}\"")), "{package}");
            assert!(root().join(package).join("Cargo.toml").is_file(), "{package}");
        }
        for source in SOURCES {
            assert!(root().join(source).is_dir(), "{source}");
        }
    }

    #[test]
    fn every_part_is_a_feature_of_the_examples_the_benchmarks_or_the_library() {
        let manifests = [EXAMPLES, BENCH.package, LIBRARY].map(|package| {
            std::fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap()
        });
        for part in PARTS {
            let line = format!("\n{} = [", part.feature);
            assert!(manifests.iter().any(|text| text.contains(&line)), "{}", part.feature);
        }
        let of_full = |text: &String| {
            text.lines().find(|line| line.starts_with("full = [")).map(String::from)
        };
        let full: Vec<String> = manifests.iter().filter_map(of_full).collect();
        for feature in FULL_PARTS {
            let name = format!("\"{feature}\"");
            assert!(full.iter().any(|line| line.contains(&name)), "{feature} in {full:?}");
        }
    }
}
