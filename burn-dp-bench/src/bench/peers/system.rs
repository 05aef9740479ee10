//! The systems that are compared.

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
    pub(super) fn start(
        self,
        network: Network,
        batch: usize,
        threads: usize,
        python: Option<&Python>,
    ) -> Result<Process, String> {
        let Some(python) = python.filter(|_| self.system.is_python()) else {
            return worker::start(&self.worker(network, batch, threads));
        };
        Process::start(self.command(network, batch, threads, python))
    }

    fn worker(self, network: Network, batch: usize, threads: usize) -> WorkerOptions {
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
            backend: BackendName::Flex,
            threads,
        }
    }

    fn command(self, network: Network, batch: usize, threads: usize, python: &Python) -> Command {
        let mut command = cores::command(python.interpreter(), threads);
        command.arg(python.script(self.system.script())).arg("--serve");
        command.args(["--models", &typed(network), "--algorithms", self.script_name]);
        command.args(["--batch", &batch.to_string()]);
        if self.system != System::JaxPrivacy {
            command.args(["--threads", &threads.to_string()]);
        }
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("JAX_PLATFORMS", "cpu");
        command
    }
}
