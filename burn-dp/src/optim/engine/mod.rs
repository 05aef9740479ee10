//! The private step, whichever loop drives it.

mod admission;
mod state;
mod step;
mod tasks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

pub(crate) use state::{EngineState, LostSteps, RunSource, damaged};
#[cfg(feature = "train")]
pub(crate) use tasks::{ClipTask, UnitTask};

use super::buffers::BufferCheck;
use super::independence::{Independence, IndependenceCheck};
use super::releases::Releases;
use super::{PrivacyPlan, Sparsifier, WeightAverage};
use crate::DpError;
use crate::clipping::{ClippedSum, ClippingStatistics, PublicNorms, StepNoise, Thresholds};
use crate::grads::PrivateBackward;
use crate::noise::NoiseAhead;

/// Owns the whole private step: admission, clipping, release, optimizer step, ties, sparsification
/// and averaging. Only the optimizer of Burn is lent to it for each step, because Burn's learner
/// owns that.
pub(crate) struct PrivacyEngine {
    pub(crate) plan: PrivacyPlan,
    pub(crate) ledger: PrivacyLedger,
    pub(crate) backward: PrivateBackward,
    pub(crate) sparsifier: Option<Sparsifier>,
    pub(crate) average: Option<WeightAverage>,
    pub(crate) independence: IndependenceCheck,
    /// Whether each step estimates its signal-to-noise ratio.
    pub(crate) measures_signal: bool,
    /// The thresholds of the current logical step.
    frozen: Option<Thresholds>,
    next_step: u64,
    /// Number of steps that were lost by returning to a checkpoint and not repeated.
    skipped: u64,
    pending: Option<ClippedSum>,
    last: Option<LastStep>,
    buffers: BufferCheck,
    /// Public facts of this run, for its statements.
    facts: BTreeMap<String, String>,
    /// Everything that was released, including steps that a resumed run repeats.
    releases: Mutex<Releases>,
    /// Noise of the next step, if it can be computed in advance.
    next_noise: Option<NoiseAhead>,
}

/// What was clipped and released in the last step.
pub(crate) struct LastStep {
    pub(crate) thresholds: Thresholds,
    pub(crate) noise: StepNoise,
    pub(crate) statistics: ClippingStatistics,
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    pub(crate) signal_to_noise: Option<f64>,
}

impl PrivacyEngine {
    pub(crate) fn new(plan: PrivacyPlan) -> Self {
        let (ledger, releases) = (plan.new_ledger(), Releases::new(plan.origin));
        Self {
            plan,
            ledger,
            backward: PrivateBackward::new(),
            sparsifier: None,
            average: None,
            independence: IndependenceCheck::new(),
            measures_signal: false,
            frozen: None,
            next_step: 0,
            skipped: 0,
            pending: None,
            last: None,
            buffers: BufferCheck::default(),
            facts: BTreeMap::new(),
            releases: Mutex::new(releases),
            next_noise: None,
        }
    }

    pub(crate) fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Returns whether part of a logical batch was clipped whose step is not made yet.
    pub(crate) fn is_within_step(&self) -> bool {
        self.pending.is_some()
    }

    #[cfg(feature = "train")]
    pub(crate) fn last(&self) -> Option<&LastStep> {
        self.last.as_ref()
    }

    /// Returns the exact counts of the last step.
    pub(crate) fn statistics(&self) -> ClippingStatistics {
        self.last.as_ref().map_or_else(ClippingStatistics::default, |last| last.statistics)
    }

    pub(crate) fn thresholds(&mut self) -> Result<Thresholds, DpError> {
        if let Some(thresholds) = &self.frozen {
            return Ok(thresholds.clone());
        }
        let thresholds = self.plan.clipping.thresholds(self.next_step)?;
        self.frozen = Some(thresholds.clone());
        Ok(thresholds)
    }

    pub(crate) fn accumulate(&mut self, sum: ClippedSum) -> Result<(), DpError> {
        let thresholds = self.thresholds()?;
        if *sum.thresholds() != thresholds {
            return Err(DpError::invalid(
                "clipping_norm",
                format!(
                    "must equal the threshold of the logical step, {:?}, got {:?}; clip with \
                     `DpOptimizer::thresholds`",
                    thresholds.norms(),
                    sum.thresholds().norms()
                ),
            ));
        }
        match &mut self.pending {
            Some(pending) => pending.accumulate(sum),
            None => {
                self.pending = Some(sum);
                Ok(())
            }
        }
    }

    pub(crate) fn learn_from_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        if self.frozen.is_some() {
            return Err(DpError::state(
                "the thresholds of a logical step are fixed until the step is made; give public \
                 norms between two steps, or discard the logical batch",
            ));
        }
        self.plan.clipping.set_public_norms(norms)
    }

    pub(crate) fn discard(&mut self) {
        self.pending = None;
        self.frozen = None;
    }

    /// Returns the standard deviation of the noise on each value of the last released gradient.
    pub(crate) fn gradient_noise_std(&self, path: &str) -> Result<f64, DpError> {
        let last = self.last.as_ref().filter(|last| last.thresholds.releases_sum());
        let last =
            last.ok_or_else(|| DpError::state("no gradient was released yet; make a step first"))?;
        let group = last.thresholds.groups().index_of(path)?;
        Ok(last.noise.group_stds[group] / self.plan.expected_batch_size)
    }

    pub(crate) fn privacy_spent(&self, delta: f64) -> Result<Epsilon, DpError> {
        self.plan.check_delta(delta)?;
        Ok(self.ledger.epsilon(delta)?)
    }

    pub(crate) fn statement(&self, deltas: &[f64]) -> Result<PrivacyStatement, DpError> {
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
        if self.backward.group_size() > 1 {
            let copies = self.backward.group_size().to_string();
            statement.facts.insert("augmentation_multiplicity".into(), copies);
        }
        if let Some(sparsifier) = &self.sparsifier {
            statement.facts.insert("sparsification".into(), sparsifier.to_string());
        }
        if let Some(average) = &self.average {
            statement.facts.insert("weight_average".into(), average.to_string());
        }
        Ok(statement)
    }

    /// Adds a public fact of this run to its statements.
    pub(crate) fn note(&mut self, name: &str, value: impl Into<String>) {
        self.facts.insert(name.into(), value.into());
    }

    /// Returns the releases of the run, to attach a sink to them.
    pub(crate) fn releases(&self) -> Result<MutexGuard<'_, Releases>, DpError> {
        self.releases.lock().map_err(|_| poisoned())
    }

    /// Returns where the releases are stored, if they are.
    pub(crate) fn release_log(&self) -> Result<Option<PathBuf>, DpError> {
        Ok(self.releases()?.path())
    }
}

/// The error after a thread panicked while it stored a release.
fn poisoned() -> DpError {
    DpError::state("the log of releases is unusable after a panic; resume from the last checkpoint")
}
