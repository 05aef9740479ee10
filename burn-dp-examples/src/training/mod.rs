//! The training program: options, the run, and what it writes.

mod device;
mod error;
mod evaluation;
mod figures;
mod files;
mod options;
mod ordinary;
mod progress;
mod recipe;
mod run;
mod settings;

pub use device::device;
pub use error::TrainError;
pub use evaluation::Evaluation;
pub use figures::RunFigures;
pub use options::{BackendName, DatasetName, ModelName, OptimizerName, TrainOptions};
pub use run::{MODEL_FILE, run};
pub use settings::{Length, PrivacySettings, PrivacyTarget, Settings};
