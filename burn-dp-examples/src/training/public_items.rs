//! Public examples, on which a clipping policy measures norms.

use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::{Clipping, PublicNorms};
use burn_dp::losses::CrossEntropyLoss;
use burn_dp::model::ParameterGroups;

use super::private;
use crate::data::{Encoder, ItemDataset};
use crate::models::Classifier;

/// Public examples that are put together to measure norms.
const BATCH_SIZE: usize = 256;

/// Public examples to measure norms on.
pub(super) struct PublicItems<E: Encoder> {
    encoder: E,
    items: ItemDataset<E::Item>,
    loss: CrossEntropyLoss,
    device: Device,
    /// The groups of the run, once they are known.
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

    /// The mean norms of the layers, which are merged into `count` groups if it is given.
    pub(super) fn norms<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
        count: Option<usize>,
    ) -> Result<PublicNorms, DpError> {
        let layers = ParameterGroups::per_layer(model)?;
        let Some(count) = count else {
            // Without examples the layers are all there is to say.
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
            norms.add(private::losses(model, &self.loss, batch), model)?;
        }
        Ok(norms)
    }

    /// Remembers the groups that the policy of the run has.
    pub(super) fn with_groups_of(mut self, policy: &dyn Clipping) -> Result<Self, DpError> {
        self.groups = Some(policy.thresholds(0)?.groups().clone());
        Ok(self)
    }

    /// The mean norms of the groups of the run under the model as it is now.
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

/// The layers with these norms, merged into `count` groups of similar norms.
///
/// # Errors
///
/// Refuses norms of no example.
pub(super) fn merged(norms: &PublicNorms, count: usize) -> Result<ParameterGroups, DpError> {
    let means = norms.means()?;
    // A layer without any gradient is put to the smallest.
    let least = means.iter().copied().filter(|&norm| norm > 0.0).fold(f64::MAX, f64::min);
    let means: Vec<f64> = means.into_iter().map(|norm| norm.max(least)).collect();
    norms.groups().merged_by_norm(&means, count)
}
