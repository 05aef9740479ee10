//! What the loader gives to the model.

use std::fmt;

use burn::tensor::Device;

use super::session::ReleaseSlot;
use crate::DpError;
use crate::sampling::{LogicalBatch, PhysicalBatches};

/// One device's part of a logical batch: the virtual batches that it works off in one step.
///
/// # Privacy
///
/// Neither the number of units nor that of virtual batches is told; both depend on the draw. The
/// data is loaded in the step.
pub struct PrivateBatch<O> {
    pub(super) batch: LogicalBatch<O>,
    pub(super) part: (usize, usize),
    pub(super) device: Option<Device>,
    pub(super) slot: ReleaseSlot,
}

impl<O: Send + 'static> PrivateBatch<O> {
    /// The step that the batch belongs to.
    pub fn step(&self) -> u64 {
        self.batch.step()
    }

    pub(super) fn chunks(&self, physical_batch_size: usize) -> Result<PhysicalBatches<O>, DpError> {
        self.batch.part(physical_batch_size, self.part, self.device.clone())
    }
}

impl<O> fmt::Debug for PrivateBatch<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateBatch").field("part", &self.part).finish_non_exhaustive()
    }
}
