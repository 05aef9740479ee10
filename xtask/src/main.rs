//! The one way to run anything in this workspace: `cargo xtask <command>`.
//!
//! Each command is a list of processes, built as plain data ([`process::Process`]) and then
//! started one after the other. Building and starting are apart, so that the tests can look at what
//! would be started.

mod backend;
mod checks;
mod ci;
mod process;
mod program;
mod test;
mod vulkan;

use clap::{Parser, Subcommand};

use crate::backend::Backend;
use crate::process::Process;

/// Runs, tests, checks and packages burn-dp.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train a classifier with differential privacy (`cargo xtask train --help` lists the options).
    #[command(disable_help_flag = true)]
    Train(program::Args),
    /// Measure steps and algorithms (`cargo xtask bench --help` lists the benchmarks).
    #[command(disable_help_flag = true)]
    Bench(program::Args),
    /// Run an experiment of a paper (`cargo xtask experiment --help` lists them).
    #[command(disable_help_flag = true)]
    Experiment(program::Args),
    /// ε of a training or a ledger (`cargo xtask epsilon --help` lists the options).
    #[command(disable_help_flag = true)]
    Epsilon(program::Args),
    /// δ of a training or a ledger at a given ε.
    #[command(disable_help_flag = true)]
    Delta(program::Args),
    /// The noise or the number of steps for a budget.
    #[command(disable_help_flag = true)]
    Calibrate(program::Args),
    /// The trade-off curve of a training or a ledger.
    #[command(disable_help_flag = true)]
    Tradeoff(program::Args),
    /// The total amount of noise, and a small run that predicts a large one.
    #[command(disable_help_flag = true)]
    Tan(program::Args),
    /// The privacy statement of a ledger.
    #[command(disable_help_flag = true)]
    Statement(program::Args),
    /// Run all tests, the doc tests included.
    Test {
        /// Also build and test this backend; Flex and NdArray are always tested.
        #[arg(long, value_enum)]
        backend: Option<Backend>,
        /// Arguments for the test runner, for example a filter.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check the formatting and run Clippy with warnings as errors.
    Lint,
    /// Build the documentation with warnings as errors.
    Doc {
        /// Open it in a browser.
        #[arg(long)]
        open: bool,
    },
    /// Package every publishable crate.
    Package {
        /// Also build each package from its archive (compiles all dependencies once more).
        #[arg(long)]
        verify: bool,
    },
    /// Type-check the workspace with the WGPU backend; needs no GPU.
    CheckWgpu,
    /// Type-check the workspace with the CUDA backend; needs no GPU.
    CheckCuda,
    /// Look for misspelt words (needs `cargo install typos-cli`).
    Typos,
    /// Check licences and advisories of the dependencies (needs `cargo install cargo-deny`).
    Deny,
    /// Everything that has to pass before a change is merged.
    Ci,
}

impl Command {
    /// The processes of this command, in order.
    fn processes(self) -> Result<Vec<Process>, String> {
        Ok(match self {
            Self::Train(args) => vec![program::train(&args)?],
            Self::Bench(args) => vec![program::bench(&args)?],
            Self::Experiment(args) => vec![program::experiment(&args)?],
            Self::Epsilon(args) => vec![program::accountant("epsilon", &args)],
            Self::Delta(args) => vec![program::accountant("delta", &args)],
            Self::Calibrate(args) => vec![program::accountant("calibrate", &args)],
            Self::Tradeoff(args) => vec![program::accountant("tradeoff", &args)],
            Self::Tan(args) => vec![program::accountant("tan", &args)],
            Self::Statement(args) => vec![program::accountant("statement", &args)],
            Self::Test { backend, args } => test::processes(backend, &args, test::nextest_found()),
            Self::Lint => checks::lint(),
            Self::Doc { open } => vec![checks::doc(open)],
            Self::Package { verify } => vec![checks::package(verify)],
            Self::CheckWgpu => vec![checks::type_check(Backend::Wgpu)],
            Self::CheckCuda => vec![checks::type_check(Backend::Cuda)],
            Self::Typos => vec![checks::typos()],
            Self::Deny => vec![checks::deny()],
            Self::Ci => {
                let vulkan = vulkan::driver_found();
                if !vulkan {
                    eprintln!("note: {}", ci::NO_DRIVER);
                }
                ci::processes(test::nextest_found(), vulkan)?
            }
        })
    }
}

fn main() -> std::process::ExitCode {
    let run = || -> Result<(), String> {
        Cli::parse().command.processes()?.iter().try_for_each(Process::run)
    };
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_train_is_left_to_the_program() {
        let cli = Cli::try_parse_from(["xtask", "train", "--help"]).unwrap();
        let processes = cli.command.processes().unwrap();
        assert!(processes[0].to_string().ends_with("--bin train -- --help"), "{}", processes[0]);
    }

    #[test]
    fn arguments_of_train_pass_through_in_order() {
        let line = ["xtask", "train", "mnist", "--data-dir", "d", "--epsilon", "3"];
        let cli = Cli::try_parse_from(line).unwrap();
        let processes = cli.command.processes().unwrap();
        assert_eq!(processes.len(), 1);
        let text = processes[0].to_string();
        assert!(text.ends_with("-- mnist --data-dir d --epsilon 3"), "{text}");
    }

    #[test]
    fn the_commands_of_the_accountant_reach_its_program() {
        for name in ["epsilon", "delta", "calibrate", "tradeoff", "tan", "statement"] {
            let cli = Cli::try_parse_from(["xtask", name, "--delta", "1e-5", "--json"]).unwrap();
            let text = cli.command.processes().unwrap()[0].to_string();
            let end = format!(
                "-p burn-dp-accountant --features cli --bin burn-dp-accountant -- {name} --delta 1e-5 --json"
            );
            assert!(text.ends_with(&end), "{text}");
        }
    }

    #[test]
    fn an_unknown_backend_of_the_tests_is_refused() {
        assert!(Cli::try_parse_from(["xtask", "test", "--backend", "tpu"]).is_err());
    }

    #[test]
    fn a_filter_reaches_the_test_runner() {
        let cli = Cli::try_parse_from(["xtask", "test", "--", "ghost_norm"]).unwrap();
        let processes = cli.command.processes().unwrap();
        assert!(processes[0].to_string().ends_with("ghost_norm"), "{}", processes[0]);
    }
}
