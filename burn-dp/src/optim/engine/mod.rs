//! The private step, for any training loop.

mod admission;
mod forward;
mod not_covered;
mod pending;
mod state;
mod step;
mod tasks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

#[cfg(feature = "train")]
pub(crate) use forward::Forward;
#[cfg(feature = "train")]
pub(crate) use pending::given_twice;
pub(crate) use state::{EngineState, LostSteps, RunSource, damaged};
#[cfg(feature = "train")]
pub(crate) use tasks::{ClipTask, UnitTask};

use pending::Pending;

use super::PUBLIC_DATA;
use super::buffers::BufferCheck;
use super::independence::{Independence, IndependenceTests};
use super::releases::{KeyStorage, Lock, Releases};
use super::{PrivacyPlan, Sparsifier, WeightAverage};
use crate::DpError;
use crate::clipping::{ClippingStatistics, PublicNorms, StepNoise, Thresholds};
use crate::grads::{PrivateBackward, has_coarse_products};
use crate::model::precision_name;
use crate::noise::{CorrelatedNoise, NoiseAhead};
use crate::sampling::RecordIdentity;

/// Owns the whole private step: admission, clipping, release, optimizer step, ties, sparsification
/// and averaging. Only Burn's optimizer is passed in for each step, because Burn's learner owns it.
pub(crate) struct PrivacyEngine {
    pub(crate) plan: PrivacyPlan,
    pub(crate) ledger: PrivacyLedger,
    pub(crate) backward: PrivateBackward,
    /// Precision of the forward and backward passes, if it differs from the precision of the
    /// parameters.
    pub(crate) precision: Option<FloatDType>,
    pub(crate) sparsifier: Option<Sparsifier>,
    pub(crate) average: Option<WeightAverage>,
    pub(crate) independence: IndependenceTests,
    /// Whether each step estimates its signal-to-noise ratio.
    pub(crate) measures_signal: bool,
    /// The thresholds of the current logical step.
    frozen: Option<Thresholds>,
    next_step: u64,
    /// Number of steps that were lost by returning to a checkpoint and not repeated.
    skipped: u64,
    pending: Option<Pending>,
    last: Option<LastStep>,
    pub(crate) buffers: BufferCheck,
    /// The evidence that the units are different records: the weakest of all parts.
    identity: Option<RecordIdentity>,
    /// Public facts of this run, for its statements.
    facts: BTreeMap<String, String>,
    /// Everything that was released, including steps that a resumed run repeats.
    releases: Mutex<Releases>,
    /// Noise of the next step, if it can be computed in advance.
    next_noise: Option<NoiseAhead>,
    /// Whether a device may choose less precise products depending on the shape of a batch.
    pub(crate) coarse_products: fn(&Device) -> bool,
    /// State that combines the noise with the noise of earlier steps, if the plan has a strategy.
    correlated: Option<CorrelatedNoise>,
}

