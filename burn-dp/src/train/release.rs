//! The report of a released step.

use std::sync::Arc;

use burn_dp_accountant::{AccountantError, Budget, DpEvent, PrivacyLedger};

use crate::clipping::ClippingStatistics;
use crate::optim::engine::PrivacyEngine;
use crate::optim::releases::Events;

/// One released step, for metrics.
///
/// # Privacy
///
/// The public methods return released values, or values derived from them, and `Debug` prints only
/// such values.
#[derive(Clone)]
pub struct StepRelease {
    step: u64,
    steps_per_epoch: u64,
    planned_steps: u64,
    budget: Option<Budget>,
    /// The ledger before the first step.
    empty: Arc<PrivacyLedger>,
    /// The releases of the run, and their number up to this step.
    events: Events,
    releases: u64,
    clipping_norm: f64,
    noise_multiplier: f64,
    signal_to_noise: Option<f64>,
    pub(super) statistics: ClippingStatistics,
}

opaque_debug!(
    StepRelease,
    |this| step: this.step,
    releases: this.releases,
    clipping_norm: this.clipping_norm,
    noise_multiplier: this.noise_multiplier
);

impl StepRelease {
    /// Reports the last step of `engine`.
    pub(super) fn new(
        engine: &PrivacyEngine,
        step: u64,
        steps_per_epoch: u64,
        empty: Arc<PrivacyLedger>,
        events: Events,
    ) -> Self {
        let last = engine.last();
        Self {
            step,
            steps_per_epoch,
            planned_steps: engine.plan.steps(),
            budget: engine.plan.budget(),
            empty,
            events,
            releases: engine.own_releases(),
            clipping_norm: last.map_or(f64::NAN, |last| last.thresholds.total_norm()),
            noise_multiplier: engine.plan.noise_multiplier_at(step),
            signal_to_noise: last.and_then(|last| last.signal_to_noise),
            statistics: engine.statistics(),
        }
    }

    /// Returns the number of the step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the number of releases up to this step.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Returns the ledger of everything that was released up to this step, with the facts of the
    /// plan. It is computed on request. The ledger to publish is
    /// [`PrivateTraining::ledger`](super::PrivateTraining::ledger), which also has what was found
    /// during the run.
    ///
    /// # Errors
    ///
    /// Returns an error if the accountant does not support a release, although the ledger of the
    /// run has accepted it before.
    pub fn ledger(&self) -> Result<PrivacyLedger, AccountantError> {
        let mut ledger = PrivacyLedger::clone(&self.empty);
        for (event, count) in self.events() {
            ledger.record_many(&event, count)?;
        }
        Ok(ledger)
    }

    /// Returns the largest norm that a unit contributed; public, or adapted from noisy counts.
    pub fn clipping_norm(&self) -> f64 {
        self.clipping_norm
    }

    /// Returns the noise multiplier of the step.
    pub fn noise_multiplier(&self) -> f64 {
        self.noise_multiplier
    }

    /// Returns an estimate of the ratio of the norm of the clipped sum to the norm of its noise,
    /// computed only from the noisy gradient, and only if the
    /// [metric](super::PrivateTraining::signal_to_noise_metric) is used.
    pub fn signal_to_noise(&self) -> Option<f64> {
        self.signal_to_noise
    }

    /// Returns the releases up to this step, run-length encoded.
    pub(super) fn events(&self) -> Vec<(DpEvent, u64)> {
        self.events.first(self.releases)
    }

    /// Returns the budget of the plan, if it has one.
    pub(super) fn budget(&self) -> Option<Budget> {
        self.budget
    }

    /// Returns the number of releases at the end of the block of `interval` steps of the epoch that
    /// contains this step.
    pub(super) fn end_of_block(&self, interval: u64) -> u64 {
        let epoch = self.step / self.steps_per_epoch * self.steps_per_epoch;
        let blocks = (self.step - epoch) / interval + 1;
        let end = blocks.saturating_mul(interval).min(self.steps_per_epoch);
        epoch.saturating_add(end).min(self.planned_steps)
    }
}
