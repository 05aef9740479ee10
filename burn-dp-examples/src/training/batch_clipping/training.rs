//! The training loop over mini-sets.

use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::model::ParameterGroups;
use burn_dp::optim::{DpOptimizer, PrivacyPlan, Sparsifier};
use burn_dp::updates::{MiniSets, public_statistics};

use super::data::BatchData;
use super::policy::{followed, policy};
use super::updates::Updates;
use super::{BatchFigures, BatchModel, BatchSettings, EpochFigures};
use crate::models::{Augmented, Classifier};
use crate::training::budget::within_budget;
use crate::training::checkpoints::Checkpoints;
use crate::training::{Augmentation, Evaluation, TrainError, typed};

/// Number of images in a public batch.
const PUBLIC_BATCH: usize = 64;

/// Number of public batches that a model's statistics for inference come from. The initial running
/// averages have the weight 0.9^50 = 0.5 % after them.
const PUBLIC_BATCHES: usize = 50;

/// A training run that has been checked and can start or continue.
pub(super) struct BatchTraining<'a> {
    settings: &'a BatchSettings,
    data: &'a BatchData,
    device: &'a Device,
    sets: MiniSets,
    updates: Updates,
    /// The groups whose public norms the policy follows, if it follows any.
    followed: Option<ParameterGroups>,
    model: Augmented<BatchModel>,
    optim: DpOptimizer,
}

impl<'a> BatchTraining<'a> {
    /// Creates the plan of a model, and reads the last checkpoint if the run is resumed. Writes
    /// nothing.
    ///
    /// # Arguments
    ///
    /// - `checkpoints`: the checkpoints, with the step at which the run starts
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] or [`TrainError::Privacy`] if the settings do not fit the
    /// data, or if there is something to resume and the run is not resumed, or vice versa.
    pub(super) fn prepare(
        model: BatchModel,
        settings: &'a BatchSettings,
        data: &'a BatchData,
        device: &'a Device,
        checkpoints: Option<&Checkpoints>,
    ) -> Result<Self, TrainError> {
        let sets = settings.sets(data.private.len())?;
        let updates = Updates::new(settings, data.encoder, device.clone().autodiff())?;
        let public_norms = |groups: ParameterGroups| {
            updates.public_norms(&model, groups, data, settings.mini_sets.mini_set_size)
        };
        let steps_per_epoch = settings.steps_per_epoch(&sets);
        let clipping = policy(settings, &model, steps_per_epoch, public_norms)?;
        let followed = followed(settings, &*clipping)?;
        let plan = settings.plan(&sets, clipping)?;
        let model = Augmentation::of(settings.augmentation.as_ref(), model)?;
        let inner = SgdConfig::new().init();
        let (optim, model) = match checkpoints {
            Some(checkpoints) => checkpoints.begin_or_resume(plan, inner, model)?,
            None => (plan.optimizer(inner), model),
        };
        // A checkpoint holds the sparsifier of the interrupted run.
        let mut optim = match settings.mini_sets.sparsify.filter(|_| optim.sparsifier().is_none()) {
            Some(window) => optim
                .with_sparsifier(Sparsifier::new(window, settings.mini_sets.sparsify_factor)?)?,
            None => optim,
        };
        if let Some(public) = data.public.as_ref().filter(|_| settings.has_statistics()) {
            optim.name_public_data(public);
        }
        Ok(Self { settings, data, device, sets, updates, followed, model, optim })
    }

    /// Returns the number of steps in a pass over the data.
    pub(super) fn steps_per_epoch(&self) -> usize {
        self.settings.steps_per_epoch(&self.sets)
    }

    /// Returns the number of earlier steps.
    pub(super) fn first_step(&self) -> usize {
        self.optim.next_step() as usize
    }

    /// Returns the plan.
    pub(super) fn plan(&self) -> &PrivacyPlan {
        self.optim.plan()
    }

    /// Trains on the private images, and measures after each epoch.
    ///
    /// # Arguments
    ///
    /// - `checkpoints`: where a checkpoint is saved before the first epoch, after each one and at
    ///   the end
    /// - `progress`: called after each step with its number, and again with the figures after each
    ///   epoch
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if a step is rejected or a checkpoint cannot be written.
    pub(super) fn train(
        self,
        checkpoints: Option<&Checkpoints>,
        mut progress: impl FnMut(usize, Option<&EpochFigures>),
    ) -> Result<(BatchModel, DpOptimizer, BatchFigures), TrainError> {
        let Self { settings, data, device, sets, updates, followed, mut model, mut optim } = self;
        if let Some(checkpoints) = checkpoints {
            checkpoints.begin(&model, &optim)?;
        }
        let steps_per_epoch = settings.steps_per_epoch(&sets);
        let sampler = optim.plan().sampler()?;
        let first = optim.next_step() as usize / steps_per_epoch;
        let (mut epochs, mut lr) =
            (Vec::new(), settings.lr * settings.mini_sets.lr_decay.powi(first as i32));
        let (mut time, mut since) = (Duration::ZERO, Instant::now());
        // The model with the statistics for inference, and how good it is.
        let measured = |model: &Augmented<BatchModel>| {
            let model = with_public_statistics(&model.network, data, &updates.device);
            let test = Evaluation::of(&model, &data.encoder, &data.test, device);
            (model, test)
        };
        let copies = settings.augmentation.map_or(1, |augmentation| augmentation.copies);
        let mut last = None;
        'epochs: for epoch in first + 1..=settings.epochs {
            for _ in 0..steps_per_epoch {
                last = None;
                let draw = sampler.draw(optim.next_step())?;
                optim.unit_updates(&model, &draw, |copy: Augmented<BatchModel>, set| {
                    let members = sets.members(set).iter().map(|&i| data.private[i].clone());
                    updates.of(copy, members.collect(), copies)
                })?;
                let stopped;
                (model, stopped) = within_budget(optim.step(lr, model, draw))?;
                if let Some(reason) = stopped {
                    print_line!("stopped: {reason}");
                    optim.discard();
                    break 'epochs;
                }
                progress(optim.next_step() as usize, None);
            }
            lr *= settings.mini_sets.lr_decay;
            if let Some(groups) = &followed {
                let size = settings.mini_sets.mini_set_size;
                let norms = updates.public_norms(&model.network, groups.clone(), data, size)?;
                optim.learn_from_public(&norms)?;
            }
            if let Some(checkpoints) = checkpoints
                && epoch < settings.epochs
            {
                checkpoints.save(&model, &optim)?;
            }
            time += since.elapsed();
            let (ready, test) = measured(&model);
            let epsilon = optim.privacy_spent(settings.privacy.delta)?.upper;
            let figures = EpochFigures {
                epoch,
                test_loss: test.loss,
                test_accuracy: test.accuracy,
                epsilon: epsilon.is_finite().then_some(epsilon),
            };
            progress(optim.next_step() as usize, Some(&figures));
            epochs.push(figures);
            last = Some((ready, test));
            since = Instant::now();
        }
        if let Some(checkpoints) = checkpoints {
            checkpoints.save(&model, &optim)?;
        }
        let (model, test) = last.unwrap_or_else(|| measured(&model));
        let epsilon = optim.privacy_spent(settings.privacy.delta)?.upper;
        let share = |sparsifier: &Sparsifier| sparsifier.fixed() as f64 / model.num_params() as f64;
        let figures = BatchFigures {
            dataset: data.name.clone(),
            model: typed(settings.model),
            clipping: optim.ledger().header().clipping.clone(),
            mini_set_size: settings.mini_sets.mini_set_size,
            mini_sets: settings.mini_sets.mini_sets,
            augmentation: settings.augmentation,
            unit: optim.plan().unit().to_string(),
            relation: optim.plan().relation().to_string(),
            noise_multiplier: optim.plan().noise_multiplier(),
            delta: settings.privacy.delta,
            steps: optim.next_step(),
            test_accuracy: test.accuracy,
            test_loss: test.loss,
            epsilon: epsilon.is_finite().then_some(epsilon),
            epochs,
            fixed_share: optim.sparsifier().map(share),
            train_seconds: time.as_secs_f64(),
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok((model, optim, figures))
    }
}

