//! Clips the rows and the units of a step, for an engine that one thread owns or several share.

use burn::module::Module;
use burn::tensor::Tensor;

use super::PrivacyEngine;
use super::forward::{Forward, Rows, computing};
use super::not_covered::PRODUCTS;
use crate::DpError;
use crate::clipping::{ClippedSum, Thresholds};
use crate::grads::{PrivateBackward, Probe};
use crate::model::has_training_batch_norm;
use crate::nn::{UnitScope, Units};
use crate::optim::Outcome;
use crate::optim::buffers::{BufferCheck, Extent};
use crate::sampling::DrawPart;
use crate::updates::{UnitUpdate, clip_updates_async};

/// Access to the engine of a run, whose [`BufferCheck`] has begun. Nothing is computed on a device
/// within a call.
pub(crate) trait EngineAccess {
    /// Calls `call` with the engine.
    fn with<T>(&mut self, call: impl FnOnce(&mut PrivacyEngine) -> T) -> T;

    /// Returns whether nothing more is released, so that nothing more has to be computed.
    fn is_over(&self) -> bool;

    /// Returns an error unless the units of `part` can be added to the step.
    fn check(&self, part: &DrawPart) -> Result<(), DpError>;

    /// Adds the clipped sum of the units of `part`.
    fn add(&mut self, part: DrawPart, sum: ClippedSum) -> Result<(), DpError>;
}

/// The engine of one thread.
impl EngineAccess for PrivacyEngine {
    fn with<T>(&mut self, call: impl FnOnce(&mut PrivacyEngine) -> T) -> T {
        call(self)
    }

    fn is_over(&self) -> bool {
        false
    }

    fn check(&self, part: &DrawPart) -> Result<(), DpError> {
        self.admission().check_part(part)
    }

    fn add(&mut self, part: DrawPart, sum: ClippedSum) -> Result<(), DpError> {
        self.accumulate(part, sum)
    }
}

/// Clips the physical batches of `rows`, each once. The values of one of them are compared between
/// different batches, if a test is due.
///
/// # Arguments
///
/// - `model`: the model that is trained
/// - `keep`: receives the output of each physical batch
pub(crate) async fn clip_rows<M: Module, O: Send + 'static, T>(
    run: &mut impl EngineAccess,
    model: &M,
    rows: Rows<'_, M, O, T>,
    mut keep: impl FnMut(T),
) -> Result<(), DpError> {
    let (function, source) = (rows.function, rows.batch.source());
    let (forward, precision, expected) = run.with(|engine| {
        let (backward, randomness) = (engine.backward.clone(), engine.layer_randomness());
        let forward = Forward { rows, backward, randomness };
        (forward, engine.precision, engine.plan.expected_batch_size)
    });
    let function = function.on(source, forward.backward.group_size(), precision);
    let computing = computing(model, precision)?;
    for physical in forward.physical_batches(expected)? {
        let (input, part) = physical?.into_parts();
        run.check(&part)?;
        // The rest of a logical batch can be too small to show a dependence.
        let usual = expected.min(forward.rows.physical_batch_size as f64);
        let units = part.private_indices();
        let is_usual = 2.0 * units.len() as f64 >= usual;
        let compares = run
            .with(|engine| engine.independence.begin_values(engine.next_step, function, is_usual));
        let compared = match compares {
            true => forward.compare(&*computing, units).await,
            false => Ok(None),
        };
        let ends = |engine: &mut PrivacyEngine, found: Result<bool, &DpError>| {
            let outcome = match found {
                Ok(true) => Outcome::Same,
                Ok(false) => Outcome::Inconclusive,
                Err(_) => Outcome::Refused,
            };
            engine.independence.compared(engine.next_step, function, outcome);
        };
        // Other threads do not wait for the pass.
        if compares && !matches!(compared, Ok(Some(_))) {
            run.with(|engine| ends(engine, compared.as_ref().map(|_| false)));
        }
        let compared = compared?;
        let (losses, output) = forward.run(&*computing, input, &part);
        if let Some(compared) = compared {
            let checked = match compared.check_records(part.records().identity) {
                Ok(()) => compared.check(&losses).await,
                Err(error) => Err(error),
            };
            run.with(|engine| ends(engine, checked.as_ref().copied()));
            checked?;
        }
        if run.is_over() {
            break;
        }
        clip_part(run, model, &*computing, losses, part).await?;
        keep(output);
    }
    Ok(())
}

