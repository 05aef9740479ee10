//! The update of a mini-set.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor};
use burn_dp::DpError;
use burn_dp::clipping::PublicNorms;
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp::model::ParameterGroups;
use burn_dp::updates::{LocalTraining, UnitUpdate, public_update_norms};

use super::data::BatchData;
use super::{BatchSettings, LocalOptimizerName};
use crate::data::{ImageBatcher, ImageItem};
use crate::models::Classifier;
use crate::training::TrainError;
use crate::training::optimizer::optimizer;
use crate::training::options::OptimizerName;

/// Number of public units whose norms the layerwise thresholds follow.
const PUBLIC_UNITS: usize = 100;

/// Momentum of the local steps.
const MOMENTUM: f64 = 0.9;

/// Computation of the update of a mini-set.
pub(super) struct Updates {
    encoder: ImageBatcher,
    /// Number of local steps, in general batch clipping.
    local: Option<(usize, LocalTraining)>,
    loss: CrossEntropyLoss,
    /// The device of the computation.
    pub(super) device: Device,
}

impl Updates {
    /// Creates updates that are gradients, or the total change of local steps.
    ///
    /// # Arguments
    ///
    /// - `device`: a device with automatic differentiation
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the local learning rate is rejected.
    pub(super) fn new(
        settings: &BatchSettings,
        encoder: ImageBatcher,
        device: Device,
    ) -> Result<Self, TrainError> {
        let local = match settings.mini_sets.local_steps {
            None => None,
            Some(steps) => {
                let name = match settings.mini_sets.local_optimizer {
                    LocalOptimizerName::Momentum => OptimizerName::Sgd,
                    LocalOptimizerName::Adam => OptimizerName::Adam,
                };
                let local = optimizer(name, MOMENTUM);
                Some((steps, LocalTraining::new(local, settings.local_lr)?))
            }
        };
        Ok(Self { encoder, local, loss: CrossEntropyLossConfig::new().init(), device })
    }

    /// Returns the update of one mini-set.
    ///
    /// # Arguments
    ///
    /// - `copies`: number of rows of each image, which the model may move differently
    ///
    /// # Errors
    ///
    /// Returns [`DpError`] if the losses or the model are rejected.
    pub(super) fn of<M: Classifier<Inputs = Tensor<4>>>(
        &self,
        model: M,
        items: Vec<ImageItem>,
        copies: usize,
    ) -> Result<UnitUpdate, DpError> {
        let losses = |model: &M, items: Vec<ImageItem>| {
            let rows = items.into_iter().flat_map(|item| std::iter::repeat_n(item, copies));
            model.losses(&self.loss, self.encoder.batch(rows.collect(), &self.device))
        };
        match &self.local {
            None => {
                let losses = losses(&model, items);
                UnitUpdate::gradient(&model, losses)
            }
            Some((steps, training)) => {
                // One part of the mini-set per step, so that each image is used once.
                let part = items.len().div_ceil(*steps);
                let parts: Vec<Vec<ImageItem>> = items.chunks(part).map(<[_]>::to_vec).collect();
                training.run(model, parts, |model, items| Ok(losses(model, items)))
            }
        }
    }

    /// Returns the mean norms of the updates of public mini-sets.
    ///
    /// # Arguments
    ///
    /// - `model`: the network alone, which moves no images: the values of a public image belong to
    ///   no step, and a resumed run has to measure the same norms
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] without public images, and [`TrainError::Privacy`] if an
    /// update is rejected or has other parameters than the groups.
    pub(super) fn public_norms<M: Classifier<Inputs = Tensor<4>>>(
        &self,
        model: &M,
        groups: ParameterGroups,
        data: &BatchData,
        mini_set_size: usize,
    ) -> Result<PublicNorms, TrainError> {
        let public = data.public.as_ref().ok_or_else(|| {
            TrainError::option("--public-data", "must be given for a policy that measures norms")
        })?;
        let units = public.batches(mini_set_size).truncated(PUBLIC_UNITS);
        Ok(public_update_norms(groups, &units, model, |copy, items| {
            self.of(copy, items.clone(), 1)
        })?)
    }
}
