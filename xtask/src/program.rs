//! The programs of `burn-dp-examples`: training, benchmarks and experiments.

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
    let backend = Backend::among(&args.args)?;
    let mut process = Process::cargo().args(["run", "--quiet", "-p", "burn-dp-examples"]);
    if let Some(feature) = backend.and_then(Backend::feature) {
        process = process.args(["--features", feature]);
    }
    if backend == Some(Backend::Wgpu) {
        process = process.envs(vulkan::environment());
    }
    Ok(process.args(["--bin", name, "--"]).args(args.args.iter().cloned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_cpu_backends_share_the_default_features() {
        for backend in ["flex", "ndarray"] {
            let text = train(&Args::from(["--backend", backend])).unwrap().to_string();
            let expected =
                format!("cargo run --quiet -p burn-dp-examples --bin train -- --backend {backend}");
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_gpu_backend_adds_its_feature() {
        let text = bench(&Args::from(["step", "--backend=cuda"])).unwrap().to_string();
        assert!(text.contains("--features cuda --bin bench -- step --backend=cuda"), "{text}");
        let text = train(&Args::from(["--backend", "wgpu"])).unwrap().to_string();
        assert!(text.contains("--features wgpu --bin train -- --backend wgpu"), "{text}");
    }

    #[test]
    fn an_experiment_is_a_program_of_the_examples() {
        let text =
            experiment(&Args::from(["batch-clipping", "--epochs", "1"])).unwrap().to_string();
        assert!(text.ends_with("--bin experiment -- batch-clipping --epochs 1"), "{text}");
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
