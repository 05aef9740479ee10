//! The systems that are compared.

use std::path::Path;
use std::process::Command;

use burn_dp_examples::training::{BackendName, typed};
use clap::ValueEnum;

use super::python::Python;
use crate::bench::networks::{Network, Sizes};
use crate::bench::process::Process;
use crate::bench::worker::{self, WorkerOptions};
use crate::bench::{Algorithm, InnerOptimizer, cores};

/// A system that runs training steps.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// This library: the ordinary step of its layers, and the private step.
    BurnDp,
    /// Stock layers of Burn, ordinary steps.
    Burn,
    /// PyTorch, ordinary steps.
    Torch,
    /// Opacus: materialized gradients, and ghost clipping.
    Opacus,
    /// JAX-Privacy and the ordinary step of JAX; both compiled.
    JaxPrivacy,
    /// fastDP: book-keeping.
    Fastdp,
}

/// A step of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerStep {
    /// The system.
    pub(super) system: System,
    /// The name of the algorithm in the figures.
    pub(super) algorithm: &'static str,
    /// The name of the algorithm in the script; empty for our own steps.
    script_name: &'static str,
}

/// What all steps of a comparison run on.
pub(super) struct Round {
    pub(super) network: Network,
    pub(super) batch: usize,
    pub(super) threads: usize,
    pub(super) backend: BackendName,
}

/// The name of the ordinary step in the figures.
pub(super) const ORDINARY: &str = "non-private";

/// The name of our private step.
pub(super) const OURS: &str = "book-keeping";

impl System {
    /// Returns the steps of the system.
    pub(super) fn steps(self) -> Vec<PeerStep> {
        let step = |algorithm, script_name| PeerStep { system: self, algorithm, script_name };
        match self {
            Self::BurnDp => vec![step(ORDINARY, ""), step(OURS, "")],
            Self::Burn => vec![step(ORDINARY, "")],
            Self::Torch => vec![step(ORDINARY, "nonprivate")],
            Self::Opacus => vec![step("materialize", "materialize"), step("ghost", "ghost")],
            Self::JaxPrivacy => {
                vec![step(ORDINARY, "nonprivate"), step("materialize", "jax-privacy")]
            }
            Self::Fastdp => vec![step(OURS, "fastdp")],
        }
    }

    /// Returns whether the steps run in Python.
    pub(super) fn is_python(self) -> bool {
        !matches!(self, Self::BurnDp | Self::Burn)
    }

    /// Returns the Python modules that the system needs.
    pub(super) fn modules(self) -> &'static [&'static str] {
        match self {
            Self::BurnDp | Self::Burn => &[],
            Self::Torch => &["torch"],
            Self::Opacus => &["torch", "opacus"],
            Self::JaxPrivacy => &["jax_privacy"],
            // Its networks have the recurrent layers and the attention of Opacus.
            Self::Fastdp => &["torch", "opacus", "fastDP"],
        }
    }

    fn script(self) -> &'static str {
        if self == Self::JaxPrivacy { "bench_jax.py" } else { "bench_torch.py" }
    }
}

impl PeerStep {
    /// Starts a process that runs the step on command.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the process cannot be started, or the system cannot train the network.
    pub(super) fn start(self, round: &Round, python: Option<&Python>) -> Result<Process, String> {
        let Some(python) = python.filter(|_| self.system.is_python()) else {
            return worker::start(&self.worker(round));
        };
        let script = python.script(self.system.script());
        Process::start(self.command(round, python.interpreter(), &script))
    }

    fn worker(self, round: &Round) -> WorkerOptions {
        let &Round { network, batch, threads, backend } = round;
        let algorithm = match (self.system, self.algorithm) {
            (System::Burn, _) => Algorithm::Burn,
            (_, OURS) => Algorithm::BookKeeping,
            _ => Algorithm::NonPrivate,
        };
        WorkerOptions {
            network,
            sizes: Sizes::default(),
            batch,
            algorithm,
            optimizer: InnerOptimizer::Sgd,
            backend,
            threads,
            physical_batch_size: None,
        }
    }

    /// Returns the command that runs a script of the frameworks.
    fn command(self, round: &Round, interpreter: &Path, script: &Path) -> Command {
        let &Round { network, batch, threads, backend } = round;
        let on = if backend == BackendName::Cuda { "cuda" } else { "cpu" };
        let mut command = cores::command(interpreter, threads);
        command.arg(script).arg("--serve");
        command.args(["--models", &typed(network), "--algorithms", self.script_name]);
        command.args(["--batch", &batch.to_string()]);
        if self.system != System::JaxPrivacy {
            command.args(["--threads", &threads.to_string(), "--device", on]);
        }
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("JAX_PLATFORMS", on);
        command
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn frameworks_run_on_the_gpu_with_cuda_only() {
        let (python, script) = (Path::new("python3"), Path::new("bench.py"));
        let steps = [System::Torch.steps(), System::JaxPrivacy.steps()].concat();
        for (backend, device) in [(BackendName::Flex, "cpu"), (BackendName::Cuda, "cuda")] {
            let round = Round { network: Network::Mlp, batch: 8, threads: 1, backend };
            for step in &steps {
                let command = format!("{:?}", step.command(&round, python, script));
                assert!(command.contains(&format!("JAX_PLATFORMS=\"{device}\"")), "{command}");
                let given = command.contains(&format!("\"--device\" \"{device}\""));
                assert_eq!(given, step.system == System::Torch, "{command}");
                assert_eq!(step.worker(&round).backend, backend);
            }
        }
    }
}
