//! The parameters of a model, and whether it can be trained privately.
//!
//! - [`validate`] lists every part of a model that cannot be trained privately, with a remedy.
//! - [`Replacements`] reports which layers of a pre-trained model were replaced, and which values
//!   were kept.
//! - [`TrainableParameters`] are the parameters that a step clips, noises, and updates.
//! - [`LowRankAdapters`] adds trained low-rank adapters to chosen layers and freezes the rest.
//! - [`ParameterGroups`] partitions the trained parameters for clipping policies with several
//!   thresholds.
//!
//! Inside the crate, `for_each_parameter` and `map_parameters` walk the float parameters of a
//! model, and `tie` sets the copies of a tied parameter to one value.

mod adapters;
mod clusters;
pub(crate) mod groups;
mod parameter_info;
mod precision;
mod private_copy;
mod replacements;
mod scan;
mod ties;
mod trainable;
mod validate;

pub use crate::error::{Fault, FaultKind, Faults};
pub(crate) use crate::walk::{for_each_parameter, for_each_trained, map_parameters};
pub use adapters::{AdapterFactors, LowRankAdapters};
pub use groups::ParameterGroups;
pub use parameter_info::ParameterInfo;
pub use precision::precision_of;
pub(crate) use precision::{in_precision, precision_name};
pub use private_copy::private_copy;
pub use replacements::{Replacement, Replacements};
pub(crate) use scan::has_training_batch_norm;
pub(crate) use ties::tie;
pub use trainable::TrainableParameters;
pub use validate::validate;

#[cfg(test)]
mod tests;
