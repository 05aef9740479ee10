//! The private training that all tasks share.

use std::time::Duration;

use burn::tensor::{Device, Tensor};
use burn_dp::check_independence;
use burn_dp::grads::PrivateBackward;
use burn_dp::model::TrainableParameters;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig};
use burn_dp::sampling::PrivateDataLoaderBuilder;
use burn_dp_accountant::UnitOfPrivacy;
use burn_dp_examples::training::place::TASK;
use burn_dp_examples::training::progress::{Progress, announce, counted};
use burn_dp_examples::training::{
    Checkpoints, EarlierLedgers, Output, Precision, PrivacySettings, TrainError, checks, device,
    optimizer, typed, within_budget,
};
use serde_json::{Value, json};

use super::base::{self, checksums};
use super::figures::{EpochRow, FinetuneFigures, peak_memory};
use super::options::{FinetuneOptions, Way};
use super::read::trained_device;
use super::split::Split;
use super::task::{PROBED, Task};
use super::units::{Source, UnitBatcher, batches};

/// Default of `--epsilon` and `--delta`.
const EPSILON: f64 = 8.0;
const DELTA: f64 = 1e-5;

/// The variable with the step after which a test ends the process.
const ABORT_AFTER: &str = "BURN_DP_TEST_ABORT_AFTER_STEP";

/// A run before its model is known.
pub(super) struct FinetuneRun<'a> {
    pub(super) task: &'static str,
    pub(super) options: &'a FinetuneOptions,
    pub(super) privacy: PrivacySettings,
    pub(super) output: Output,
    device: Device,
    way: Way,
    lr: f64,
    pub(super) source: Source,
    settings: Value,
}

/// A trained model.
pub(super) struct Trained<M> {
    pub(super) model: M,
    pub(super) optim: DpOptimizer,
    pub(super) checkpoints: Checkpoints,
    pub(super) figures: FinetuneFigures,
}

impl<'a> FinetuneRun<'a> {
    /// Checks the options. Writes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if a number is impossible.
    pub(super) fn new(
        task: &'static str,
        options: &'a FinetuneOptions,
        way: Way,
        source: Source,
    ) -> Result<Self, TrainError> {
        let training = &options.training;
        checks::at_least_one([
            ("--batch-size", training.batch_size),
            ("--physical-batch-size", training.physical_batch_size),
            ("--epochs", training.epochs),
            ("--steps", training.steps.unwrap_or(1)),
        ])?;
        checks::countable(training.epochs)?;
        let lr = training.lr.unwrap_or(if way == Way::Full { 5e-4 } else { 5e-3 });
        checks::positive([("--lr", lr), ("--max-grad-norm", training.max_grad_norm)])?;
        base::check_place(&options.model, &options.run.output)?;
        let privacy = PrivacySettings::new(&options.privacy, Some(EPSILON), DELTA)?;
        let name = if source.user_rows.is_some() { "users" } else { "rows" };
        privacy.check_delta(source.units, name)?;
        source.check(training.batch_size)?;
        let chosen = json!({
            "the checksums of the model": checksums(&options.model),
            TASK: task, "train": typed(way), "lr": lr,
            "epsilon": privacy.epsilon, "delta": privacy.delta,
            "noise-multiplier": privacy.noise_multiplier, "insecure-seed": privacy.insecure_seed,
            "model": options.model, "backend": typed(options.run.backend),
        });
        // The learning rate may be absent.
        let parts = [json!(training), source.settings.clone(), chosen];
        let parts = parts.iter().filter_map(Value::as_object).cloned();
        let settings = Value::Object(parts.flatten().collect());
        Ok(Self {
            task,
            options,
            privacy,
            output: Output::new(&options.run)?,
            device: device(options.run.backend)?,
            way,
            lr,
            source,
            settings,
        })
    }

