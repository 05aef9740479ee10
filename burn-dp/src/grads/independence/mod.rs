//! Tests of the assumption that loss i depends on example i alone.

mod probe;
mod whole_batch;

pub(crate) use probe::Probe;
#[cfg(test)]
pub(crate) use whole_batch::OutputGrads;
pub use whole_batch::check_independence;
