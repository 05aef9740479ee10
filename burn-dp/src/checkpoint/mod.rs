//! Checkpoints: the state of a run, its log of releases, and the folder that holds them.

pub(crate) mod little_endian;
mod record;
pub(crate) mod release_log;
mod restore;
mod state;
mod store;

pub use record::DpOptimizerRecord;
pub use restore::Checkpoint;
pub(crate) use state::PrivacyState;
pub use store::Checkpointer;
#[cfg(feature = "train")]
pub(crate) use store::{AVERAGE, MODEL, OPTIMIZER, SPARSIFIER, records};
