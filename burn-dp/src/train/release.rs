//! What the dashboard may know of a step.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_dp_accountant::{Budget, PrivacyLedger};

use crate::DpError;
use crate::clipping::ClippingStatistics;
use crate::model::FirstCopies;
use crate::optim::PrivacyEngine;

/// One released step, as metrics see it.
///
/// # Privacy
///
/// What the public methods give was released, or follows from what was released.
#[derive(Clone, Debug)]
pub struct StepRelease {
    step: u64,
    steps_per_epoch: u64,
    planned_steps: u64,
    budget: Option<Budget>,
    ledger: PrivacyLedger,
    clipping_norm: f64,
    noise_multiplier: f64,
    signal_to_noise: Option<f64>,
    pub(super) statistics: ClippingStatistics,
}

impl StepRelease {
    pub(super) fn new(
        step: u64,
        steps_per_epoch: u64,
        engine: &PrivacyEngine,
        signal_to_noise: Option<f64>,
    ) -> Self {
        let clipping_norm = engine.last.as_ref().map(|(thresholds, _)| thresholds.total_norm());
        Self {
            step,
            steps_per_epoch,
            planned_steps: engine.plan.steps(),
            budget: engine.plan.budget(),
            ledger: engine.ledger.clone(),
            clipping_norm: clipping_norm.unwrap_or(f64::NAN),
            noise_multiplier: engine.plan.noise_multiplier_at(step),
            signal_to_noise,
            statistics: engine.statistics,
        }
    }

    /// The number of the step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Everything that was released up to this step.
    pub fn ledger(&self) -> &PrivacyLedger {
        &self.ledger
    }

    /// The largest norm that a unit contributed; public, or adapted from noisy counts.
    pub fn clipping_norm(&self) -> f64 {
        self.clipping_norm
    }

    /// The noise multiplier of the step.
    pub fn noise_multiplier(&self) -> f64 {
        self.noise_multiplier
    }

    /// Estimate of the norm of the sum of clipped gradients over that of its noise, from the noisy
    /// gradient alone; only where the
    /// [metric](super::PrivateTraining::signal_to_noise_metric) asks for it.
    pub fn signal_to_noise(&self) -> Option<f64> {
        self.signal_to_noise
    }

    /// The budget of the plan, if it has one.
    pub(super) fn budget(&self) -> Option<Budget> {
        self.budget
    }

    /// The number of releases at the end of the block of `interval` steps of the epoch that this step
    /// is in.
    pub(super) fn end_of_block(&self, interval: u64) -> u64 {
        let epoch = self.step / self.steps_per_epoch * self.steps_per_epoch;
        let blocks = (self.step - epoch) / interval + 1;
        let end = blocks.saturating_mul(interval).min(self.steps_per_epoch);
        epoch.saturating_add(end).min(self.planned_steps)
    }
}

/// The estimate of ‖signal‖/‖noise‖ from the noisy gradient: its squared norm is in the mean that of
/// the signal plus the known variance of the noise.
///
/// # Privacy
///
/// Post-processing of the released gradient.
pub(super) fn signal_to_noise<M: Module>(
    model: &M,
    grads: &GradientsParams,
    engine: &PrivacyEngine,
) -> Result<Option<f64>, DpError> {
    let Some((thresholds, noise)) = &engine.last else { return Ok(None) };
    let groups = thresholds.groups().of_model(model)?;
    let batch = engine.plan.expected_batch_size();
    let mut norm = Norm { grads, squared: 0.0, sizes: Vec::new(), first: FirstCopies::default() };
    model.visit(&mut norm);
    let variance: f64 = (norm.sizes.iter().zip(groups))
        .map(|(&size, group)| size as f64 * (noise.group_stds[group] / batch).powi(2))
        .sum();
    Ok(Some(((norm.squared - variance).max(0.0) / variance).sqrt()))
}

struct Norm<'a> {
    grads: &'a GradientsParams,
    squared: f64,
    sizes: Vec<usize>,
    first: FirstCopies,
}

impl ModuleVisitor for Norm<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = self.grads.get::<D>(param.id)
            && self.first.is_new(param)
        {
            self.sizes.push(grad.shape().num_elements());
            let squared = grad.powi_scalar(2).sum().try_into_scalar::<f32>();
            self.squared += squared.map_or(f64::NAN, f64::from);
        }
    }
}