/// Clips one physical batch and adds its sum.
///
/// # Arguments
///
/// - `model`: the model that is trained
/// - `computing`: the model that [computed](computing) the losses
pub(crate) async fn clip_part<M: Module>(
    run: &mut impl EngineAccess,
    model: &M,
    computing: &M,
    losses: Tensor<1>,
    part: DrawPart,
) -> Result<(), DpError> {
    let mut task = run.with(|engine| {
        engine.note_precision(computing, losses.dtype());
        ClipTask::new(engine, model)
    })?;
    let sum = task.clip(losses, &part, model, computing).await;
    run.with(|engine| {
        engine.independence.give_back(task.probe);
        if matches!(sum, Err(DpError::NotPerExample { .. })) {
            engine.independence.refused_by_gradient();
        }
    });
    run.add(part, sum?)
}

/// The clipping of one physical batch, which any thread may do. Its probe is given back in every
/// case.
struct ClipTask {
    buffers: BufferCheck,
    backward: PrivateBackward,
    probe: Option<Probe>,
    thresholds: Thresholds,
}

impl ClipTask {
    /// Returns what a thread needs to clip a physical batch of the current logical step.
    fn new<M: Module>(engine: &mut PrivacyEngine, model: &M) -> Result<Self, DpError> {
        let noted = engine.facts.contains_key(PRODUCTS);
        if !noted && model.devices().iter().any(engine.coarse_products) {
            engine.note(PRODUCTS, "TF32 where the device chooses it");
        }
        engine.note_remote_devices(model);
        engine.note_options_of_passes();
        let thresholds = engine.thresholds()?;
        let (step, source) = (engine.next_step, &engine.plan.source);
        let repeats = step < engine.plan.own_releases(&engine.ledger);
        Ok(Self {
            buffers: engine.buffers.clone(),
            backward: engine.backward.clone(),
            probe: engine.independence.take_probe(source, step, repeats),
            thresholds,
        })
    }

    async fn clip<M: Module>(
        &mut self,
        losses: Tensor<1>,
        part: &DrawPart,
        model: &M,
        computing: &M,
    ) -> Result<ClippedSum, DpError> {
        self.buffers.verify(model, Extent::Step).await?;
        let grads = self.backward.run_checked(losses, computing, &mut self.probe).await?;
        let real = part.is_padding().map(|padding| !padding).collect();
        ClippedSum::from_gradients_async(grads.with_padding(real)?, &self.thresholds).await
    }
}

/// Returns the clipped sum of the updates of some units. Call [`end_units`] before the step.
///
/// # Arguments
///
/// - `units`: one item for each unit of `part`, in order; further items are padding
/// - `update`: receives a copy of `model`, the item, and the index of the unit
pub(crate) async fn clip_units<M: Module, U>(
    run: &mut impl EngineAccess,
    model: &M,
    units: impl IntoIterator<Item = U>,
    part: &DrawPart,
    mut update: impl FnMut(M, U, usize) -> Result<UnitUpdate, DpError>,
) -> Result<ClippedSum, DpError> {
    let randomness = run.with(|engine| engine.layer_randomness());
    let thresholds = run.with(PrivacyEngine::thresholds)?;
    let update = |copy: M, (unit, index)| {
        let _scope = UnitScope::enter(&copy, &randomness, Units::One(index));
        update(copy, unit, index)
    };
    let units = units.into_iter().zip(part.private_indices().iter().copied());
    clip_updates_async(&thresholds, model, units, update).await
}

/// Checks that the updates of units did not change `model`.
pub(crate) async fn end_units<M: Module>(
    run: &mut impl EngineAccess,
    model: &M,
) -> Result<(), DpError> {
    let buffers = run.with(|engine| engine.buffers.clone());
    buffers.verify(model, Extent::Step).await?;
    let stores_statistics = has_training_batch_norm(model);
    run.with(PrivacyEngine::note_options_of_passes);
    run.with(|engine| {
        if stores_statistics {
            engine.note(
                "running_statistics",
                "not learned: private batches changed copies of the model only; the model has \
                 those it began with, or others computed on public data",
            );
        }
        engine.independence.units_by_themselves();
    });
    Ok(())
}
