//! Public examples on which a clipping policy measures norms.

use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::{Clipping, PublicNorms};
use burn_dp::losses::CrossEntropyLoss;
use burn_dp::model::ParameterGroups;

use crate::data::{Encoder, ItemDataset};
use crate::models::Classifier;
use crate::training::thresholds::merged;

/// Public examples in a batch.
const BATCH_SIZE: usize = 256;

/// Public examples to measure norms on.
pub(super) struct PublicItems<E: Encoder> {
    encoder: E,
    items: ItemDataset<E::Item>,
    loss: CrossEntropyLoss,
    device: Device,
    /// The groups of the policy, once it exists.
    groups: Option<ParameterGroups>,
}

impl<E: Encoder> PublicItems<E> {
    pub(super) fn new(
        encoder: E,
        items: ItemDataset<E::Item>,
        loss: CrossEntropyLoss,
        device: Device,
    ) -> Self {
        Self { encoder, items, loss, device, groups: None }
    }

    /// Returns the mean norms of the layers, merged into `count` groups if it is given.
    pub(super) fn norms<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
        count: Option<usize>,
    ) -> Result<PublicNorms, DpError> {
        let layers = ParameterGroups::per_layer(model)?;
        let Some(count) = count else {
            // Without examples there are only the layers.
            return match self.items.items().is_empty() {
                true => Ok(PublicNorms::new(layers)),
                false => self.measure(model, layers),
            };
        };
        self.measure(model, merged(&self.measure(model, layers)?, count)?)
    }

    fn measure<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
        groups: ParameterGroups,
    ) -> Result<PublicNorms, DpError> {
        let mut norms = PublicNorms::new(groups);
        for items in self.items.items().chunks(BATCH_SIZE) {
            let batch = self.encoder.batch(items.to_vec(), &self.device);
            norms.add(model.losses(&self.loss, batch), model)?;
        }
        Ok(norms)
    }

    /// Sets the groups of the policy.
    pub(super) fn with_groups_of(mut self, policy: &dyn Clipping) -> Result<Self, DpError> {
        self.groups = Some(policy.thresholds(0)?.groups().clone());
        Ok(self)
    }

    /// Returns the mean norms of the groups under the current model.
    pub(super) fn measured<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
    ) -> Result<PublicNorms, DpError> {
        let groups = match &self.groups {
            Some(groups) => groups.clone(),
            None => ParameterGroups::per_layer(model)?,
        };
        self.measure(model, groups)
    }
}
