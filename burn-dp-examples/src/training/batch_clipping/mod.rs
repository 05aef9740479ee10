//! Training with batch clipping: the units of a step are mini-sets of fixed membership, and the
//! model can contain BatchNorm.

mod data;
mod figures;
mod options;
mod policy;
mod run;
mod settings;
mod training;
mod updates;

pub use data::{BatchData, load};
pub use figures::{BatchFigures, EpochFigures};
pub use options::{
    BatchModel, BatchModelName, BatchPolicyName, LocalOptimizerName, MiniSetOptions,
    UnitClippingName,
};
pub use run::run;
pub use settings::BatchSettings;
pub use training::{figures, with_public_statistics};
