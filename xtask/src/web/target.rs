//! The compile target of browsers.

use std::process::Command;

use crate::announcement::Announcement;
use crate::process::Process;
use crate::workspace;

/// The name of the target.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// The package of the page, relative to the root; it is its own workspace.
pub(super) const PACKAGE: &str = "burn-dp-examples/web";

/// The folder of builds for it, in the target folder.
pub(super) const BUILD: &str = "web/wasm32-unknown-unknown/debug";

/// The way out where rustup cannot install the target.
const WITHOUT_RUSTUP: &str = "rustup cannot install the target wasm32-unknown-unknown. Without \
     rustup: get the library sources of this very compiler (Debian: the package `rust-src` of the \
     same version), copy the sysroot (`cp -al \"$(rustc --print sysroot)\" TC`), put the sources \
     into TC/lib/rustlib/src/rust, and TC/bin first in PATH; build the library once, in any small \
     crate, by `RUSTC_BOOTSTRAP=1 cargo build --release -Z build-std=std,panic_abort --target \
     wasm32-unknown-unknown`; copy its target/wasm32-unknown-unknown/release/deps/*.rlib to \
     TC/lib/rustlib/wasm32-unknown-unknown/lib";

/// Printed when the type check for browsers is skipped.
pub(crate) const MISSING: &str = "no target wasm32-unknown-unknown, so the type check for browsers \
     is left out; `rustup target add wasm32-unknown-unknown` installs it";

/// Returns whether the target is installed, after an attempt to install it.
pub(crate) fn found() -> bool {
    installed() || (add().is_ok() && installed())
}

/// Installs the target if it is missing.
///
/// # Errors
///
/// Returns how it is made without rustup.
pub(crate) fn ensure() -> Result<(), String> {
    match found() {
        true => Ok(()),
        false => Err(WITHOUT_RUSTUP.into()),
    }
}

fn installed() -> bool {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Ok(sysroot) = sysroot else { return false };
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_string();
    std::path::Path::new(&sysroot).join("lib/rustlib").join(TARGET).join("lib").is_dir()
}

fn add() -> Result<(), String> {
    Process::new("rustup").args(["target", "add", TARGET]).run()
}

/// Returns the type check of the libraries for browsers.
pub(crate) fn check() -> Process {
    Process::cargo()
        .args(["check", "-p", "burn-dp-accountant", "-p", "burn-dp"])
        .args(["--no-default-features", "--features", "burn-dp/flex", "--target", TARGET])
        .arg("--target-dir")
        .arg(workspace::target().join("web").to_string_lossy())
        .builds(Announcement::new("the type check for browsers", &[]).in_folder(BUILD))
}

/// Returns the check that the lock file of the page, a separate workspace, names what its libraries
/// depend on. The page is built with exactly this file.
pub(crate) fn locked() -> Process {
    Process::cargo()
        .args(["update", "--workspace", "--locked", "--manifest-path"])
        .arg(format!("{PACKAGE}/Cargo.toml"))
        .remedy("`cargo update --workspace` in the folder of the page writes its lock file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_are_checked_for_browsers() {
        let text = check().to_string();
        let begin = "cargo check -p burn-dp-accountant -p burn-dp --no-default-features \
                     --features burn-dp/flex --target wasm32-unknown-unknown";
        assert!(text.starts_with(begin), "{text}");
        assert!(check().announced().is_some());
        assert!(BUILD.contains(TARGET));
    }
}
