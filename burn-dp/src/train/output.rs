//! The input of the metrics.

use std::sync::Arc;

use burn::backend::ExecutionError;
use burn::train::ItemLazy;
use burn::train::metric::Adaptor;

use super::StepRelease;
use super::logical_step::ReleaseSlot;
use crate::NonPrivate;
use crate::clipping::ClippingStatistics;

/// The output of a private training step.
///
/// # Privacy
///
/// Metrics receive what was [released](StepRelease). The outputs of the user's model on the
/// training batches are [`NonPrivate`], and kept only if a metric uses them.
pub struct StepOutput<T> {
    pub(super) slot: ReleaseSlot,
    pub(super) outputs: Vec<T>,
}

opaque_debug!(StepOutput<T>);

impl<T: ItemLazy> ItemLazy for StepOutput<T> {
    fn sync(self) -> Result<Self, ExecutionError> {
        let outputs = self.outputs.into_iter().map(ItemLazy::sync).collect::<Result<_, _>>()?;
        Ok(Self { outputs, ..self })
    }
}

/// `None` for a step that was rejected.
impl<T> Adaptor<Option<Arc<StepRelease>>> for StepOutput<T> {
    fn adapt(&self) -> Option<Arc<StepRelease>> {
        self.slot.get().cloned()
    }
}

impl<T> Adaptor<NonPrivate<Option<ClippingStatistics>>> for StepOutput<T> {
    fn adapt(&self) -> NonPrivate<Option<ClippingStatistics>> {
        NonPrivate::new(self.slot.get().map(|release| release.statistics))
    }
}

/// One for each physical batch.
impl<I, T: Adaptor<I>> Adaptor<NonPrivate<Vec<I>>> for StepOutput<T> {
    fn adapt(&self) -> NonPrivate<Vec<I>> {
        NonPrivate::new(self.outputs.iter().map(Adaptor::<I>::adapt).collect())
    }
}
