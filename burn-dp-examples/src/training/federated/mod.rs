//! User-level training of a language model on the plays of Shakespeare, one speaking role a user.

mod figures;
mod norms;
mod options;
mod run;
mod settings;

pub use figures::{FederatedFigures, RoundFigures};
pub use options::{AlgorithmName, FederatedOptions, UserClippingName, UserDatasetName};
pub use run::run;
