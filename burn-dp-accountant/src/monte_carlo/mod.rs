//! Estimation of δ by simulation of privacy losses, for releases without a certified tight bound.

mod accountant;
mod bins;
mod confidence;
mod correlated;
mod losses;
mod pairs;
mod sequences;
mod simulation;
mod source;
mod sources;

pub use accountant::MonteCarloAccountant;
pub use confidence::verified_delta;
pub use simulation::Simulation;
