//! A process to start, as data.

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::announcement::Announcement;
use crate::private_folder::PrivateFolder;

/// A program with its arguments and the variables added to its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// A variable with the value that it has if the environment does not set it.
    default_env: Option<(&'static str, &'static str)>,
    /// Printed when the program cannot be started.
    remedy: Option<&'static str>,
    /// Printed before the first build.
    announcement: Option<Announcement>,
    /// A variable that names a private folder for as long as the process runs.
    private_folder: Option<&'static str>,
}

impl Process {
    /// Returns a process without arguments.
    pub(crate) fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            default_env: None,
            remedy: None,
            announcement: None,
            private_folder: None,
        }
    }

    /// Returns the cargo that started this program, or the one on the path.
    pub(crate) fn cargo() -> Self {
        Self::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
    }

    /// Appends one argument.
    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Appends arguments.
    pub(crate) fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable for this process only.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets several variables for this process only.
    pub(crate) fn envs(self, variables: &[(&str, &str)]) -> Self {
        variables.iter().fold(self, |process, (name, value)| process.env(name, value))
    }

    /// Sets a variable for this process only, unless the environment sets it.
    pub(crate) fn default_env(mut self, variable: (&'static str, &'static str)) -> Self {
        self.default_env = Some(variable);
        self
    }

    /// Sets what is printed if the program cannot be started or fails.
    pub(crate) fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Sets what is built, to announce a first build.
    pub(crate) fn builds(mut self, announcement: Announcement) -> Self {
        self.announcement = Some(announcement);
        self
    }

    /// Lets a variable that is unset name a private folder while the process runs.
    pub(crate) fn private_folder(mut self, variable: Option<&'static str>) -> Self {
        self.private_folder = variable;
        self
    }

    /// Returns what is announced before the first build.
    #[cfg(test)]
    pub(crate) fn announced(&self) -> Option<&Announcement> {
        self.announcement.as_ref()
    }

    /// Prints the process, starts it and waits.
    ///
    /// # Errors
    ///
    /// Returns a message if the program cannot be started or ends with a failure.
    pub(crate) fn run(&self) -> Result<(), String> {
        if let Some(announcement) = &self.announcement {
            announcement.print();
        }
        eprintln!("$ {self}");
        let folder = self.private_folder.map(PrivateFolder::new).transpose()?;
        let status = Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(self.default_env.filter(|(name, _)| std::env::var_os(name).is_none()))
            .envs(folder.iter().filter_map(PrivateFolder::variable))
            .status()
            .map_err(|error| {
                let remedy = self.remedy.map(|text| format!("; {text}")).unwrap_or_default();
                format!("cannot start `{}`: {error}{remedy}", self.program)
            })?;
        if status.success() {
            Ok(())
        } else {
            Err(match (status.code(), self.remedy) {
                (_, Some(remedy)) => format!("`{self}` failed ({status}); {remedy}"),
                (_, None) => format!("`{self}` failed ({status})"),
            })
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        let name = Path::new(&self.program).file_stem().and_then(|name| name.to_str());
        write!(f, "{}", name.unwrap_or(&self.program))?;
        for arg in &self.args {
            write!(f, " {}", quoted(arg))?;
        }
        Ok(())
    }
}

/// The argument as one would type it in a shell.
fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        arg.into()
    } else {
        format!("'{}'", arg.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_process_is_shown_as_one_would_type_it() {
        let process = Process::new("/usr/bin/cargo").env("A", "x y").args(["run", "it's"]).arg("");
        assert_eq!(process.to_string(), r"A='x y' cargo run 'it'\''s' ''");
    }

    #[test]
    fn a_missing_program_is_an_error_with_the_way_out() {
        let process = Process::new("no-such-program-on-any-machine").remedy("install it");
        let message = process.run().unwrap_err();
        assert!(message.contains("no-such-program-on-any-machine"), "{message}");
        assert!(message.ends_with("; install it"), "{message}");
    }

    #[cfg(unix)]
    #[test]
    fn a_default_is_set_only_where_the_environment_has_no_value() {
        let shell = |test: &str| Process::new("sh").args(["-c", test]);
        let unset = ("BURN_DP_NO_SUCH_VARIABLE", "0");
        assert_eq!(
            shell(r#"test "$BURN_DP_NO_SUCH_VARIABLE" = 0"#).default_env(unset).run(),
            Ok(())
        );
        assert_eq!(shell(r#"test "$PATH" != 0"#).default_env(("PATH", "0")).run(), Ok(()));
    }

    #[test]
    fn the_failure_of_a_program_is_an_error() {
        let message = Process::cargo().arg("no-such-subcommand").run().unwrap_err();
        assert!(message.contains("cargo no-such-subcommand"), "{message}");
    }
}
