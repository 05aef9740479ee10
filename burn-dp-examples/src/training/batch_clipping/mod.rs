//! Batch clipping: the units of a step are mini-sets of fixed membership, and the model may contain
//! BatchNorm.

mod options;
mod run;
mod settings;

pub use options::{BatchModelName, BatchOptions, BatchPolicyName, DataOptions, UnitClippingName};
pub use run::{BatchFigures, EpochFigures, run};
pub(crate) use run::{load, train};
pub(crate) use settings::{BatchSettings, LAYERS};
