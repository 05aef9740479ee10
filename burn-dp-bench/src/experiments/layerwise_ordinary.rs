//! Ordinary training of the networks of batch clipping, for comparison.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::PublicData;
use burn_dp::clipping::PublicNorms;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::model::ParameterGroups;
use burn_dp::updates::{UnitUpdate, public_update_norms};
use burn_dp_examples::data::{ImageBatcher, ImageItem, ItemDataset};
use burn_dp_examples::models::{Augmented, Classifier};
use burn_dp_examples::training::batch_clipping::{BatchData, BatchModel, with_public_statistics};
use burn_dp_examples::training::{Augmentation, Evaluation, TrainError};
use serde::{Deserialize, Serialize};

use super::layerwise::{BATCH, LR_DECAY, Setting};
use super::measured::Measured;

/// Public mini-sets on which norms are measured.
const NORM_UNITS: usize = 30;

/// The results of ordinary training.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// Measures ordinary training with steps of [`BATCH`] images, once for each seed.
pub(super) fn ordinary(
    measured: &mut Measured,
    setting: &Setting,
) -> Result<Vec<Ordinary>, TrainError> {
    let mut runs = Vec::new();
    for seed in measured.seeds.clone() {
        let data = setting.data(measured, seed)?;
        let run = |device: &Device| Ordinary::train(setting, &data, seed, device);
        runs.push(measured.measure(&format!("ordinary, {setting:?}, {seed}"), run)?);
    }
    Ok(runs)
}

/// Measures the test accuracies of ordinary training with steps of this many images, one for each
/// seed, with the running statistics of BatchNorm.
pub(super) fn accuracies(
    measured: &mut Measured,
    setting: &Setting,
    images: usize,
) -> Result<Vec<f64>, TrainError> {
    let mut accuracies = Vec::new();
    for seed in measured.seeds.clone() {
        let data = setting.data(measured, seed)?;
        let run = |device: &Device| -> Result<f64, TrainError> {
            let model = trained(setting, &data, images, seed, device, |_| Ok(()))?;
            Ok(Evaluation::of(&model, &data.encoder, &data.test, device).accuracy)
        };
        let name = format!("ordinary, {images} images, {setting:?}, {seed}");
        accuracies.push(measured.measure(&name, run)?);
    }
    Ok(accuracies)
}

impl Ordinary {
    /// Trains without privacy, and measures the norms of the layers on public mini-sets.
    fn train(
        setting: &Setting,
        data: &BatchData,
        seed: u64,
        device: &Device,
    ) -> Result<Self, TrainError> {
        let on = device.clone().autodiff();
        let encoder = data.encoder;
        let public = data.public.as_ref().ok_or_else(|| {
            TrainError::option("--data-dir", "has no public images; give another folder")
        })?;
        let (mut layers, mut measured) = (Vec::new(), Vec::new());
        let measure = |model: &BatchModel| -> Result<(), TrainError> {
            let groups = ParameterGroups::per_layer(model)?;
            layers = groups.names().to_vec();
            measured.push(norms(model, &groups, encoder, public, &on)?.means());
            Ok(())
        };
        let model = trained(setting, data, BATCH, seed, device, measure)?;
        let accuracy =
            |model: &BatchModel| Evaluation::of(model, &encoder, &data.test, device).accuracy;
        Ok(Self {
            running_accuracy: accuracy(&model),
            public_accuracy: accuracy(&with_public_statistics(&model, data, &on)),
            layers,
            norms: measured,
        })
    }
}

/// Trains without privacy.
///
/// # Arguments
///
/// - `images`: number of images in a step
/// - `observe`: is called before the first epoch and after each epoch
fn trained(
    setting: &Setting,
    data: &BatchData,
    images: usize,
    seed: u64,
    device: &Device,
    mut observe: impl FnMut(&BatchModel) -> Result<(), TrainError>,
) -> Result<BatchModel, TrainError> {
    device.seed(seed);
    let on = device.clone().autodiff();
    let network = setting.model.init(data.encoder.shape.channels, data.classes, &on);
    let mut model = Augmentation::of(setting.augmentation.as_ref(), network)?;
    observe(&model.network)?;
    let loader = DataLoaderBuilder::new(data.encoder)
        .batch_size(images)
        .shuffle(seed)
        .set_device(on)
        .build(ItemDataset::new(data.private.clone()));
    let (mut optimizer, mut lr) = (SgdConfig::new().init(), setting.lr);
    for _ in 0..setting.epochs {
        for batch in loader.iter() {
            let gradients = model.mean_loss(batch?).backward();
            let gradients = GradientsParams::from_grads(gradients, &model);
            model = optimizer.step(lr, model, gradients);
        }
        lr *= LR_DECAY;
        observe(&model.network)?;
    }
    let Augmented { network, .. } = model;
    Ok(network)
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
