//! What an optimizer tells of its run.

use burn::optim::ModuleOptimizer;
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

use super::{DpOptimizer, PrivacyPlan};
use crate::clipping::ClippingStatistics;
use crate::{DpError, NonPrivate};

impl DpOptimizer {
    /// The plan.
    pub fn plan(&self) -> &PrivacyPlan {
        &self.engine.plan
    }

    /// What was released so far.
    pub fn ledger(&self) -> &PrivacyLedger {
        &self.engine.ledger
    }

    /// The optimizer inside.
    pub fn inner(&self) -> &ModuleOptimizer {
        &self.inner
    }

    /// Standard deviation of the noise on each value of the last released gradient of the parameter
    /// with that path.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when no gradient was released yet, and
    /// [`DpError::UnsupportedModel`] for a parameter that belongs to no clipping group.
    pub fn gradient_noise_std(&self, path: &str) -> Result<f64, DpError> {
        let (thresholds, noise) = self
            .engine
            .last
            .as_ref()
            .filter(|(thresholds, _)| thresholds.releases_sum())
            .ok_or_else(|| DpError::state("no gradient was released yet; make a step first"))?;
        let group = thresholds.groups().index_of(path)?;
        Ok(noise.group_stds[group] / self.engine.plan.expected_batch_size)
    }

    /// The number of the next step: the number of releases so far, unless steps are made
    /// [again](super::Checkpointer) after a resumption.
    pub fn next_step(&self) -> u64 {
        self.engine.next_step
    }

    /// ε of what was released so far: infinite when the noise is not secret.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] for a δ of 1 / dataset size or more, which allows to publish a
    /// unit outright; [`DpError::Accountant`] for a δ outside of (0, 1).
    pub fn privacy_spent(&self, delta: f64) -> Result<Epsilon, DpError> {
        self.engine.privacy_spent(delta)
    }

    /// The privacy statement of what was released so far.
    ///
    /// # Errors
    ///
    /// As [`privacy_spent`](Self::privacy_spent), and for no δ.
    pub fn statement(&self, deltas: &[f64]) -> Result<PrivacyStatement, DpError> {
        let mut statement = self.engine.statement(deltas)?;
        if let Some(sparsifier) = &self.sparsifier {
            statement.facts.insert("sparsification".into(), sparsifier.to_string());
        }
        if let Some(average) = &self.average {
            statement.facts.insert("weight_average".into(), average.to_string());
        }
        Ok(statement)
    }

    /// Counts of the last step. They are exact, so they are not private.
    pub fn statistics(&self) -> NonPrivate<ClippingStatistics> {
        NonPrivate::new(self.engine.statistics)
    }
}
