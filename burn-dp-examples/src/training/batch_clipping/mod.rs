//! Batch clipping: the units of a step are mini-sets of fixed membership, and the model may contain
//! BatchNorm.

mod data;
mod figures;
mod options;
mod run;
mod settings;

pub(crate) use data::load;
pub use figures::{BatchFigures, EpochFigures};
pub use options::{BatchModelName, BatchOptions, BatchPolicyName, DataOptions, UnitClippingName};
pub use run::run;
pub(crate) use run::train;
pub(crate) use settings::{BatchSettings, LAYERS};