/// Data of the last step's clipping and release.
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
        let correlated = plan.correlated_noise();
        Self {
            plan,
            ledger,
            backward: PrivateBackward::new(),
            precision: None,
            sparsifier: None,
            average: None,
            independence: IndependenceTests::default(),
            measures_signal: false,
            frozen: None,
            next_step: 0,
            skipped: 0,
            pending: None,
            last: None,
            buffers: BufferCheck::default(),
            identity: None,
            facts: BTreeMap::new(),
            releases: Mutex::new(releases),
            next_noise: None,
            coarse_products: has_coarse_products,
            correlated,
        }
    }

    pub(crate) fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Returns the number of releases of the run, excluding earlier ones.
    pub(crate) fn own_releases(&self) -> u64 {
        self.plan.own_releases(&self.ledger)
    }

    /// Returns whether part of a logical batch was clipped and its step has not run yet.
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

    pub(crate) fn learn_from_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        if self.frozen.is_some() {
            return Err(DpError::state(
                "the thresholds of a logical step are fixed until the step is made; give public \
                 norms between two steps, or discard the logical batch",
            ));
        }
        self.plan.clipping.set_public_norms(norms)?;
        self.name_public_data(norms.public_data());
        Ok(())
    }

    /// Adds to the public data that the statement names; a checkpoint contains it.
    pub(crate) fn name_public_data(&mut self, origin: &str) {
        let named = self.facts.get(PUBLIC_DATA).or(self.ledger.header().facts.get(PUBLIC_DATA));
        let named = match named {
            Some(named) if named.split("; ").any(|name| name == origin) => named.clone(),
            Some(named) => format!("{named}; {origin}"),
            None => origin.to_string(),
        };
        self.note(PUBLIC_DATA, named);
    }

    /// Accepts the values of `model` that are not trained as public, computed on data with this
    /// description.
    pub(crate) async fn accept_public_buffers<M: Module>(
        &mut self,
        model: &M,
        origin: &str,
    ) -> Result<(), DpError> {
        // A rejected pass of this step leaves its thresholds, but no sum.
        if self.pending.is_some() || self.frozen.is_some() {
            return Err(DpError::state(
                "values that are not trained cannot be replaced within a logical step; make the \
                 step first, or `discard` what was accumulated",
            ));
        }
        self.buffers.renew(model).await?;
        self.name_public_data(origin);
        self.note("values_not_trained", "replaced during the run, computed on public data");
        Ok(())
    }

    /// Erases the key in memory, and the noise that was drawn with it.
    pub(crate) fn forget_key(&mut self) {
        self.plan.source.forget();
        self.next_noise = None;
        self.correlated = None;
    }

    pub(crate) fn discard(&mut self) {
        self.pending = None;
        self.frozen = None;
        self.independence.discard();
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
        statement.not_covered.push(independence.not_covered().into());
        if self.independence.had_units() && independence != Independence::ByConstruction {
            statement.not_covered.push(Independence::ByConstruction.not_covered().into());
        }
        statement.not_covered.extend(not_covered::sentences());
        self.describe_storage(&mut statement)?;
        if let Some(identity) = self.identity {
            statement.facts.insert("identity_of_records".into(), identity.to_string());
            statement.not_covered.push(identity.not_covered().into());
        }
        if self.backward.group_size() > 1 {
            let copies = self.backward.group_size().to_string();
            statement.facts.insert("augmentation_multiplicity".into(), copies);
        }
        if let Some(precision) = self.precision {
            let fact = not_covered::PRECISION.into();
            statement.facts.insert(fact, precision_name(precision));
        }
        statement.not_covered.extend(not_covered::of_facts(&statement.facts));
        if let Some(sparsifier) = &self.sparsifier {
            statement.facts.insert("sparsification".into(), sparsifier.to_string());
        }
        if let Some(average) = &self.average {
            statement.facts.insert("weight_average".into(), average.to_string());
        }
        Ok(statement)
    }

    /// Adds the location of the run's key, and whether other processes are locked out of the run.
    fn describe_storage(&self, statement: &mut PrivacyStatement) -> Result<(), DpError> {
        let releases = self.releases()?;
        let (is_stored, key) = match (releases.key.0, self.plan.source.is_forgotten()) {
            (KeyStorage::Nowhere, false) => (false, "in the memory of the program only"),
            (KeyStorage::File, false) => (true, KEY_IN_FILE),
            (KeyStorage::ExposedFile, false) => (true, "in a file that other users can read"),
            (KeyStorage::Records, _) => (true, "in records that the program stores"),
            (_, true) => (false, "erased when the run ended"),
        };
        statement.facts.insert("noise_key".into(), key.into());
        if is_stored {
            statement.not_covered.push(
                "A reader of the key of the run, which can be erased when the run is over: the \
                 noise follows from it and can be subtracted."
                    .into(),
            );
        }
        if releases.lock() == Some(Lock::Unsupported) {
            statement.not_covered.push(
                "A second process that continued the run from the same state: the file system of \
                 the log of releases has no locks."
                    .into(),
            );
        }
        Ok(())
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

/// How a file protects the key from other users.
const KEY_IN_FILE: &str = match cfg!(windows) {
    true => "in a file apart from the checkpoints, with the access rights of its folder",
    false => "in a file apart from the checkpoints, which its owner alone can read",
};

/// The error after a thread panicked while it stored a release.
fn poisoned() -> DpError {
    DpError::state("the log of releases is unusable after a panic; resume from the last checkpoint")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::correlated_noise::Strategy;

    use super::*;
    use crate::optim::{PrivacyPlanConfig, SamplingScheme};
    use crate::random::Purpose;

    // Sharp edge: the noise that follows from the key is erased with it.
    #[test]
    fn erasing_the_key_erases_noise_drawn_ahead_and_kept_for_later_steps() {
        let plan = PrivacyPlanConfig::new(100, 10.0)
            .with_steps(9)
            .with_noise_multiplier(1.0)
            .with_sampling(SamplingScheme::CyclicPoisson { parts: 3 })
            .with_correlated_noise(Strategy::banded_toeplitz(9, &[1.0, 0.5, 0.2]).unwrap())
            .init()
            .unwrap();
        let mut engine = PrivacyEngine::new(plan);
        let source = &engine.plan.source;
        engine.next_noise = NoiseAhead::begin(source, Purpose::Gradient, 0, &[7, 3], None);
        assert!(engine.next_noise.is_some() && engine.correlated.is_some());
        engine.forget_key();
        assert!(engine.plan.source.is_forgotten());
        assert!(engine.next_noise.is_none() && engine.correlated.is_none());
    }
}
