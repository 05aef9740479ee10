//! Estimation of δ by simulation of privacy losses, for releases without a certified tight bound.

mod accountant;
mod confidence;
mod patterns;
mod sources;

pub use accountant::MonteCarloAccountant;
pub use confidence::verified_delta;
