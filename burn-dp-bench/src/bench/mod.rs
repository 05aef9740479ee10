//! What privacy costs per step: time and memory of the algorithms that compute a clipped sum.
//!
//! One step is forward, backward, clipping, noise and update, with Adam at a learning rate of 0.001
//! and a clipping threshold of 1, as in the fast-clipping paper. Each algorithm runs in a separate
//! process. The processes take turns on the same images and cores, so that other load on the
//! machine slows all of them equally, and no process runs during another's turn.
//!
//! # References
//!
//! J. Lee, D. Kifer: Scaling up differentially private deep learning with fast per-example gradient
//! clipping, 2021, section 6.

mod agreement;
mod algorithm;
mod chart;
mod contender;
mod cores;
mod device_costs;
mod finetune;
#[cfg(feature = "train")]
mod learner;
mod memory;
mod networks;
mod noise;
mod options;
mod peer_lines;
mod peers;
mod planner;
mod process;
mod recurrent;
mod report;
mod scaling;
mod step;
mod subject;
mod timing;
mod turns;
mod usage;
mod worker;

pub use algorithm::{Algorithm, InnerOptimizer};
pub use device_costs::DeviceCostsOptions;
pub use finetune::{FinetuneBenchOptions, FinetuneRow, FinetuneWay, Shape, StepperOptions};
pub(crate) use memory::{largest_batch, step_peak_mib};
pub use networks::{InputName, Network, Sizes};
pub use noise::{NoiseOptions, NoiseRow};
#[cfg(feature = "train")]
pub use options::LearnerOptions;
pub use options::{BenchOptions, Benchmark, RecurrentOptions, StepOptions};
pub use peers::{PeerOptions, PeerRow, System};
pub use planner::{Choice, PlannerFigures, PlannerOptions, PlannerRow};
pub use report::Row;
pub use scaling::{Axis, Growth, Point, ScalingFigures, ScalingOptions};
pub(crate) use timing::step_times;
pub use worker::WorkerOptions;
pub(crate) use worker::run as work;

use burn_dp_examples::training::TrainError;

/// Runs the benchmark that the options name.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option or if the algorithms disagree, and
/// [`TrainError::Io`] if the figures cannot be written.
pub fn run(options: BenchOptions) -> Result<(), TrainError> {
    match options.benchmark {
        Benchmark::Step(options) => step::run(&options),
        #[cfg(feature = "train")]
        Benchmark::Learner(options) => learner::run(&options),
        Benchmark::Peers(options) => peers::run(&options),
        Benchmark::DeviceCosts(options) => device_costs::run(&options),
        Benchmark::Planner(options) => planner::run(&options),
        Benchmark::Scaling(options) => scaling::run(&options),
        Benchmark::Noise(options) => noise::run(&options),
        Benchmark::Recurrent(options) => recurrent::run(&options),
        Benchmark::Finetune(options) => finetune::run(&options),
        Benchmark::FinetuneWorker(options) => finetune::serve(&options),
        Benchmark::Worker(options) => worker::run(&options),
    }
}
