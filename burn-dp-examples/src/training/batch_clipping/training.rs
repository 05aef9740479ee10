//! A training with mini-sets, from settings and images to a model.

use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::model::ParameterGroups;
use burn_dp::optim::DpOptimizer;
use burn_dp::updates::{MiniSets, public_statistics};

use super::data::BatchData;
use super::updates::Updates;
use super::{BatchFigures, BatchSettings, EpochFigures};
use crate::models::{BnLeNet5, Classifier};
use crate::training::checkpoints::Checkpoints;
use crate::training::options::typed;
use crate::training::{Evaluation, TrainError};

/// Images of a public batch.
const PUBLIC_BATCH: usize = 64;

/// Public batches whose statistics a model gets for inference: the running averages that it began with
/// weigh 0.9^100 after them.
const PUBLIC_BATCHES: usize = 100;

/// A training that has been checked and may begin, or go on.
pub(crate) struct BatchTraining<'a> {
    settings: &'a BatchSettings,
    data: &'a BatchData,
    device: &'a Device,
    sets: MiniSets,
    updates: Updates,
    /// The groups whose public norms the policy follows, if it does.
    followed: Option<ParameterGroups>,
    model: BnLeNet5,
    optim: DpOptimizer,
}

impl<'a> BatchTraining<'a> {
    /// Makes the model and the plan, and reads the checkpoint to go on from, if one is wanted. Writes
    /// nothing.
    ///
    /// # Arguments
    ///
    /// - `resumed`: where the last checkpoint lies, to go on from it
    ///
    /// # Errors
    ///
    /// When the settings do not fit the data, and when there is nothing to resume, or with other
    /// settings.
    pub(crate) fn prepare(
        settings: &'a BatchSettings,
        data: &'a BatchData,
        device: &'a Device,
        resumed: Option<&Checkpoints>,
    ) -> Result<Self, TrainError> {
        let sets = settings.sets(data.private.len())?;
        // Of the initial weights only: noise and sampling have generators of their own.
        device.seed(settings.seed);
        let trained = device.clone().autodiff();
        let model = settings.model.init(&trained);
        let updates = Updates::new(settings, data.encoder, trained)?;
        let public_norms = |groups: ParameterGroups| {
            updates.public_norms(&model, groups, data, settings.mini_set_size)
        };
        let steps_per_epoch = settings.steps_per_epoch(&sets);
        let clipping = settings.clipping(&model, steps_per_epoch, public_norms)?;
        let followed = settings.followed(&*clipping)?;
        let plan = settings.plan(&sets, clipping)?;
        let inner = SgdConfig::new().init();
        let (optim, model) = match resumed {
            Some(checkpoints) => checkpoints.resume(plan, inner, model)?,
            None => (plan.optimizer(inner), model),
        };
        Ok(Self { settings, data, device, sets, updates, followed, model, optim })
    }

    /// Trains on the private images, and measures after each epoch.
    ///
    /// # Arguments
    ///
    /// - `checkpoints`: where one is saved after each epoch but the last
    ///
    /// # Errors
    ///
    /// Those of the steps, and when a checkpoint cannot be written.
    pub(crate) fn train(
        self,
        checkpoints: Option<&Checkpoints>,
        mut after_epoch: impl FnMut(&EpochFigures),
    ) -> Result<(BnLeNet5, DpOptimizer, BatchFigures), TrainError> {
        let Self { settings, data, device, sets, updates, followed, mut model, mut optim } = self;
        if let Some(checkpoints) = checkpoints {
            checkpoints.begin()?;
        }
        let steps_per_epoch = settings.steps_per_epoch(&sets);
        let sampler = optim.plan().sampler()?;
        let first = optim.next_step() as usize / steps_per_epoch;
        let (mut epochs, mut lr) = (Vec::new(), settings.lr * settings.lr_decay.powi(first as i32));
        let (mut time, mut since) = (Duration::ZERO, Instant::now());
        let measured = |model: &BnLeNet5| Evaluation::of(model, &data.encoder, &data.test, device);
        'epochs: for epoch in first + 1..=settings.epochs {
            for _ in 0..steps_per_epoch {
                let draw = sampler.draw(optim.next_step())?;
                optim.unit_updates(&model, draw.private_indices(), |copy: BnLeNet5, &set| {
                    let members = sets.members(set).iter().map(|&i| data.private[i].clone());
                    updates.of(copy, members.collect())
                })?;
                model = match optim.step(lr, model, draw) {
                    Ok(model) => model,
                    Err(refused) if matches!(refused.error(), DpError::BudgetExhausted { .. }) => {
                        println!("stopped: {refused}");
                        model = refused.into_model();
                        break 'epochs;
                    }
                    Err(refused) => return Err(DpError::from(refused).into()),
                };
            }
            lr *= settings.lr_decay;
            if let Some(groups) = &followed {
                let size = settings.mini_set_size;
                let norms = updates.public_norms(&model, groups.clone(), data, size)?;
                optim.learn_from_public(&norms)?;
            }
            if let Some(checkpoints) = checkpoints
                && epoch < settings.epochs
            {
                checkpoints.save(&model, &optim)?;
            }
            time += since.elapsed();
            let test = measured(&with_public_statistics(&model, data, &updates.device));
            let epsilon = optim.privacy_spent(settings.delta)?.upper;
            let figures = EpochFigures {
                epoch,
                test_loss: test.loss,
                test_accuracy: test.accuracy,
                epsilon: epsilon.is_finite().then_some(epsilon),
            };
            after_epoch(&figures);
            epochs.push(figures);
            since = Instant::now();
        }
        let model = with_public_statistics(&model, data, &updates.device);
        let test = measured(&model);
        let epsilon = optim.privacy_spent(settings.delta)?.upper;
        let figures = BatchFigures {
            dataset: data.name.clone(),
            model: typed(settings.model),
            clipping: optim.ledger().header().clipping.clone(),
            mini_set_size: settings.mini_set_size,
            mini_sets: settings.mini_sets,
            unit: optim.plan().unit().to_string(),
            relation: optim.plan().relation().to_string(),
            noise_multiplier: optim.plan().noise_multiplier(),
            delta: settings.delta,
            steps: optim.next_step(),
            test_accuracy: test.accuracy,
            epsilon: epsilon.is_finite().then_some(epsilon),
            epochs,
            train_seconds: time.as_secs_f64(),
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok((model, optim, figures))
    }
}

/// The model as it is released: what its BatchNorms need for inference comes from public images.
fn with_public_statistics(model: &BnLeNet5, data: &BatchData, trained: &Device) -> BnLeNet5 {
    let batches = data.public.chunks(PUBLIC_BATCH).cycle().take(PUBLIC_BATCHES);
    public_statistics(model.clone(), batches, |model, items| {
        let batch = data.encoder.batch(items.to_vec(), trained);
        let _ = model.forward(batch.inputs);
    })
}
