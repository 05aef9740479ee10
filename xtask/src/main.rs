//! The only way to run anything in this workspace: `cargo xtask <command>`.
//!
//! Each command is a list of steps ([`step::Step`]): processes, built as plain data
//! ([`process::Process`]), and checks in this program ([`lint`]). Steps are built first and then
//! run, so that tests can compare what would be run.

mod announcement;
mod backend;
mod book;
mod checks;
mod ci;
mod features;
mod guards;
mod lint;
mod private_folder;
mod process;
mod program;
mod remote;
mod step;
mod test;
mod vulkan;
mod web;
mod workspace;

use clap::{Parser, Subcommand};

use crate::backend::Backend;
use crate::step::Step;

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
    /// Search hyperparameters privately (`cargo xtask tune --help` lists the options).
    #[command(disable_help_flag = true)]
    Tune(program::Args),
    /// Fine-tune a pre-trained model, or compare it with Python (`cargo xtask finetune --help`).
    #[command(disable_help_flag = true)]
    Finetune(program::Args),
    /// Measure steps and algorithms (`cargo xtask bench --help` lists the benchmarks).
    #[command(disable_help_flag = true)]
    Bench(program::Args),
    /// Run an experiment of a paper (`cargo xtask experiment --help` lists them).
    #[command(disable_help_flag = true)]
    Experiment(program::Args),
    /// Kill runs at random points and resume them (`cargo xtask soak --help` lists the options).
    #[command(disable_help_flag = true)]
    Soak(program::Args),
    /// Audit the library, or estimate ε from scores (`audit estimate --scores FILE.json`).
    #[command(disable_help_flag = true)]
    Audit(program::Args),
    /// Compute ε of a training or a ledger (`cargo xtask epsilon --help` lists the options).
    #[command(disable_help_flag = true)]
    Epsilon(program::Args),
    /// Compute δ of a training or a ledger at a given ε.
    #[command(disable_help_flag = true)]
    Delta(program::Args),
    /// Find the noise or the number of steps for a budget.
    #[command(disable_help_flag = true)]
    Calibrate(program::Args),
    /// Compute the trade-off curve of a training or a ledger.
    #[command(disable_help_flag = true)]
    Tradeoff(program::Args),
    /// Compute the total amount of noise, and a small run that predicts a large one.
    #[command(disable_help_flag = true)]
    Tan(program::Args),
    /// Find or evaluate a strategy for correlated noise.
    #[command(disable_help_flag = true)]
    Strategy(program::Args),
    /// Print the privacy statement of a ledger.
    #[command(disable_help_flag = true)]
    Statement(program::Args),
    /// Compare the guarantees of two ledgers or statements.
    #[command(disable_help_flag = true)]
    Compare(program::Args),
    /// Run all tests, the doc tests included.
    Test {
        /// Also build and test this backend; Flex and NdArray are always tested.
        #[arg(long, value_enum)]
        backend: Option<Backend>,
        /// Arguments for the test runner, for example a filter.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Test remote devices: servers in separate processes and network namespaces.
    TestRemote,
    /// Check formatting, structure and words, and run Clippy and rustdoc with warnings as errors.
    Lint {
        /// Leave out Clippy and rustdoc, which compile all dependencies the first time.
        #[arg(long)]
        quick: bool,
    },
    /// Remove each guard of the library, one at a time, and check that its tests fail.
    Guards(guards::Options),
    /// Build the documentation with warnings as errors.
    Doc {
        /// Open it in a browser.
        #[arg(long)]
        open: bool,
    },
    /// Build the book (needs `cargo install mdbook --locked`) and run its Rust blocks.
    Book {
        /// Open it in a browser.
        #[arg(long)]
        open: bool,
        /// Run the Rust blocks only; needs no mdBook.
        #[arg(long, conflicts_with = "open")]
        blocks: bool,
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
    /// Type-check the fuzz targets.
    CheckFuzz,
    /// Type-check the libraries for browsers (wasm32).
    CheckWasm,
    /// Build the page that trains in a browser, and serve it on this machine.
    Web {
        #[command(flatten)]
        options: web::Options,
        /// Port of the server.
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
    /// Build the page and run it in Chromium, without a window.
    TestWeb {
        #[command(flatten)]
        options: web::Options,
    },
    /// Check the spelling (needs `cargo install typos-cli`).
    Typos,
    /// Check licenses and advisories of the dependencies (needs `cargo install cargo-deny`).
    Deny,
    /// Run everything that has to pass before a change is merged.
    Ci,
}

impl Command {
    /// Returns the steps of this command, in order.
    fn steps(self) -> Result<Vec<Step>, String> {
        Ok(match self {
            Self::Train(args) => vec![program::train(&args)?.into()],
            Self::Tune(args) => vec![program::tune(&args)?.into()],
            Self::Finetune(args) => vec![program::finetune(&args)?.into()],
            Self::Bench(args) => vec![program::bench(&args)?.into()],
            Self::Experiment(args) => vec![program::experiment(&args)?.into()],
            Self::Soak(args) => vec![program::soak(&args).into()],
            Self::Audit(args) => vec![program::audit(&args)?.into()],
            Self::Epsilon(args) => vec![program::accountant("epsilon", &args).into()],
            Self::Delta(args) => vec![program::accountant("delta", &args).into()],
            Self::Calibrate(args) => vec![program::accountant("calibrate", &args).into()],
            Self::Tradeoff(args) => vec![program::accountant("tradeoff", &args).into()],
            Self::Tan(args) => vec![program::accountant("tan", &args).into()],
            Self::Strategy(args) => vec![program::accountant("strategy", &args).into()],
            Self::Statement(args) => vec![program::accountant("statement", &args).into()],
            Self::Compare(args) => vec![program::accountant("compare", &args).into()],
            Self::Test { backend, args } => {
                let processes = test::processes(backend, &args, test::nextest_found());
                processes.into_iter().map(Step::from).collect()
            }
            Self::TestRemote => vec![remote::tests(test::nextest_found()).into()],
            Self::Lint { quick } => checks::lint(quick),
            Self::Guards(options) => vec![Step::Guards(options)],
            Self::Doc { open } => vec![checks::doc(open).into()],
            Self::Book { blocks: true, .. } => vec![book::blocks().into()],
            Self::Book { open, .. } => vec![book::pages(open).into(), book::blocks().into()],
            Self::Package { verify } => vec![checks::package(verify).into()],
            Self::CheckWgpu => vec![checks::type_check(Backend::Wgpu).into()],
            Self::CheckCuda => vec![checks::type_check(Backend::Cuda).into()],
            Self::CheckFuzz => vec![checks::fuzz().into()],
            Self::CheckWasm => {
                web::target::ensure()?;
                vec![web::target::check().into()]
            }
            Self::Web { options, port } => {
                vec![Step::Web(web::Task::Build(options)), Step::Web(web::Task::Serve(port))]
            }
            Self::TestWeb { options } => {
                vec![Step::Web(web::Task::Build(options)), Step::Web(web::Task::Test(options))]
            }
            Self::Typos => vec![checks::typos().into()],
            Self::Deny => vec![checks::deny().into()],
            Self::Ci => ci::steps(ci::Tools::found())?,
        })
    }
}

fn main() -> std::process::ExitCode {
    let run = || {
        let command = Cli::parse().command;
        let runs_all = matches!(command, Command::Test { .. });
        let steps = command.steps()?;
        let is_timed = steps.len() > 1;
        let run = |step: &Step| if is_timed { step.run_timed() } else { step.run() };
        if runs_all { step::all(&steps, run) } else { steps.iter().try_for_each(run) }
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
        let steps = cli.command.steps().unwrap();
        assert!(steps[0].to_string().ends_with("--bin train -- --help"), "{}", steps[0]);
    }

    #[test]
    fn arguments_of_train_pass_through_in_order() {
        let line = ["xtask", "train", "mnist", "--data-dir", "d", "--epsilon", "3"];
        let cli = Cli::try_parse_from(line).unwrap();
        let steps = cli.command.steps().unwrap();
        assert_eq!(steps.len(), 1);
        let text = steps[0].to_string();
        assert!(text.ends_with("-- mnist --data-dir d --epsilon 3"), "{text}");
    }

    #[test]
    fn the_soak_is_built_like_the_tests() {
        let cli = Cli::try_parse_from(["xtask", "soak", "--kills", "9", "--json", "f"]).unwrap();
        let text = cli.command.steps().unwrap()[0].to_string();
        let end = format!("--features {} --bin soak -- --kills 9 --json f", workspace::SOAK_FULL);
        assert!(text.ends_with(&end), "{text}");
    }

    #[test]
    fn the_commands_of_the_accountant_reach_its_program() {
        for name in
            ["epsilon", "delta", "calibrate", "tradeoff", "tan", "strategy", "statement", "compare"]
        {
            let cli = Cli::try_parse_from(["xtask", name, "--delta", "1e-5", "--json"]).unwrap();
            let text = cli.command.steps().unwrap()[0].to_string();
            let end = format!(
                "-p burn-dp-accountant --features cli --bin burn-dp-accountant -- {name} \
                 --delta 1e-5 --json"
            );
            assert!(text.ends_with(&end), "{text}");
        }
    }

    #[test]
    fn the_book_is_built_and_its_blocks_are_run() {
        let steps = |line: &[&str]| {
            let steps = Cli::try_parse_from(line).unwrap().command.steps().unwrap();
            steps.iter().map(Step::to_string).collect::<Vec<_>>()
        };
        let all = steps(&["xtask", "book"]);
        assert_eq!(all[0], "mdbook build book");
        assert!(all[1].starts_with("cargo test --doc -p burn-dp-book"), "{all:?}");
        assert_eq!(steps(&["xtask", "book", "--blocks"]), all[1..]);
    }

    #[test]
    fn the_page_is_built_before_it_is_served_or_tested() {
        let steps = |line: &[&str]| {
            let steps = Cli::try_parse_from(line).unwrap().command.steps().unwrap();
            steps.iter().map(Step::to_string).collect::<Vec<_>>()
        };
        assert_eq!(steps(&["xtask", "web", "--port", "9"]), ["build the page", "serve the page"]);
        let tested = ["build the page", "run the page in a browser"];
        assert_eq!(steps(&["xtask", "test-web", "--flex-only"]), tested);
    }

    #[test]
    fn an_unknown_backend_of_the_tests_is_refused() {
        assert!(Cli::try_parse_from(["xtask", "test", "--backend", "tpu"]).is_err());
    }

    #[test]
    fn a_filter_reaches_the_test_runner() {
        let cli = Cli::try_parse_from(["xtask", "test", "--", "ghost_norm"]).unwrap();
        let steps = cli.command.steps().unwrap();
        assert!(steps[0].to_string().ends_with("ghost_norm"), "{}", steps[0]);
    }
}
