//! Per-example gradients: what a backward pass recorded, norms and weighted sums.
//!
//! [`PrivateBackward`] runs one backward pass over the sum of per-example losses while a recording is
//! active. Layers wrapped in [`Private`](crate::nn::Private) hand over their input and the gradient of
//! their output; [`PerExampleGradients`] holds that until a [clipping policy](crate::clipping)
//! consumes it. No gradient of a single example is ever visible outside.

mod backward;
mod collector;
mod contribution;
mod explain;
pub(crate) mod independence;
mod parameter_gradients;
mod per_example;
mod planner;
mod rounding;
mod row_scale;
mod rules;

#[cfg(test)]
pub(crate) mod oracle;

pub use backward::PrivateBackward;
pub(crate) use contribution::single;
pub use explain::{ExplainedParameter, Explanation, explain};
pub(crate) use independence::Probe;
pub use independence::check_independence;
pub use per_example::PerExampleGradients;
pub use planner::{MemoryBound, Strategy};
