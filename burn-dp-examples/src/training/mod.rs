//! The training program: options, the run, and its output.
//!
//! [`TrainOptions`] is the command line, and [`run`] runs one of three training modes:
//! [`individual`] clipping, with ordinary training of the same models, [`batch_clipping`] of
//! mini-sets, and [`federated`] training with user-level privacy. They share options, checks,
//! checkpoints, table and output.

mod augmentation;
pub mod batch_clipping;
mod budget;
mod checkpoints;
pub mod checks;
mod checksum;
mod compared;
mod device;
mod earlier;
mod error;
mod evaluation;
pub mod federated;
pub mod files;
pub mod individual;
mod loading;
mod optimizer;
mod options;
mod output;
pub mod place;
mod privacy;
mod program;
pub mod progress;
mod public_data;
mod quantile;
mod recipes;
mod sampling;
mod settings_text;
mod statement;
mod summary;
mod thresholds;
mod train_options;
pub mod tune;

pub use augmentation::{Augmentation, AugmentationOptions};
pub use budget::within_budget;
pub use checkpoints::{Checkpoints, Start};
pub use device::device;
pub use earlier::EarlierLedgers;
pub use error::TrainError;
pub use evaluation::Evaluation;
pub use loading::DataOptions;
pub use optimizer::optimizer;
pub use options::{
    BackendName, ClippingName, DatasetName, ExampleOptions, Given, OptimizerName, Precision,
    PrivacyOptions, RecipeOptions, RunOptions, SharedName, typed,
};
pub use output::{
    AVERAGED_MODEL_FILE, FIGURES_FILE, LEDGER_FILE, MODEL_FILE, Measurement, Output,
    STATEMENT_JSON, STATEMENT_TEXT, TRAINING_PLOT, kept_ledgers,
};
pub use privacy::PrivacySettings;
pub use program::run;
pub use quantile::{QuantileOptions, RuleName};
pub use sampling::{SamplingName, SamplingOptions, SamplingSettings};
pub use statement::Described;
pub use train_options::{Mode, TrainOptions};
