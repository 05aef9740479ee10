//! The programs of the workspace: training, benchmarks, experiments and the accountant.

use std::process::Command;

use clap::Args as ClapArgs;

use crate::announcement::Announcement;
use crate::backend::Backend;
use crate::features;
use crate::process::Process;
use crate::vulkan;
use crate::workspace::{
    self, ACCOUNTANT, AUDIT, BENCH, EXPERIMENT, FINETUNE, FULL_PARTS, Program, SOAK, SOAK_FULL,
    TRAIN, TUNE,
};

/// The part of the build that fine-tuning always needs.
const FINETUNE_PART: &str = "finetune";

/// The variable that names a folder of data sets.
const DATA: &str = "BURN_DP_DATA";

/// The variable with the name that the help of the accountant's program gives it.
const NAME: &str = "BURN_DP_PROGRAM";

/// Benchmarks measure `burn-dp` as a user's program compiles it with `--release`, without the
/// checks of debug builds. The other commands have the same dependencies.
const MEASURED: [&str; 4] = [
    "--config",
    "profile.dev.package.burn-dp.debug-assertions=false",
    "--config",
    "profile.dev.package.burn-dp.overflow-checks=false",
];

/// Arguments that are passed to the program unchanged.
#[derive(ClapArgs, Debug, Default)]
pub(crate) struct Args {
    /// Arguments of the program; `--backend` and the data set also select what is compiled.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl<const N: usize> From<[&str; N]> for Args {
    fn from(args: [&str; N]) -> Self {
        Self { args: args.map(String::from).into() }
    }
}

/// Returns the training program.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn train(args: &Args) -> Result<Process, String> {
    program(TRAIN, args)
}

/// Returns the private search of hyperparameters.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn tune(args: &Args) -> Result<Process, String> {
    program(TUNE, args)
}

/// Returns the fine-tuning of a pre-trained model.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn finetune(args: &Args) -> Result<Process, String> {
    program(FINETUNE, args)
}

/// Returns a benchmark: the accountant's is an example of its crate, the others are one program.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn bench(args: &Args) -> Result<Process, String> {
    match args.args.split_first() {
        Some((name, rest)) if name == "accountant" => Ok(Process::cargo()
            .args(["run", "-p", ACCOUNTANT.package, "--example", "bench_accountant", "--"])
            .args(rest.iter().cloned())
            .builds(of_accountant())),
        _ => program(BENCH, args),
    }
}

/// Returns the program that kills runs. It is built like the tests, with the fail points of debug
/// builds.
pub(crate) fn soak(args: &Args) -> Process {
    Process::cargo()
        .args(["run", "-p", SOAK.package, "--features", SOAK_FULL, "--bin", SOAK.binary, "--"])
        .args(args.args.iter().cloned())
        .builds(Announcement::new("the soak", &FULL_PARTS))
}

/// Returns one command of the accountant's own program, which needs nothing of Burn.
pub(crate) fn accountant(command: &str, args: &Args) -> Process {
    Process::cargo()
        .env(NAME, "cargo xtask")
        .args(["run", "-p", ACCOUNTANT.package, "--features", "cli"])
        .args(["--bin", ACCOUNTANT.binary, "--", command])
        .args(args.args.iter().cloned())
        .builds(of_accountant())
}

/// Returns the experiments of the papers, which record the commit that they measure.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn experiment(args: &Args) -> Result<Process, String> {
    let process = program(EXPERIMENT, args)?;
    Ok(match commit() {
        Some(commit) => process.env(COMMIT, &commit),
        None => process,
    })
}

/// The variable in which an experiment finds the commit of its code.
const COMMIT: &str = "BURN_DP_COMMIT";

/// Returns the commit of the checkout, marked if the code has changed since.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--exclude=*", "--abbrev=8", "--dirty"]);
    let output = git.current_dir(workspace::root()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_string())
}

/// Returns an audit: the estimates of given scores, which need nothing of Burn, or the audit of the
/// library.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn audit(args: &Args) -> Result<Process, String> {
    match args.args.split_first() {
        Some((name, rest)) if name == "estimate" => {
            Ok(accountant("audit", &Args { args: rest.to_vec() }))
        }
        _ => program(AUDIT, args),
    }
}

fn of_accountant() -> Announcement {
    Announcement::of_part(ACCOUNTANT.package, workspace::ACCOUNTANT_PART)
}

/// Returns the parts of the build of a program with these features.
fn parts<'a>(program: Program, features: &[&'a str]) -> Vec<&'a str> {
    let own: &[&str] = if program == FINETUNE { &[FINETUNE_PART] } else { &[] };
    own.iter().chain(features).copied().collect()
}

