//! Walking a model: its trained parameters, their groups and ties, and what cannot be trained privately.

mod fault;
pub(crate) mod groups;
mod merged_groups;
mod parameters;
mod survey;
mod ties;
mod validate;

pub use fault::{Fault, FaultKind, Faults};
pub use groups::ParameterGroups;
pub(crate) use parameters::FirstCopies;
pub use parameters::{ParameterInfo, TrainableParameters};
pub(crate) use survey::{Survey, Trained};
pub(crate) use ties::tie;
pub use validate::validate;

#[cfg(test)]
mod tests;
