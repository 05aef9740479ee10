//! The build of the page: its program, the functions that JavaScript calls, and its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::target::{self, PACKAGE};
use crate::announcement::Announcement;
use crate::process::Process;
use crate::workspace;

/// The parts of the page to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Omit WebGPU: a third of the build time and a quarter of the size.
    #[arg(long)]
    pub(super) flex_only: bool,
}

/// Builds the page into [`pages`].
///
/// # Errors
///
/// Returns a message with the way out.
pub(super) fn run(options: Options) -> Result<(), String> {
    target::ensure()?;
    compile(options).run()?;
    let bindgen = bindgen()?;
    let pages = pages();
    copy(&workspace::root().join(PACKAGE).join("page"), &pages)?;
    let program = folder().join(target::TARGET).join("debug/burn_dp_web.wasm");
    Process::new(bindgen.to_string_lossy())
        .args(["--target", "web", "--no-typescript", "--remove-name-section", "--out-dir"])
        .arg(pages.join("pkg").to_string_lossy())
        .arg(program.to_string_lossy())
        .run()
}

/// Returns the folder of the finished page.
pub(super) fn pages() -> PathBuf {
    folder().join("page")
}

/// Returns the build folder of the page.
fn folder() -> PathBuf {
    workspace::target().join("web")
}

fn compile(options: Options) -> Process {
    let manifest = workspace::root().join(PACKAGE).join("Cargo.toml");
    let process = Process::cargo().args(["build", "--locked", "--target", target::TARGET]);
    let process = process.arg("--manifest-path").arg(manifest.to_string_lossy());
    let process = process.arg("--target-dir").arg(folder().to_string_lossy());
    let (process, parts): (_, &[&str]) = match options.flex_only {
        true => (process.arg("--no-default-features"), &[]),
        false => (process, &["wgpu"]),
    };
    process.builds(Announcement::new("the page", parts).in_folder(target::BUILD))
}

/// Returns `wasm-bindgen` of the version that the page is locked to; installs it if it is missing.
fn bindgen() -> Result<PathBuf, String> {
    let lock = workspace::root().join(PACKAGE).join("Cargo.lock");
    let text = fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let version = locked_version(&text, "wasm-bindgen")
        .ok_or_else(|| format!("{} has no wasm-bindgen", lock.display()))?;
    let tools = folder().join("tools");
    let own = tools.join("bin").join(format!("wasm-bindgen{}", std::env::consts::EXE_SUFFIX));
    for found in [PathBuf::from("wasm-bindgen"), own.clone()] {
        if version_of(&found).as_deref() == Some(version.as_str()) {
            return Ok(found);
        }
    }
    Process::cargo()
        .args(["install", "wasm-bindgen-cli", "--version", &version, "--root"])
        .arg(tools.to_string_lossy())
        .run()?;
    Ok(own)
}

fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1).map(String::from)
}

/// Returns the version of a package in a lock file.
fn locked_version(lock: &str, package: &str) -> Option<String> {
    let rest = lock.split(&format!("name = \"{package}\"\n")).nth(1)?;
    rest.strip_prefix("version = \"")?.split('"').next().map(String::from)
}

/// Copies the files of a folder, without subfolders.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    fs::create_dir_all(to).map_err(failed(to))?;
    for entry in fs::read_dir(from).map_err(failed(from))? {
        let path = entry.map_err(failed(from))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &target).map_err(failed(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_page_is_its_own_workspace_and_its_lock_names_wasm_bindgen() {
        let process = compile(Options { flex_only: true });
        assert!(process.announced().is_some());
        let text = process.to_string();
        assert!(text.contains("--manifest-path") && text.ends_with("--no-default-features"));
        let lock = workspace::root().join(PACKAGE).join("Cargo.lock");
        let version = locked_version(&fs::read_to_string(lock).unwrap(), "wasm-bindgen").unwrap();
        assert!(version.starts_with("0.2."), "{version}");
        assert_eq!(locked_version("name = \"a\"\nversion = \"1.2.3\"\n", "a").unwrap(), "1.2.3");
        assert_eq!(locked_version("name = \"ab\"\nversion = \"1\"\n", "a"), None);
    }

    #[test]
    fn every_file_of_the_page_is_served_with_its_type() {
        let page = workspace::root().join(PACKAGE).join("page");
        for entry in fs::read_dir(page).unwrap() {
            let path = entry.unwrap().path();
            assert!(crate::web::server::media_type(&path).is_some(), "{}", path.display());
        }
    }
}
