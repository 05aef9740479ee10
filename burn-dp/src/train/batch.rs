//! One item of the loader.

use burn::tensor::Device;

use super::logical_step::ReleaseSlot;
use crate::sampling::LogicalBatch;

/// The part of a logical batch that one device processes: the physical batches that it clips in one
/// step.
///
/// # Privacy
///
/// The type reveals neither the number of units nor the number of physical batches; both depend on
/// the draw. The data is loaded in the step.
pub struct PrivateBatch<O> {
    pub(super) batch: LogicalBatch<O>,
    pub(super) part: (usize, usize),
    pub(super) device: Option<Device>,
    pub(super) slot: ReleaseSlot,
}

impl<O: Send + 'static> PrivateBatch<O> {
    /// Returns the number of the step that the batch belongs to.
    pub fn step(&self) -> u64 {
        self.batch.step()
    }
}

opaque_debug!(PrivateBatch<O>, |this| part: this.part);
