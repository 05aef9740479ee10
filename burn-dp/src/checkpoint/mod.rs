//! Checkpoints: the state of a run, its log of releases, and the folder that holds them.
//!
//! Custom loops, Burn's learner, and federated training share one store. A saved run is a set of
//! named parts: `privacy.json` with the whole privacy state, and Burn records for everything else.
//! A [`Checkpointer`] writes the parts as files of a folder and the key as a separate file; a
//! [`DpOptimizerRecord`] contains all of them as one sequence of bytes. A program without files
//! keeps its log of releases in a [`ReleaseStore`].

mod fail_point;
mod folder;
mod forget_key;
mod key_file;
mod log_content;
mod log_file;
mod log_lines;
mod log_lock;
mod model_bytes;
mod owned;
mod record;
mod release_store;
mod restore;
mod saved_run;
mod store;

#[cfg(feature = "train")]
pub(crate) use forget_key::forget_key;
pub use model_bytes::model_to_bytes_async;
pub use record::DpOptimizerRecord;
pub use release_store::{ReleaseStore, StoreFuture};
pub use restore::Checkpoint;
#[cfg(feature = "train")]
pub(crate) use saved_run::{MODEL, OPTIMIZER, SCHEDULER, SavedRun};
pub use store::Checkpointer;
