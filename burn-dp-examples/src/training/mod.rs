//! The training program: options, the run, and what it writes.

pub mod batch_clipping;
mod checkpoints;
mod clipping;
mod clipping_policy;
mod device;
mod error;
mod evaluation;
pub mod federated;
mod figures;
pub(crate) mod files;
mod inputs;
mod loading;
mod noise;
mod options;
mod ordinary;
pub(crate) mod plot;
mod private;
mod progress;
mod public_items;
mod recipe;
mod run;
mod schedule;
mod settings;
mod statement;

pub use clipping::{ClippingName, ClippingOptions, ClippingSettings, RuleName};
pub use device::device;
pub use error::TrainError;
pub use evaluation::Evaluation;
pub use figures::RunFigures;
pub(crate) use files::write_json;
pub use inputs::{InputOptions, InputSettings};
pub use options::{BackendName, DatasetName, OptimizerName, TrainOptions};
pub use run::{AVERAGED_MODEL_FILE, MODEL_FILE, run};
pub use schedule::ScheduleName;
pub use settings::{Length, PrivacySettings, Settings};
pub use statement::{STATEMENT_JSON, STATEMENT_TEXT};
