//! The private step, whichever loop drives it.

mod admission;
mod state;
mod step;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use burn::module::{Flag, Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement, UnitOfPrivacy};

pub(crate) use state::{EngineState, LostSteps, RunSource, damaged};

use super::buffers::BufferCheck;
use super::independence::{Independence, IndependenceCheck};
use super::releases::Releases;
use super::{PrivacyPlan, Sparsifier, WeightAverage};
use crate::DpError;
use crate::clipping::{ClippedSum, ClippingStatistics, PublicNorms, StepNoise, Thresholds};
use crate::grads::PrivateBackward;
use crate::grads::Probe;
use crate::noise::NoiseAhead;
use crate::random::Key;
use crate::sampling::ExampleWeights;
use crate::updates::federated::UserUpdate;
use crate::updates::{UnitUpdate, clip_updates, private_copy};

/// Owns the whole private step: admission, clipping, release, optimizer step, ties, sparsification and
/// averaging. Only the optimizer of Burn is lent to it for each step, because Burn's learner owns that.
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

    pub(crate) fn last(&self) -> Option<&LastStep> {
        self.last.as_ref()
    }

    /// Returns the exact counts of the last step.
    pub(crate) fn statistics(&self) -> ClippingStatistics {
        self.last.as_ref().map_or_else(ClippingStatistics::default, |last| last.statistics)
    }

    /// Returns what a thread needs to clip a physical batch of the current logical step.
    pub(crate) fn clip_task<M: Module>(&mut self, model: &M) -> Result<ClipTask, DpError> {
        self.buffers.observe(model)?;
        Ok(ClipTask {
            backward: self.backward.clone(),
            probe: self.independence.take_probe(&self.plan.source, self.next_step),
            thresholds: self.thresholds()?,
        })
    }

    /// Takes back the probe of a [`ClipTask`].
    pub(crate) fn end_task(&mut self, probe: Option<Probe>) {
        self.independence.give_back(probe);
    }

    /// Returns what a thread needs to clip the updates of units of the current logical step.
    pub(crate) fn unit_task<M: Module>(&mut self, model: &M) -> Result<UnitTask, DpError> {
        self.observe_copy(model)?;
        Ok(UnitTask { thresholds: self.thresholds()? })
    }

    /// Checks that the updates left `model` as it was.
    pub(crate) fn end_unit_task<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        self.observe_copy(model)?;
        let mut find = TrainingBatchNorm::default();
        model.visit(&mut find);
        if find.found {
            self.note(
                "running_statistics",
                "not learned: private batches changed copies of the model only; the model has those \
                 it began with, or others computed on public data",
            );
        }
        self.independence.units_by_themselves();
        Ok(())
    }

    /// Prepares the updates of users. Returns the key that orders the examples of a user.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the unit of the plan is not the user.
    pub(crate) fn begin_user_updates(&mut self, update: &UserUpdate) -> Result<Key, DpError> {
        let unit = self.plan.unit();
        if *unit != UnitOfPrivacy::User {
            return Err(DpError::invalid(
                "unit",
                format!(
                    "must be the user, because an item of the data set is all that a user owns, got \
                     {unit}; plan with `with_unit(UnitOfPrivacy::User)`"
                ),
            ));
        }
        self.note("user_update", update.to_string());
        Ok(self.plan.key().clone())
    }

    fn observe_copy<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        if self.buffers.is_done() {
            return Ok(());
        }
        // A running state of the original holds back its last update; a copy has it.
        self.buffers.observe(&private_copy(model))
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
                    "must be that of the logical step, {:?}, got {:?}; clip with \
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
                "the thresholds of a logical step are fixed until the step is made; give public norms \
                 between two steps, or discard the logical batch",
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

/// The clipping of one physical batch, which any thread may do.
pub(crate) struct ClipTask {
    backward: PrivateBackward,
    probe: Option<Probe>,
    thresholds: Thresholds,
}

impl ClipTask {
    /// Returns the clipped sum, and the probe for [`end_task`](PrivacyEngine::end_task), which needs it
    /// whatever the outcome.
    pub(crate) fn run<M: Module>(
        mut self,
        losses: Tensor<1>,
        weights: Option<&ExampleWeights>,
        model: &M,
    ) -> (Result<ClippedSum, DpError>, Option<Probe>) {
        let sum = self.clip(losses, weights, model);
        (sum, self.probe)
    }

    fn clip<M: Module>(
        &mut self,
        losses: Tensor<1>,
        weights: Option<&ExampleWeights>,
        model: &M,
    ) -> Result<ClippedSum, DpError> {
        let grads = self.backward.run_checked(losses, model, &mut self.probe)?;
        let grads = match weights {
            Some(weights) => {
                grads.with_padding(weights.is_padding().map(|padding| !padding).collect())?
            }
            None => grads,
        };
        ClippedSum::from_gradients(grads, &self.thresholds)
    }
}

/// The clipping of the updates of some units, which any thread may do.
pub(crate) struct UnitTask {
    thresholds: Thresholds,
}

impl UnitTask {
    pub(crate) fn run<M: Module, U>(
        self,
        model: &M,
        units: impl IntoIterator<Item = U>,
        update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
    ) -> Result<ClippedSum, DpError> {
        clip_updates(&self.thresholds, model, units, update)
    }
}

/// Finds a BatchNorm in training mode.
#[derive(Default)]
struct TrainingBatchNorm {
    containers: Vec<String>,
    found: bool,
}

impl ModuleVisitor for TrainingBatchNorm {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.containers.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.containers.pop();
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        let inside = self.containers.iter().any(|name| name == "Struct:BatchNorm");
        self.found |= inside && flag.val().is_enabled();
    }
}