/// Initializes the network of the settings.
pub(super) fn network(settings: &BatchSettings, data: &BatchData, device: &Device) -> BatchModel {
    // This only affects the initial weights, because noise and sampling have their own generators.
    device.seed(settings.seed);
    let channels = data.encoder.shape.channels;
    settings.model.init(channels, data.classes, &device.clone().autodiff())
}

/// Trains without checkpoints and files, and returns the figures.
///
/// # Errors
///
/// Returns [`TrainError::Option`] or [`TrainError::Privacy`] if the settings do not fit the data or
/// a step is rejected.
pub fn figures(
    settings: &BatchSettings,
    data: &BatchData,
    device: &Device,
) -> Result<BatchFigures, TrainError> {
    let model = network(settings, data, device);
    let training = BatchTraining::prepare(model, settings, data, device, None)?;
    Ok(training.train(None, |_, _| ())?.2)
}

/// Returns the model for release: the statistics of BatchNorm come from public images. Without
/// them, there is no BatchNorm.
///
/// # Arguments
///
/// - `trained`: the device of the model, with automatic differentiation
pub fn with_public_statistics(
    model: &BatchModel,
    data: &BatchData,
    trained: &Device,
) -> BatchModel {
    let Some(public) = &data.public else { return model.clone() };
    public_statistics(
        model.clone(),
        &public.batches(PUBLIC_BATCH),
        PUBLIC_BATCHES,
        |model, items| {
            let batch = data.encoder.batch(items.clone(), trained);
            let _ = model.forward(batch.inputs);
        },
    )
}
