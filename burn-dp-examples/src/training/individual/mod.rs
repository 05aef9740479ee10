//! Training with individual clipping: each example's gradient is clipped. This also includes
//! ordinary training of the same models.

mod clipping;
mod figures;
mod inputs;
mod options;
mod ordinary;
mod policy;
mod private;
mod public_items;
mod recipe;
mod run;
mod schedule;
mod settings;

pub use clipping::ClippingSettings;
pub use figures::RunFigures;
pub use inputs::{InputOptions, InputSettings};
pub use options::IndividualOptions;
pub(in crate::training) use run::{examples, run_on};
pub use run::{is_interrupted, run};
pub use schedule::ScheduleName;
pub use settings::{IndividualSettings, Length, PrivateSettings};
