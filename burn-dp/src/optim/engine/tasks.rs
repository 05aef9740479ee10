//! The clipping of physical batches and of unit updates, on any thread.

use burn::module::Module;
use burn::tensor::Tensor;
use burn_dp_accountant::UnitOfPrivacy;

use super::PrivacyEngine;
use super::not_covered::PRODUCTS;
#[cfg(feature = "remote")]
use super::not_covered::REMOTE_DEVICES;
use crate::DpError;
use crate::clipping::{ClippedSum, Thresholds};
use crate::grads::{PrivateBackward, Probe};
use crate::model::has_training_batch_norm;
use crate::optim::buffers::{BufferCheck, Extent};
use crate::random::Key;
use crate::sampling::DrawPart;
use crate::updates::federated::UserUpdate;
use crate::updates::{UnitUpdate, clip_updates_async};

impl PrivacyEngine {
    /// Returns what a thread needs to clip a physical batch of the current logical step.
    pub(crate) async fn clip_task<M: Module>(&mut self, model: &M) -> Result<ClipTask, DpError> {
        self.buffers.begin(model).await?;
        if !self.facts.contains_key(PRODUCTS) && model.devices().iter().any(self.coarse_products) {
            self.note(PRODUCTS, "TF32 where the device chooses it");
        }
        #[cfg(feature = "remote")]
        if model.devices().iter().any(crate::remote::is_remote) {
            self.note(REMOTE_DEVICES, "they receive examples, parameters and gradients");
        }
        Ok(ClipTask {
            buffers: self.buffers.clone(),
            backward: self.backward.clone(),
            probe: self.independence.take_probe(&self.plan.source, self.next_step),
            thresholds: self.thresholds()?,
        })
    }

    /// Receives the probe of a [`ClipTask`].
    pub(crate) fn end_task(&mut self, probe: Option<Probe>) {
        self.independence.give_back(probe);
    }

    /// Returns what a thread needs to clip the updates of units of the current logical step.
    pub(crate) async fn unit_task<M: Module>(&mut self, model: &M) -> Result<UnitTask, DpError> {
        self.buffers.begin(model).await?;
        Ok(UnitTask { thresholds: self.thresholds()? })
    }

    /// Checks that the updates did not change `model`.
    pub(crate) async fn end_unit_task<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        self.buffers.verify(model, Extent::Step).await?;
        if has_training_batch_norm(model) {
            self.note(
                "running_statistics",
                "not learned: private batches changed copies of the model only; the model has \
                 those it began with, or others computed on public data",
            );
        }
        self.independence.units_by_themselves();
        Ok(())
    }

    /// Prepares the updates of users. Returns the key that orders the examples of a user.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the unit of the plan is not the user.
    pub(crate) fn begin_user_updates(&mut self, update: &UserUpdate) -> Result<Key, DpError> {
        let unit = self.plan.unit();
        if *unit != UnitOfPrivacy::User {
            return Err(DpError::invalid(
                "unit",
                format!(
                    "must be the user, because an item of the data set is all that a user owns, \
                     got {unit}; plan with `with_unit(UnitOfPrivacy::User)`"
                ),
            ));
        }
        self.note("user_update", update.to_string());
        Ok(self.plan.key().clone())
    }

    /// Removes what [`begin_user_updates`](Self::begin_user_updates) noted.
    #[cfg(feature = "train")]
    pub(crate) fn end_user_updates(&mut self) {
        self.facts.remove("user_update");
    }
}

/// The clipping of one physical batch, which any thread may do.
pub(crate) struct ClipTask {
    buffers: BufferCheck,
    backward: PrivateBackward,
    probe: Option<Probe>,
    thresholds: Thresholds,
}

impl ClipTask {
    /// Returns the clipped sum, and the probe for [`end_task`](PrivacyEngine::end_task), which
    /// needs it in every case.
    ///
    /// # Arguments
    ///
    /// - `model`: the model that is trained
    /// - `computing`: the model that [computed](PrivacyEngine::computing) the losses
    pub(crate) async fn run<M: Module>(
        mut self,
        losses: Tensor<1>,
        part: &DrawPart,
        model: &M,
        computing: &M,
    ) -> (Result<ClippedSum, DpError>, Option<Probe>) {
        let sum = self.clip(losses, part, model, computing).await;
        (sum, self.probe)
    }

    async fn clip<M: Module>(
        &mut self,
        losses: Tensor<1>,
        part: &DrawPart,
        model: &M,
        computing: &M,
    ) -> Result<ClippedSum, DpError> {
        self.buffers.verify(model, Extent::Step).await?;
        let grads = self.backward.run_checked(losses, computing, &mut self.probe).await?;
        let real = part.is_padding().map(|padding| !padding).collect();
        ClippedSum::from_gradients_async(grads.with_padding(real)?, &self.thresholds).await
    }
}

/// The clipping of the updates of some units, which any thread may do.
pub(crate) struct UnitTask {
    thresholds: Thresholds,
}

impl UnitTask {
    pub(crate) async fn run<M: Module, U>(
        self,
        model: &M,
        units: impl IntoIterator<Item = U>,
        update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
    ) -> Result<ClippedSum, DpError> {
        clip_updates_async(&self.thresholds, model, units, update).await
    }
}
