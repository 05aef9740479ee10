//! What privacy costs per step: time and memory of the algorithms that compute a clipped sum.
//!
//! One step is forward, backward, clipping, noise and update, with Adam at a learning rate of 0.001
//! and a clipping threshold of 1, as in the fast-clipping paper. The algorithms take turns in one
//! process on the same images, so that other load on the machine slows all of them equally.
//!
//! # References
//!
//! J. Lee, D. Kifer: Scaling up differentially private deep learning with fast per-example gradient
//! clipping, 2021, section 6.

mod agreement;
mod algorithm;
mod chart;
mod contender;
#[cfg(feature = "train")]
mod learner;
mod memory;
mod options;
mod peers;
mod recurrent;
mod report;
mod step;
mod subject;

pub use algorithm::Algorithm;
#[cfg(feature = "train")]
pub use options::LearnerOptions;
pub use options::{BenchOptions, Benchmark, PeakOptions, RecurrentOptions, StepOptions};
pub use report::Row;

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
        Benchmark::Recurrent(options) => recurrent::run(&options),
        Benchmark::Peak(options) => memory::child(&options),
    }
}
