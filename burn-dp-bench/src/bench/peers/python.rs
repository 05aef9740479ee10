//! The Python interpreter of the other frameworks.

use std::path::{Path, PathBuf};
use std::process::Command;

use burn_dp_examples::training::TrainError;
use tempfile::TempDir;

/// A package: its name, its module, and what `pip` installs for it.
pub(super) struct Package {
    /// The name in sentences.
    name: &'static str,
    /// The module whose presence is checked.
    module: &'static str,
    /// The arguments of `pip install`.
    sources: &'static [&'static str],
}

/// The packages, each after the packages that it needs.
pub(super) const PACKAGES: [Package; 4] = [
    Package { name: "PyTorch", module: "torch", sources: &["torch"] },
    Package { name: "Opacus", module: "opacus", sources: &["opacus"] },
    Package { name: "JAX-Privacy", module: "jax_privacy", sources: &["jax", "jax-privacy"] },
    Package {
        name: "fastDP",
        module: "fastDP",
        sources: &["git+https://github.com/awslabs/fast-differential-privacy", "transformers"],
    },
];

/// The scripts, which are written to a folder for the duration of a run.
const SCRIPTS: [(&str, &str); 4] = [
    ("finetune_torch.py", include_str!("../../../peers/finetune_torch.py")),
    ("bench_torch.py", include_str!("../../../peers/bench_torch.py")),
    ("bench_jax.py", include_str!("../../../peers/bench_jax.py")),
    ("turns.py", include_str!("../../../peers/turns.py")),
];

/// An interpreter and the frameworks that it has.
#[derive(Debug)]
pub(in crate::bench) struct Python {
    interpreter: PathBuf,
    modules: Vec<&'static str>,
    scripts: TempDir,
}

impl Python {
    /// Looks for the frameworks of an interpreter.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the interpreter cannot be started, and [`TrainError::Io`]
    /// if the scripts cannot be written.
    pub(in crate::bench) fn new(interpreter: &Path) -> Result<Self, TrainError> {
        let modules = PACKAGES.map(|package| package.module);
        let script = format!(
            "import importlib.util as u\nprint(' '.join(m for m in {modules:?} if u.find_spec(m)))"
        );
        let output = run(Command::new(interpreter).args(["-c", &script])).map_err(|reason| {
            let way_out = "give the path of a Python 3.10 or newer, or --install to create one";
            TrainError::option(
                "--python",
                format!("{}: {reason}; {way_out}", interpreter.display()),
            )
        })?;
        let found: Vec<_> = output.split_whitespace().collect();
        let modules = modules.into_iter().filter(|module| found.contains(module)).collect();
        Ok(Self { interpreter: interpreter.into(), modules, scripts: scripts()? })
    }

    /// Returns which of these modules are missing, with a remedy; `None` if none are.
    pub(in crate::bench) fn lacks(&self, modules: &[&str]) -> Option<String> {
        let needs = |package: &&Package| modules.contains(&package.module);
        let missing: Vec<_> = PACKAGES
            .iter()
            .filter(needs)
            .filter(|package| !self.modules.contains(&package.module))
            .map(|package| package.name)
            .collect();
        (!missing.is_empty()).then(|| {
            format!(
                "{} not found in {}; add --install to install it",
                missing.join(" and "),
                self.interpreter.display()
            )
        })
    }

    /// Returns the interpreter.
    pub(in crate::bench) fn interpreter(&self) -> &Path {
        &self.interpreter
    }

    /// Returns the path of a script.
    pub(in crate::bench) fn script(&self, name: &str) -> PathBuf {
        self.scripts.path().join(name)
    }
}

fn scripts() -> Result<TempDir, TrainError> {
    let folder = tempfile::tempdir()
        .map_err(|source| TrainError::Io { path: std::env::temp_dir(), source })?;
    for (name, text) in SCRIPTS {
        let path = folder.path().join(name);
        std::fs::write(&path, text).map_err(|source| TrainError::Io { path, source })?;
    }
    Ok(folder)
}

/// Returns the interpreter of a virtual environment.
pub(super) fn of_environment(folder: &Path) -> PathBuf {
    if cfg!(windows) { folder.join("Scripts/python.exe") } else { folder.join("bin/python") }
}

/// Creates a virtual environment, unless there is one, and installs the frameworks. A framework
/// that cannot be installed is reported and skipped.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if the environment cannot be created.
pub(super) fn install(base: &Path, folder: &Path) -> Result<PathBuf, TrainError> {
    let interpreter = of_environment(folder);
    if !interpreter.is_file() {
        eprintln!("creating a virtual environment in {}", folder.display());
        run(Command::new(base).args(["-m", "venv"]).arg(folder)).map_err(|reason| {
            let reason = format!(
                "{} cannot create a virtual environment in {}: {reason}; give another interpreter \
                 by --python, or another folder by --venv",
                base.display(),
                folder.display()
            );
            TrainError::option("--install", reason)
        })?;
    }
    for Package { name, sources, .. } in PACKAGES {
        eprintln!("installing {name}");
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        if let Err(reason) = run(Command::new(&interpreter).args(pip).args(sources)) {
            eprintln!("note: {name} cannot be installed and is left out: {reason}");
        }
    }
    Ok(interpreter)
}

/// Returns the output of a command, or a sentence that says why it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} ({})", cause(&errors), output.status))
}

/// Returns the line of the messages of Python, `pip` or `git` that says what is wrong.
fn cause(errors: &str) -> &str {
    let mut lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next_back();
    let cause = lines.find(|line| line.starts_with("fatal: ") || line.starts_with("ERROR: "));
    cause.or(last).unwrap_or("failed without a message")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_python_that_cannot_be_started_is_refused_with_the_way_out() {
        let error = Python::new(Path::new("/no/such/python")).unwrap_err().to_string();
        assert!(error.starts_with("--python /no/such/python: cannot be started"), "{error}");
        assert!(error.contains("--install"), "{error}");
    }

    #[test]
    fn the_cause_is_found_among_the_messages() {
        let git = "  error: failed\n  fatal: no host\n  note: not pip\n";
        assert_eq!(cause(git), "fatal: no host");
        assert_eq!(cause("Traceback\nImportError: no\n\n"), "ImportError: no");
        assert_eq!(cause("\n"), "failed without a message");
    }

    #[cfg(unix)]
    #[test]
    fn an_interpreter_without_a_framework_lacks_the_systems_that_need_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python");
        std::fs::write(&path, "#!/bin/sh\necho torch jax_privacy\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let python = Python::new(&path).unwrap();
        assert_eq!(python.lacks(&["torch"]), None);
        assert_eq!(python.lacks(&["jax_privacy"]), None);
        let reason = python.lacks(&["torch", "opacus"]).unwrap();
        assert!(reason.starts_with("Opacus not found in") && reason.contains("--install"));
        let reason = python.lacks(&["opacus", "fastDP"]).unwrap();
        assert!(reason.starts_with("Opacus and fastDP not found in"), "{reason}");
        assert!(python.script("turns.py").is_file());
    }
}
