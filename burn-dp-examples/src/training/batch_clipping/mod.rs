//! Batch clipping: the units of a step are mini-sets of fixed membership, and the model may contain
//! BatchNorm.

mod data;
mod figures;
mod options;
mod policy;
mod run;
mod settings;
mod training;
mod updates;

pub(crate) use data::load;
pub use figures::{BatchFigures, EpochFigures};
pub use options::{BatchModelName, BatchOptions, BatchPolicyName, DataOptions, UnitClippingName};
pub use run::run;
pub(crate) use settings::BatchSettings;
pub(crate) use training::BatchTraining;
