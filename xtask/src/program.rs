//! The programs of `burn-dp-examples` and `burn-dp-bench`: training, benchmarks and experiments.

use clap::Args as ClapArgs;

use crate::backend::Backend;
use crate::process::Process;
use crate::vulkan;

/// Arguments that go to the program as they are.
#[derive(ClapArgs, Debug, Default)]
pub(crate) struct Args {
    /// Arguments of the program; `--backend` also selects what is compiled.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl<const N: usize> From<[&str; N]> for Args {
    fn from(args: [&str; N]) -> Self {
        Self { args: args.map(String::from).into() }
    }
}

/// The training program.
///
/// # Errors
///
/// For a `--backend` that does not exist.
pub(crate) fn train(args: &Args) -> Result<Process, String> {
    program("train", args)
}

/// The benchmarks: that of the accountant is a program of its crate, the others are one program.
///
/// # Errors
///
/// For a `--backend` that does not exist.
pub(crate) fn bench(args: &Args) -> Result<Process, String> {
    match args.args.split_first() {
        Some((name, rest)) if name == "accountant" => Ok(Process::cargo()
            .args(["run", "--quiet", "-p", "burn-dp-accountant", "--example", "bench_accountant"])
            .arg("--")
            .args(rest.iter().cloned())),
        _ => program("bench", args),
    }
}

/// One command of the accountant's own program, which needs nothing of Burn.
pub(crate) fn accountant(command: &str, args: &Args) -> Process {
    Process::cargo()
        .args(["run", "--quiet", "-p", "burn-dp-accountant", "--features", "cli"])
        .args(["--bin", "burn-dp-accountant", "--", command])
        .args(args.args.iter().cloned())
}

/// The experiments of the papers.
///
/// # Errors
///
/// For a `--backend` that does not exist.
pub(crate) fn experiment(args: &Args) -> Result<Process, String> {
    program("experiment", args)
}

fn program(name: &str, args: &Args) -> Result<Process, String> {
    let package = if name == "train" { "burn-dp-examples" } else { "burn-dp-bench" };
    let backend = Backend::among(&args.args)?;
    let mut process = Process::cargo().args(["run", "--quiet", "-p", package]);
    let data = std::env::var_os("BURN_DP_DATA").is_some();
    let features = features(backend, &args.args, data);
    if !features.is_empty() {
        process = process.args(["--features".to_string(), features.join(",")]);
    }
    if backend == Some(Backend::Wgpu) {
        process = process.envs(vulkan::environment());
    }
    Ok(process.args(["--bin", name, "--"]).args(args.args.iter().cloned()))
}

/// Returns the features that the arguments need beyond the default ones.
fn features(backend: Option<Backend>, args: &[String], data: bool) -> Vec<&'static str> {
    let given = |name: &str| args.iter().any(|arg| arg == name);
    let folder = data || args.iter().any(|arg| arg.starts_with("--data-dir"));
    let ndarray = (backend == Some(Backend::Ndarray)).then_some("ndarray");
    let backend = backend.and_then(Backend::feature).or(ndarray);
    let download = (given("--download") || given("mnist") && !folder).then_some("download");
    let images = given("folder").then_some("images");
    let learner = args.first().is_some_and(|arg| arg == "learner").then_some("train");
    [backend, download, images, learner].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_default_run_has_the_default_features() {
        let text = train(&Args::from(["--backend", "flex"])).unwrap().to_string();
        assert_eq!(text, "cargo run --quiet -p burn-dp-examples --bin train -- --backend flex");
    }

    #[test]
    fn data_sets_and_benchmarks_add_their_features() {
        let of = |line: &str, data| {
            features(None, &line.split(' ').map(String::from).collect::<Vec<_>>(), data)
        };
        assert_eq!(of("mnist --epochs 3", false), ["download"]);
        assert!(of("mnist", true).is_empty() && of("mnist --data-dir d", false).is_empty());
        assert_eq!(of("mnist --download", true), ["download"]);
        assert_eq!(of("folder --data-dir d", false), ["images"]);
        assert_eq!(of("learner --batch 4", false), ["train"]);
    }

    #[test]
    fn a_gpu_backend_adds_its_feature() {
        let text = bench(&Args::from(["step", "--backend=cuda"])).unwrap().to_string();
        assert!(text.contains("--features cuda --bin bench -- step --backend=cuda"), "{text}");
        let text = train(&Args::from(["--backend", "wgpu"])).unwrap().to_string();
        assert!(text.contains("--features wgpu --bin train -- --backend wgpu"), "{text}");
    }

    #[test]
    fn an_experiment_is_a_program_of_the_benchmarks() {
        let text =
            experiment(&Args::from(["batch-clipping", "--epochs", "1"])).unwrap().to_string();
        assert!(text.contains("-p burn-dp-bench --bin experiment -- batch-clipping"), "{text}");
    }

    #[test]
    fn the_accountant_has_a_benchmark_of_its_own() {
        let args = Args::from(["accountant", "--json", "times.json"]);
        assert_eq!(
            bench(&args).unwrap().to_string(),
            "cargo run --quiet -p burn-dp-accountant --example bench_accountant -- --json times.json"
        );
    }

    #[test]
    fn an_unknown_backend_is_refused_before_anything_is_compiled() {
        assert!(train(&Args::from(["--backend", "tpu"])).is_err());
    }
}
