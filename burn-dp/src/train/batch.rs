//! One item of the loader.

use std::fmt;

use burn::tensor::Device;

use super::logical_step::ReleaseSlot;
use crate::DpError;
use crate::sampling::{LogicalBatch, PhysicalBatches};

/// One device's part of a logical batch: the physical batches that it clips in one step.
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

    pub(super) fn physical_batches(&self, size: usize) -> Result<PhysicalBatches<O>, DpError> {
        self.batch.part(size, self.part, self.device.clone())
    }

    /// Returns the number of a physical batch in the whole draw.
    ///
    /// # Arguments
    ///
    /// - `turn`: its number in this part
    pub(super) fn number(&self, turn: usize) -> usize {
        let (part, parts) = self.part;
        part + turn * parts
    }

    /// Returns the unit of a physical batch of one unit.
    pub(super) fn unit(&self, number: usize) -> usize {
        self.batch.draw().private_indices()[number]
    }
}

impl<O> fmt::Debug for PrivateBatch<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateBatch").field("part", &self.part).finish_non_exhaustive()
    }
}
