//! What a mini-set contributes to a step.

use burn::data::dataloader::batcher::Batcher;
use burn::optim::SgdConfig;
use burn::optim::momentum::MomentumConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::PublicNorms;
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp::model::ParameterGroups;
use burn_dp::updates::{LocalTraining, UnitUpdate, private_copy};

use super::BatchSettings;
use super::data::BatchData;
use crate::data::{ImageBatcher, ImageItem};
use crate::models::{BnLeNet5, Classifier};
use crate::training::TrainError;

/// Public units whose norms the layerwise thresholds follow.
const PUBLIC_UNITS: usize = 100;

/// How the update of a mini-set is computed.
pub(super) struct Updates {
    encoder: ImageBatcher,
    /// Number of local steps, in general batch clipping.
    local: Option<(usize, LocalTraining)>,
    loss: CrossEntropyLoss,
    /// Where it is computed.
    pub(super) device: Device,
}

impl Updates {
    /// The gradient, or what local steps change, on a device of training.
    ///
    /// # Errors
    ///
    /// As [`LocalTraining::new`].
    pub(super) fn new(
        settings: &BatchSettings,
        encoder: ImageBatcher,
        device: Device,
    ) -> Result<Self, TrainError> {
        let local = match settings.local {
            None => None,
            Some((steps, lr)) => {
                let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
                let sgd = SgdConfig::new().with_momentum(Some(momentum)).init();
                Some((steps, LocalTraining::new(sgd, lr)?))
            }
        };
        Ok(Self { encoder, local, loss: CrossEntropyLossConfig::new().init(), device })
    }

    /// What one mini-set contributes.
    ///
    /// # Errors
    ///
    /// As [`UnitUpdate::gradient`] and [`LocalTraining::run`].
    pub(super) fn of(&self, model: BnLeNet5, items: Vec<ImageItem>) -> Result<UnitUpdate, DpError> {
        let losses = |model: &BnLeNet5, items: Vec<ImageItem>| {
            let batch = self.encoder.batch(items, &self.device);
            self.loss.forward(model.forward(batch.inputs), batch.targets)
        };
        match &self.local {
            None => {
                let losses = losses(&model, items);
                UnitUpdate::gradient(&model, losses)
            }
            Some((steps, training)) => {
                // Part after part of the mini-set, so that every image is used once.
                let part = items.len().div_ceil(*steps);
                let parts: Vec<Vec<ImageItem>> = items.chunks(part).map(<[_]>::to_vec).collect();
                training.run(model, parts, |model, items| Ok(losses(model, items)))
            }
        }
    }

    /// The mean norms of the updates of public mini-sets.
    ///
    /// # Errors
    ///
    /// As [`UnitUpdate::add_to_public_norms`].
    pub(super) fn public_norms(
        &self,
        model: &BnLeNet5,
        groups: ParameterGroups,
        data: &BatchData,
        mini_set_size: usize,
    ) -> Result<PublicNorms, DpError> {
        let mut norms = PublicNorms::new(groups);
        let units = data.public.chunks(mini_set_size.min(data.public.len()));
        for items in units.take(PUBLIC_UNITS) {
            let update = self.of(private_copy(model), items.to_vec())?;
            update.add_to_public_norms(&mut norms, model)?;
        }
        Ok(norms)
    }
}
