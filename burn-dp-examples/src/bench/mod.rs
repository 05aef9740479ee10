//! What privacy costs per step: time and memory of the algorithms that make a clipped sum.
//!
//! One step is forward, backward, clipping, noise and update, with Adam at a learning rate of 0.001
//! and a clipping threshold of 1, as in the fast-clipping paper. The algorithms take turns in one
//! process, on the same images, so that what slows the machine down slows all of them.
//!
//! # References
//!
//! J. Lee, D. Kifer: Scaling up differentially private deep learning with fast per-example gradient
//! clipping, 2021, section 6.

mod agreement;
mod algorithm;
mod contender;
#[cfg(feature = "train")]
mod learner;
mod memory;
mod options;
mod report;
mod step;
mod subject;

#[cfg(test)]
pub(crate) use agreement::assert_agreement;
pub use algorithm::Algorithm;
#[cfg(feature = "train")]
pub use options::LearnerOptions;
pub use options::{BenchOptions, Benchmark, PeakOptions, StepOptions};
pub use report::Row;

use crate::training::TrainError;

/// Runs the benchmark that the options name.
///
/// # Errors
///
/// When an option is impossible, the algorithms disagree, or the figures cannot be written.
pub fn run(options: BenchOptions) -> Result<(), TrainError> {
    match options.benchmark {
        Benchmark::Step(options) => step::run(&options),
        #[cfg(feature = "train")]
        Benchmark::Learner(options) => learner::run(&options),
        Benchmark::Peak(options) => memory::child(&options),
    }
}
