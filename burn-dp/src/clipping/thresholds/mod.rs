//! What one step needs to clip: thresholds, coefficients, noise, counts, and the clipped sum.

mod bound;
mod clipped_sum;
mod coefficients;
mod count;
mod on_device;
mod statistics;
mod step_noise;
#[allow(clippy::module_inception)]
mod thresholds;

pub use clipped_sum::ClippedSum;
pub use count::{Count, CountKind, CountNoise};
pub use statistics::ClippingStatistics;
pub use step_noise::{NoiseSplit, StepNoise};
pub use thresholds::Thresholds;
