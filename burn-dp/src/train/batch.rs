//! One item of the loader.

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use super::logical_step::ReleaseSlot;
use super::session::Session;
use crate::DpError;
use crate::device_read::wait;
use crate::optim::LossFunction;
use crate::optim::engine::{Forward, PrivacyEngine};
use crate::sampling::{LogicalBatch, PhysicalBatches};

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

    pub(super) fn physical_batches(&self, size: usize) -> Result<PhysicalBatches<O>, DpError> {
        self.batch.part(size, self.part, self.device.clone())
    }

    /// Returns the physical batches whose losses the library computes itself.
    pub(super) fn computed(
        &self,
        size: usize,
        expected_batch_size: f64,
    ) -> Result<PhysicalBatches<O>, DpError> {
        self.batch.computed(size, self.part, self.device.clone(), expected_batch_size)
    }

    /// Returns the forward passes of this part.
    pub(super) fn forward<'a, M, T>(
        &'a self,
        engine: &PrivacyEngine,
        losses: &'a dyn Fn(&M, O) -> (Tensor<1>, T),
    ) -> Forward<'a, M, O, T> {
        engine.forward(&self.batch, self.device.clone(), losses, LossFunction::of::<M>())
    }

    /// Compares the values of a physical batch between different batches, if a test is due.
    pub(super) fn compare<M: Module, T>(
        session: &Session,
        forward: &Forward<'_, M, O, T>,
        model: &M,
        units: &[usize],
    ) -> Result<(), DpError> {
        let function = forward.function();
        if !session.configure(|engine| engine.begin_comparison(function)) {
            return Ok(());
        }
        let outcome = wait(forward.compare(model, units));
        session.configure(|engine| engine.compared(function, &outcome));
        outcome.map(drop)
    }
}

opaque_debug!(PrivateBatch<O>, |this| part: this.part);