    /// Returns the device, without differentiation.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    fn steps(&self) -> usize {
        let training = &self.options.training;
        training.steps.unwrap_or(training.epochs * self.steps_per_epoch())
    }

    fn steps_per_epoch(&self) -> usize {
        self.source.units.div_ceil(self.options.training.batch_size)
    }

    /// Trains to the end of the plan or of the budget, with a checkpoint and an evaluation after
    /// each pass over the data.
    ///
    /// # Arguments
    ///
    /// - `all`: number of values of the pre-trained model, which `model` may be a part of
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if the noise cannot be calibrated, the model mixes samples,
    /// or a step is rejected, and the errors of the checkpoints.
    pub(super) fn train<T: Task>(
        &self,
        task: &T,
        model: T::Model,
        all: usize,
        split: Split<T::Sample>,
    ) -> Result<Trained<T::Model>, TrainError> {
        let options = self.options;
        let (training, trained) = (&options.training, trained_device(options)?);
        let (is_user, rows) = (self.source.user_rows.is_some(), self.source.user_rows.unwrap_or(1));
        let config = PrivacyPlanConfig::new(self.source.units, training.batch_size as f64)
            .with_max_grad_norm(training.max_grad_norm);
        let config = if is_user { config.with_unit(UnitOfPrivacy::User) } else { config };
        let earlier = &options.privacy.earlier_ledger;
        let config = EarlierLedgers::read(earlier, &options.run.output)?.before(config);
        let plan = self.privacy.plan(config, self.steps() as u64)?;
        check_independence(&model, &task.made_up(PROBED), |model, samples| {
            task.losses(model, &samples, &trained)
        })?;
        let parameters = [TrainableParameters::of(&model)?.num_values(), all];

        // Before a checkpoint replaces the pre-trained values.
        let initial = task.evaluate(&model, &split.test, &self.device);
        let checkpoints =
            Checkpoints::new(&self.output.folder, &self.settings)?.with_start(options.start());
        let inner = optimizer(training.optimizer, 0.9);
        let (optim, mut model) = checkpoints.begin_or_resume(plan, inner, model)?;
        let mut optim = optim
            .with_backward(PrivateBackward::new().with_group_size(rows))
            .with_independence_check(self.privacy.independence_check);
        if training.precision != Precision::F32 {
            optim = optim.with_precision(training.precision.dtype());
        }
        self.output.begin()?;
        checkpoints.begin(&model, &optim)?;
        let subject = format!(
            "{}, {}: {} of {} parameters, {} of {}",
            options.model.display(),
            typed(self.way),
            parameters[0],
            parameters[1],
            counted(self.steps(), "step"),
            counted(training.batch_size, if is_user { "user" } else { "row" })
        );
        announce(&subject, Some((optim.plan(), self.privacy.delta)))?;
        self.source.print_held_out();
        let first = optim.next_step() as usize;
        let pass = ("epoch", self.steps_per_epoch());
        let mut progress = Progress::start(first, self.steps(), pass, super::figures::columns());
        let (test_rows, train, test) = (split.test.len(), split.train, split.test);
        let filler = task.made_up(1).remove(0);
        let builder = PrivateDataLoaderBuilder::new(UnitBatcher { rows, filler });
        let builder = builder.with_device(trained.clone());
        let batches = batches(builder, train, is_user.then_some(rows), &optim, self.steps())?;
        let mut measurements = Vec::new();
        let (mut rate, mut measured, mut seconds) = (0.0, first, Duration::ZERO);
        for batch in batches.skip_to(optim.next_step())? {
            let batch = batch?;
            optim.backward_batch(
                &model,
                &batch,
                training.physical_batch_size,
                |model, batch| {
                    let losses = task.losses(model, &batch.samples, &trained);
                    losses * Tensor::<1>::from_floats(batch.weights.as_slice(), &trained)
                },
            )?;
            let done = optim.next_step() as f64 / self.steps() as f64;
            let stopped;
            (model, stopped) = within_budget(optim.step(self.lr * (1.0 - done), model, batch))?;
            if stopped.is_some() {
                optim.discard();
                break;
            }
            let number = optim.next_step() as usize;
            abort_after(number);
            progress.step(number);
            let ends_epoch = number.is_multiple_of(self.steps_per_epoch());
            if !ends_epoch && number < self.steps() {
                continue;
            }
            progress.pause();
            if number < self.steps() {
                checkpoints.save(&model, &optim)?;
            }
            let evaluation = task.evaluate(&model, &test, &self.device);
            let lap = (progress.training() - seconds).as_secs_f64().max(1e-9);
            // The true number of rows or tokens is private.
            rate = ((number - measured) * training.batch_size) as f64 / lap;
            measured = number;
            seconds = progress.training();
            let spent = optim.privacy_spent(self.privacy.delta)?.upper;
            let row = EpochRow {
                epoch: number as f64 / self.steps_per_epoch() as f64,
                step: number,
                evaluation,
                epsilon: spent.is_finite().then_some(spent),
                units_per_second: rate,
            };
            progress.row(row.cells(seconds));
            measurements.push(row);
        }
        let seconds = progress.finish();
        // From now on no step can be repeated: the key is erased when the model is written.
        checkpoints.save(&model, &optim)?;
        let spent = optim.privacy_spent(self.privacy.delta)?.upper;
        let evaluation = task.evaluate(&model, &test, &self.device);
        let figures = FinetuneFigures {
            task: self.task,
            model: options.model.clone(),
            train: typed(self.way),
            packed_base: training.packed_base.map(typed),
            classes: self.source.classes.clone(),
            parameters: parameters[1],
            trained_parameters: parameters[0],
            private: spent.is_finite(),
            unit: optim.plan().unit().to_string(),
            epsilon: spent.is_finite().then_some(spent),
            delta: self.privacy.delta,
            noise_multiplier: optim.plan().noise_multiplier(),
            sampling_probability: optim.plan().sampling_probability(),
            max_grad_norm: training.max_grad_norm,
            precision: typed(training.precision),
            steps: optim.next_step() as usize,
            expected_batch_size: training.batch_size,
            units: self.source.units,
            rows: [self.source.user_rows.is_none().then_some(self.source.rows), Some(test_rows)],
            before: initial,
            after: evaluation,
            perplexity: (self.task == "generate").then(|| evaluation.loss.exp()),
            generated: None,
            measurements,
            train_seconds: seconds.as_secs_f64(),
            units_per_second: rate,
            peak_memory_bytes: peak_memory(),
            optimizer: typed(training.optimizer),
            lr: self.lr,
            seed: training.seed,
            insecure_seed: self.privacy.insecure_seed,
            backend: typed(options.run.backend),
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok(Trained { model, optim, checkpoints, figures })
    }
}

/// Ends the process if this is the step that the variable names. Compiled only with debug
/// assertions.
fn abort_after(step: usize) {
    if cfg!(debug_assertions) && std::env::var(ABORT_AFTER).is_ok_and(|at| at == step.to_string()) {
        std::process::abort();
    }
}
