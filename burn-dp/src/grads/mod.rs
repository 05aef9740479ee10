//! Per-example gradients: the records of a backward pass, their norms and weighted sums.
//!
//! [`PrivateBackward`] runs one backward pass over the sum of per-example losses while a recording
//! is active. Layers wrapped in [`Private`](crate::nn::Private) pass on their input and the
//! gradient of their output. [`PerExampleGradients`] holds the records until a [clipping
//! policy](crate::clipping) consumes it. The gradient of a single example is never visible outside.
//!
//! | file | content |
//! |---|---|
//! | `backward` | runs the pass |
//! | `collector` | receives its records |
//! | `rules/` | one rule per file: lift, mathematics, oracle tests |
//! | `planner` | chooses between ghost norms and instantiation |
//! | `device_costs`, `clock` | the times of a device, on which the choice is based |
//! | `per_example`, `parameter_gradients`, `precision` | norms and weighted sums |
//! | `independence/` | tests that loss i depends on example i alone, by gradient and by value |
//! | `directions` | the vectors with which such a test compares gradients |
//! | `explain`, `explanation` | report of the planner's decisions |
//! | `oracle` | the test harness: the loop over single examples |
//! | `tests/` | compositions of layers, and properties of all of them |

mod backward;
mod clock;
mod collector;
mod device_costs;
mod directions;
mod explain;
mod explanation;
mod independence;
mod parameter_gradients;
mod pass_check;
mod per_example;
mod planner;
mod precision;
mod rows;
mod rules;

#[cfg(test)]
pub(crate) mod oracle;
#[cfg(test)]
mod tests;

pub(crate) use crate::ops::single;
pub use backward::PrivateBackward;
pub use device_costs::DeviceCosts;
pub use explain::explain;
pub use explanation::{ExplainedParameter, Explanation};
pub(crate) use independence::{Compared, Probe, compare_values};
pub use independence::{check_independence, check_independence_async};
#[cfg(test)]
pub(crate) use per_example::NormRow;
pub use per_example::PerExampleGradients;
pub(crate) use per_example::{GroupSum, NormTable};
pub use planner::{MemoryBound, NormMethod};
#[doc(hidden)]
pub use precision::has_coarse_products;
