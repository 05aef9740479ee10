//! User-level training of a language model on the plays of Shakespeare. Each speaking role is a
//! user.

mod figures;
mod norms;
mod options;
mod policy;
mod run;
mod settings;
mod training;
mod users;

pub use figures::{FederatedFigures, RoundFigures};
pub use options::{AlgorithmName, RoundOptions};
pub use run::run;
pub use settings::FederatedSettings;
pub use training::figures;
pub use users::Users;
