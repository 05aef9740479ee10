//! Batch clipping with adaptive layerwise clipping: what is trained, and on which images.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023.

use std::path::Path;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::PublicNorms;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::model::ParameterGroups;
use burn_dp::updates::{UnitUpdate, public_update_norms};
use burn_dp::{PublicData, PublicSource};
use burn_dp_examples::data::{
    DataError, ImageBatcher, ImageItem, ItemDataset, cifar10, digits, mnist,
};
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::batch_clipping::{
    BatchData, BatchFigures, BatchModel, BatchModelName, BatchPolicyName, BatchSettings, figures,
    with_public_statistics,
};
use burn_dp_examples::training::{Evaluation, TrainError};
use clap::ValueEnum;

use super::measured::Measured;
use super::trial::images;

/// Images to train and to test on: of the quick preset, and the maximum of the other.
const QUICK: [usize; 2] = [4_000, 2_000];
const PAPER: [usize; 2] = [60_000, 10_000];

/// Number of images in a step.
pub(super) const BATCH: usize = 64;

/// Factor of the learning rate after each epoch.
const LR_DECAY: f64 = 0.9;

/// Public mini-sets on which norms are measured.
const NORM_UNITS: usize = 30;

/// What is trained, with the settings of the paper or with settings for few images.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) model: BatchModelName,
    /// Name of the data set.
    pub(super) data: &'static str,
    pub(super) max_grad_norm: f64,
    /// The σ of the paper: the noise on each layer is 2 C_h σ.
    pub(super) sigma: f64,
    pub(super) lr: f64,
    pub(super) epochs: usize,
    pub(super) images: [usize; 2],
}

impl Setting {
    /// Returns the setting for the images that `measured` trains on: on CIFAR-10 ResNet-18, or the
    /// convolutional network with BatchNorm of the quick preset, and BN-LeNet-5 otherwise.
    pub(super) fn of(measured: &Measured) -> Result<Self, TrainError> {
        let data = match &measured.data_dir {
            None => digits::NAME,
            Some(folder) if is_cifar10(folder)? => cifar10::NAME,
            Some(_) => mnist::NAME,
        };
        let model = match data {
            cifar10::NAME => BatchModelName::BnConvnet,
            _ => BatchModelName::BnLenet5,
        };
        if measured.quick() {
            let (lr, epochs, images) = (0.2, 6, QUICK);
            return Ok(Self { model, data, max_grad_norm: 0.5, sigma: 0.02, lr, epochs, images });
        }
        let (model, max_grad_norm, sigma) = match data {
            cifar10::NAME => (BatchModelName::BnResnet18, 0.095, 0.01875),
            _ => (model, 0.2, 0.5),
        };
        Ok(Self { model, data, max_grad_norm, sigma, lr: 0.025, epochs: 50, images: PAPER })
    }

    /// Returns the images. As in the paper, the last tenth of the training images is public and is
    /// not trained on: all data sets of the experiments are synthetic or published.
    pub(super) fn data(&self, measured: &Measured, seed: u64) -> Result<BatchData, TrainError> {
        let [train, test] = self.images;
        let mut splits = match &measured.data_dir {
            Some(folder) if self.data == cifar10::NAME => {
                cifar10::read(folder)?.truncated(train, test)
            }
            _ => images(measured, seed, self.images)?,
        };
        let mut items = splits.train.items().to_vec();
        let public = items.split_off(items.len() - items.len() / 10);
        let name = format!("{}, a tenth of the training images, not trained on", self.data);
        let source = match self.data {
            digits::NAME => PublicSource::generated(name),
            _ => PublicSource::published(name),
        };
        splits.train = ItemDataset::new(items);
        Ok(BatchData::new(splits, Some(source.data(public)?)))
    }

    /// Describes the training in a sentence.
    pub(super) fn sentence(&self) -> String {
        let model = self.model.to_possible_value();
        format!(
            "{} on {}{}, mini-sets of {BATCH}, {} epochs, learning rate {} times {LR_DECAY} after \
             each epoch",
            model.as_ref().map_or("a network", |model| model.get_name()),
            self.data,
            match self.data {
                digits::NAME => "",
                _ => ", without the paper's random crops and mirror images",
            },
            self.epochs,
            self.lr
        )
    }

