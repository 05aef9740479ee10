//! Tests of the assumption that loss i depends on example i alone.

mod items;
mod observed;
mod probe;
mod rounding;
mod unscale;
mod values;
mod whole_batch;

pub use items::{check_independence, check_independence_async};
pub(crate) use probe::Probe;
pub(crate) use values::{Compared, compare_values};
#[cfg(test)]
pub(super) use whole_batch::OutputGrads;
