//! Per-example gradients: what a backward pass recorded, norms and weighted sums.
//!
//! [`PrivateBackward`] runs one backward pass over the sum of per-example losses while a recording is
//! active. Layers wrapped in [`Private`](crate::nn::Private) hand over their input and the gradient of
//! their output; [`PerExampleGradients`] holds that until a [clipping policy](crate::clipping)
//! consumes it. No gradient of a single example is ever visible outside.

mod backward;
mod contribution;
mod independence;
mod parameters;
mod per_example;
mod planner;
pub(crate) mod recording;
mod rules;

#[cfg(test)]
mod oracle;

pub use backward::PrivateBackward;
pub use independence::check_independence;
pub use parameters::{ParameterInfo, TrainableParameters};
pub use per_example::PerExampleGradients;
pub use planner::{MemoryBound, Strategy};
