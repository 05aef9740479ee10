//! The training program: options, the run, and what it writes.

mod checkpoints;
mod device;
mod error;
mod evaluation;
mod figures;
mod files;
mod inputs;
mod loading;
mod options;
mod ordinary;
mod private;
mod progress;
mod recipe;
mod run;
mod schedule;
mod settings;
mod statement;

pub use device::device;
pub use error::TrainError;
pub use evaluation::Evaluation;
pub use figures::RunFigures;
pub(crate) use files::write_json;
pub use inputs::{InputOptions, InputSettings};
pub use options::{BackendName, DatasetName, OptimizerName, TrainOptions};
pub use run::{MODEL_FILE, run};
pub use schedule::ScheduleName;
pub use settings::{Length, PrivacySettings, Settings};
pub use statement::{STATEMENT_JSON, STATEMENT_TEXT};
