//! Ordinary training, without privacy.

use burn::data::dataloader::DataLoaderBuilder;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use burn_dp::optim::WeightAverage;

use super::IndividualSettings;
use super::private::FinishedStep;
use crate::data::{Batch, Encoder, ItemDataset};
use crate::models::Classifier;
use crate::training::TrainError;

/// Trains on shuffled batches and calls `after_step` after each of them. Returns the model, and the
/// average of its weights if the settings request it.
///
/// # Errors
///
/// Returns the errors of `after_step`.
pub(super) fn train<E: Encoder, M: Classifier<Inputs = E::Inputs>>(
    mut model: M,
    mut optimizer: ModuleOptimizer,
    encoder: &E,
    train: &ItemDataset<E::Item>,
    settings: &IndividualSettings,
    device: &Device,
    mut after_step: impl FnMut(&M, FinishedStep) -> Result<(), TrainError>,
) -> Result<(M, Option<WeightAverage>), TrainError> {
    let mut average = settings.weight_average()?;
    let loader = DataLoaderBuilder::new(settings.augmented(encoder)?)
        .batch_size(settings.batch_size)
        .shuffle(settings.data.seed)
        .set_device(device.clone())
        .build(train.clone());
    let cross_entropy = CrossEntropyLossConfig::new().init(device);
    let steps = settings.steps(train.items().len());
    let mut number = 0;
    while number < steps {
        for batch in loader.iter().take(steps - number) {
            let Batch { inputs, targets } = batch?;
            let loss = cross_entropy.forward(model.forward(inputs), targets);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(settings.lr_of_step(number, steps), model, gradients);
            number += 1;
            if let Some(average) = &mut average {
                average.update(&model)?;
            }
            after_step(&model, FinishedStep { number, epsilon: None })?;
        }
    }
    Ok((model, average))
}
