//! What an optimizer tells of its run.

use burn::optim::ModuleOptimizer;
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

use super::{DpOptimizer, Independence, PrivacyPlan};
use crate::clipping::ClippingStatistics;
use crate::{DpError, NonPrivate};

impl DpOptimizer {
    /// The plan.
    pub fn plan(&self) -> &PrivacyPlan {
        &self.plan
    }

    /// What was released so far.
    pub fn ledger(&self) -> &PrivacyLedger {
        &self.ledger
    }

    /// The optimizer inside.
    pub fn inner(&self) -> &ModuleOptimizer {
        &self.inner
    }

    /// Standard deviation of the noise on each value of the last released gradient of the parameter with
    /// that path.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidState`] when no gradient was released yet, and [`DpError::UnsupportedModel`]
    /// for a parameter that belongs to no clipping group.
    pub fn gradient_noise_std(&self, path: &str) -> Result<f64, DpError> {
        let (thresholds, noise) = self
            .last
            .as_ref()
            .filter(|(thresholds, _)| thresholds.releases_sum())
            .ok_or_else(|| DpError::state("no gradient was released yet; make a step first"))?;
        let group = thresholds.groups().index_of(path)?;
        Ok(noise.group_stds[group] / self.plan.expected_batch_size)
    }

    /// The number of the next step, which is the number of releases so far.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// ε of what was released so far: infinite when the noise is not secret.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] for a δ of 1 / dataset size or more, which allows to publish a unit
    /// outright; [`DpError::Accountant`] for a δ outside of (0, 1).
    pub fn privacy_spent(&self, delta: f64) -> Result<Epsilon, DpError> {
        self.plan.check_delta(delta)?;
        Ok(self.ledger.epsilon(delta)?)
    }

    /// The privacy statement of what was released so far.
    ///
    /// # Errors
    ///
    /// As [`privacy_spent`](Self::privacy_spent), and for no δ.
    pub fn statement(&self, deltas: &[f64]) -> Result<PrivacyStatement, DpError> {
        deltas.iter().try_for_each(|&delta| self.plan.check_delta(delta))?;
        let mut statement = PrivacyStatement::from_ledger(&self.ledger, deltas)?;
        statement.facts.extend(self.facts.clone());
        let independence = self.independence.found();
        statement.facts.insert("independence_of_examples".into(), independence.to_string());
        if independence == Independence::NotChecked {
            statement.not_covered.push(
                "A loss of one example that depends on other examples: this was not checked."
                    .into(),
            );
        }
        if let Some(sparsifier) = &self.sparsifier {
            statement.facts.insert("sparsification".into(), sparsifier.to_string());
        }
        if self.backward.group_size() > 1 {
            let copies = self.backward.group_size().to_string();
            statement.facts.insert("augmentation_multiplicity".into(), copies);
        }
        Ok(statement)
    }

    /// Adds a public fact of this run to its statements.
    pub(crate) fn note(&mut self, name: &str, value: impl Into<String>) {
        self.facts.insert(name.into(), value.into());
    }

    /// Counts of the last step. They are exact, so they are not private.
    pub fn statistics(&self) -> NonPrivate<ClippingStatistics> {
        NonPrivate::new(self.statistics)
    }
}