    /// Returns the settings of private training by batch clipping.
    ///
    /// # Arguments
    ///
    /// - `noise`: the noise of the whole release divided by the σ of the paper
    pub(super) fn private(
        &self,
        policy: BatchPolicyName,
        noise: f64,
    ) -> Result<BatchSettings, TrainError> {
        let mut settings = BatchSettings::of_paper()?;
        (settings.model, settings.max_grad_norm) = (self.model, self.max_grad_norm);
        (settings.epochs, settings.lr) = (self.epochs, self.lr);
        let mini_sets = &mut settings.mini_sets;
        (mini_sets.policy, mini_sets.lr_decay) = (policy, LR_DECAY);
        (mini_sets.mini_set_size, mini_sets.mini_sets) = (BATCH, 1);
        // The sensitivity is 2 C.
        settings.privacy.noise_multiplier = Some(2.0 * self.sigma * noise);
        Ok(settings)
    }

    /// Returns the noise of the whole release over the σ of the paper, if the noise on each of L
    /// layers is 2 C_h σ: 1/√L.
    pub(super) fn split(&self, data: &BatchData) -> Result<f64, TrainError> {
        let layers = self.model.layers(data.encoder.shape.channels, data.classes)?;
        Ok(1.0 / (layers as f64).sqrt())
    }

    /// Returns the settings of layerwise clipping, where the noise on each layer is 2 C_h σ.
    pub(super) fn layerwise(&self, data: &BatchData) -> Result<BatchSettings, TrainError> {
        self.private(BatchPolicyName::Layerwise, self.split(data)?)
    }

    /// Trains without privacy. Returns the accuracies at the end, and the norms of the gradients of
    /// the layers on public mini-sets after each epoch.
    pub(super) fn ordinary(
        &self,
        data: &BatchData,
        seed: u64,
        device: &Device,
    ) -> Result<Ordinary, TrainError> {
        device.seed(seed);
        let trained = device.clone().autodiff();
        let mut model = self.model.init(data.encoder.shape.channels, data.classes, &trained);
        let groups = ParameterGroups::per_layer(&model)?;
        let layers = groups.names().to_vec();
        let encoder = data.encoder;
        let public = data.public.as_ref().ok_or_else(|| {
            TrainError::option("--data-dir", "has no public images; give another folder")
        })?;
        let measure = |model: &BatchModel| norms(model, &groups, encoder, public, &trained);
        let mut measured = vec![measure(&model)?.means()];
        let loader = DataLoaderBuilder::new(encoder)
            .batch_size(BATCH)
            .shuffle(seed)
            .set_device(trained.clone())
            .build(ItemDataset::new(data.private.clone()));
        let (mut optimizer, mut lr) = (SgdConfig::new().init(), self.lr);
        for _ in 0..self.epochs {
            for batch in loader.iter() {
                let gradients = model.mean_loss(batch?).backward();
                let gradients = GradientsParams::from_grads(gradients, &model);
                model = optimizer.step(lr, model, gradients);
            }
            lr *= LR_DECAY;
            measured.push(measure(&model)?.means());
        }
        let accuracy =
            |model: &BatchModel| Evaluation::of(model, &encoder, &data.test, device).accuracy;
        Ok(Ordinary {
            running_accuracy: accuracy(&model),
            public_accuracy: accuracy(&with_public_statistics(&model, data, &trained)),
            layers,
            norms: measured,
        })
    }
}

/// Trains privately.
pub(super) fn train(
    mut settings: BatchSettings,
    data: &BatchData,
    seed: u64,
    device: &Device,
) -> Result<BatchFigures, TrainError> {
    settings.seed = seed;
    figures(&settings, data, device)
}

/// The results of ordinary training.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Ordinary {
    /// Test accuracy with the running statistics of BatchNorm.
    pub(super) running_accuracy: f64,
    /// Test accuracy with statistics from public images, as in a private model.
    pub(super) public_accuracy: f64,
    /// Names of the layers.
    pub(super) layers: Vec<String>,
    /// Mean norms of the gradients of the layers, before the first epoch and after each epoch.
    pub(super) norms: Vec<Vec<f64>>,
}

/// Returns the mean norms of the gradients of public mini-sets.
fn norms(
    model: &BatchModel,
    groups: &ParameterGroups,
    encoder: ImageBatcher,
    public: &PublicData<ImageItem>,
    device: &Device,
) -> Result<PublicNorms, DpError> {
    let loss = CrossEntropyLossConfig::new().init();
    let units = public.batches(BATCH).truncated(NORM_UNITS);
    public_update_norms(groups.clone(), &units, model, |copy, items: &Vec<ImageItem>| {
        let losses = copy.losses(&loss, encoder.batch(items.clone(), device));
        UnitUpdate::gradient(&copy, losses)
    })
}

/// Returns whether the folder has CIFAR-10.
fn is_cifar10(folder: &Path) -> Result<bool, TrainError> {
    match cifar10::read(folder) {
        Ok(_) => Ok(true),
        Err(DataError::Missing { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
