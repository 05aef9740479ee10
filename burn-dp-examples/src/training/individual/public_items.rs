//! Public examples on which a clipping policy measures norms.

use burn::tensor::Device;
use burn_dp::PublicData;
use burn_dp::clipping::{Clipping, PublicNorms};
use burn_dp::losses::CrossEntropyLoss;
use burn_dp::model::ParameterGroups;

use crate::data::Encoder;
use crate::models::Classifier;
use crate::training::TrainError;

/// Number of public examples in a batch.
const BATCH_SIZE: usize = 256;

/// The public inputs of a run.
pub(super) struct PublicInputs<T> {
    /// Examples, if a policy needs them.
    pub(super) items: Option<PublicData<T>>,
    /// Word vectors, by name and number.
    pub(super) words: Option<PublicData<()>>,
}

/// Public examples to measure norms on, if there are any.
pub(super) struct PublicItems<E: Encoder> {
    encoder: E,
    data: Option<PublicData<Vec<E::Item>>>,
    loss: CrossEntropyLoss,
    device: Device,
    /// The groups of the policy, once it exists.
    groups: Option<ParameterGroups>,
}

impl<E: Encoder> PublicItems<E> {
    pub(super) fn new(
        encoder: E,
        data: Option<PublicData<E::Item>>,
        loss: CrossEntropyLoss,
        device: Device,
    ) -> Self {
        let data = data.map(|data| data.batches(BATCH_SIZE));
        Self { encoder, data, loss, device, groups: None }
    }

    /// Returns the layers, merged into `count` groups of similar norms if it is given.
    pub(super) fn layers<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
        count: Option<usize>,
    ) -> Result<ParameterGroups, TrainError> {
        let layers = ParameterGroups::per_layer(model)?;
        match count {
            None => Ok(layers),
            Some(count) => Ok(self.measure(model, layers)?.merged_groups(count)?),
        }
    }

    /// Returns the mean norms of the [`layers`](Self::layers).
    pub(super) fn norms<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
        count: Option<usize>,
    ) -> Result<PublicNorms, TrainError> {
        self.measure(model, self.layers(model, count)?)
    }

    fn measure<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
        groups: ParameterGroups,
    ) -> Result<PublicNorms, TrainError> {
        let data = self.data.as_ref().ok_or_else(|| {
            TrainError::option("--public-data", "must be given for a policy that measures norms")
        })?;
        let norms = PublicNorms::measure(groups, data, model, |model, items| {
            model.losses(&self.loss, self.encoder.batch(items.clone(), &self.device))
        });
        Ok(norms?)
    }

    /// Sets the groups of the policy.
    pub(super) fn with_groups_of(mut self, policy: &dyn Clipping) -> Result<Self, TrainError> {
        self.groups = Some(policy.thresholds(0)?.groups().clone());
        Ok(self)
    }

    /// Returns the mean norms of the groups under the current model.
    pub(super) fn measured<M: Classifier<Inputs = E::Inputs>>(
        &self,
        model: &M,
    ) -> Result<PublicNorms, TrainError> {
        let groups = match &self.groups {
            Some(groups) => groups.clone(),
            None => ParameterGroups::per_layer(model)?,
        };
        self.measure(model, groups)
    }
}