fn program(program: Program, args: &Args) -> Result<Process, String> {
    let environment_has_data = std::env::var_os(DATA).is_some();
    let words = features::words(program, &args.args);
    let features = features::of_run(program.binary, &words, environment_has_data)?;
    let mut process = Process::cargo()
        .args(["run", "-p", program.package])
        .builds(Announcement::new(program.package, &parts(program, &features)));
    if program == BENCH {
        process = process.args(MEASURED);
    }
    if !features.is_empty() {
        process = process.args(["--features", &features.join(",")]);
    }
    if Backend::among(&words)? == Some(Backend::Wgpu) {
        process = process.envs(vulkan::environment()).private_folder(vulkan::RUNTIME_FOLDER);
    }
    Ok(process.args(["--bin", program.binary, "--"]).args(args.args.iter().cloned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::workspace::PARTS;

    #[test]
    fn the_default_run_has_the_default_features() {
        let text = train(&Args::from(["--backend", "flex"])).unwrap().to_string();
        assert_eq!(text, "cargo run -p burn-dp-examples --bin train -- --backend flex");
    }

    #[test]
    fn a_backend_adds_its_feature() {
        let text = train(&Args::from(["--backend=cuda"])).unwrap().to_string();
        assert!(text.contains("--features cuda --bin train -- --backend=cuda"), "{text}");
        let text = train(&Args::from(["--backend", "wgpu"])).unwrap().to_string();
        assert!(text.contains("--features wgpu --bin train -- --backend wgpu"), "{text}");
    }

    #[test]
    fn an_experiment_knows_its_commit() {
        let text = experiment(&Args::from(["tan-privacy"])).unwrap().to_string();
        let Some(commit) = commit() else { return };
        assert!(text.starts_with(&format!("{COMMIT}={commit} cargo run ")), "{text}");
        assert!(commit.len() >= 8 && commit.split('-').next().unwrap().len() == 8, "{commit}");
    }

    #[test]
    fn several_features_are_one_list() {
        let args = Args::from(["folder", "--data-dir", "d", "--backend", "ndarray"]);
        let text = train(&args).unwrap().to_string();
        assert!(text.contains("--features ndarray,images --bin train"), "{text}");
    }

    #[test]
    fn no_program_is_built_in_silence() {
        let args = Args::from(["accountant"]);
        for process in [train(&args), bench(&args), experiment(&args)] {
            assert!(!process.unwrap().to_string().contains("--quiet"));
        }
        assert!(!accountant("epsilon", &args).to_string().contains("--quiet"));
    }

    #[test]
    fn a_benchmark_has_no_checks_of_builds_for_debugging() {
        let text = bench(&Args::from(["step"])).unwrap().to_string();
        assert!(text.contains("burn-dp.debug-assertions=false"), "{text}");
        assert!(text.contains("burn-dp.overflow-checks=false"), "{text}");
        assert!(text.ends_with("--bin bench -- step"), "{text}");
        let text = train(&Args::default()).unwrap().to_string();
        assert!(!text.contains("--config"), "{text}");
    }

    #[test]
    fn an_experiment_is_a_program_of_the_workspace() {
        let text = experiment(&Args::from(["layerwise-clipping", "--quick"])).unwrap().to_string();
        assert!(text.ends_with("--bin experiment -- layerwise-clipping --quick"), "{text}");
    }

    #[test]
    fn fine_tuning_is_a_program_of_its_own_crate() {
        let text = finetune(&Args::from(["check", "--python", "p"])).unwrap().to_string();
        assert_eq!(text, "cargo run -p burn-dp-models --bin finetune -- check --python p");
    }

    #[test]
    fn fine_tuning_announces_its_own_part() {
        let process = finetune(&Args::from(["images", "--data", "d"])).unwrap();
        let expected = Announcement::new(FINETUNE.package, &["finetune", "images"]);
        assert_eq!(process.announced(), Some(&expected));
        assert!(PARTS.iter().any(|part| part.feature == FINETUNE_PART));
    }

    #[test]
    fn scores_are_estimated_without_burn() {
        let text = |args| audit(&args).unwrap().to_string();
        assert_eq!(
            text(Args::from(["estimate", "--scores", "s.json", "--delta", "1e-5", "--json"])),
            "BURN_DP_PROGRAM='cargo xtask' cargo run -p burn-dp-accountant --features cli \
             --bin burn-dp-accountant -- audit --scores s.json --delta 1e-5 --json"
        );
        assert_eq!(
            text(Args::from(["--json", "audit.json"])),
            "cargo run -p burn-dp-bench --bin audit -- --json audit.json"
        );
    }

    #[test]
    fn the_accountant_has_its_own_benchmark() {
        let args = Args::from(["accountant", "--json", "times.json"]);
        assert_eq!(
            bench(&args).unwrap().to_string(),
            "cargo run -p burn-dp-accountant --example bench_accountant -- --json times.json"
        );
    }

    #[test]
    fn an_unknown_backend_is_refused_before_anything_is_compiled() {
        assert!(train(&Args::from(["--backend", "tpu"])).is_err());
    }
}
