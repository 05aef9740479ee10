//! Tests of the assumption that loss i depends on example i alone.

mod probe;
mod whole_batch;

pub(crate) use probe::Probe;
pub use whole_batch::check_independence;
