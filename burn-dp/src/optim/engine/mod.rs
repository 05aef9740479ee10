//! The private step, for any training loop.

mod admission;
mod clip;
mod forward;
pub(in crate::optim) mod not_covered;
mod pending;
mod state;
mod statement;
mod step;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use burn_dp_accountant::{Epsilon, PrivacyLedger, join_values};

#[cfg(feature = "train")]
pub(crate) use clip::EngineAccess;
pub(crate) use clip::{clip_part, clip_rows, clip_units, end_units};
pub(crate) use forward::{Rows, computing};
#[cfg(feature = "train")]
pub(crate) use pending::given_twice;
pub(crate) use state::{EngineState, LostSteps, RunSource, damaged};

use admission::Admission;
use forward::row_scope;
use not_covered::{BY_PROGRAM, OWN_POLICY};
use pending::{Pending, check_sum};

use super::PUBLIC_DATA;
use super::buffers::BufferCheck;
use super::independence::IndependenceTests;
use super::releases::Releases;
use super::{PrivacyPlan, Sparsifier, WeightAverage};
use crate::DpError;
use crate::clipping::{ClippedSum, ClippingStatistics, PublicNorms, StepNoise, Thresholds};
use crate::grads::{PrivateBackward, has_coarse_products};
use crate::nn::UnitScope;
use crate::noise::{CorrelatedNoise, NoiseAhead};
use crate::random::LayerRandomness;
use crate::sampling::{DrawPart, RecordIdentity};

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
    /// What users compute, as the statement describes it.
    user_update: Option<String>,
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
    /// A mark of the records and their order, under the key of the run, once they are known.
    records: Option<String>,
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
    /// With the deviations of the noise that was added, which correlation changes.
    pub(crate) noise: StepNoise,
    pub(crate) statistics: ClippingStatistics,
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    pub(crate) signal_to_noise: Option<f64>,
}

impl PrivacyEngine {
    pub(crate) fn new(plan: PrivacyPlan) -> Self {
        let (ledger, releases) = (plan.new_ledger(), Releases::new(plan.origin));
        let correlated = plan.correlated_noise();
        let own = plan.has_own_policy().then(|| (OWN_POLICY.to_string(), BY_PROGRAM.to_string()));
        Self {
            plan,
            ledger,
            backward: PrivateBackward::new(),
            precision: None,
            sparsifier: None,
            average: None,
            independence: IndependenceTests::default(),
            measures_signal: false,
            user_update: None,
            frozen: None,
            next_step: 0,
            skipped: 0,
            pending: None,
            last: None,
            buffers: BufferCheck::default(),
            identity: None,
            records: None,
            facts: own.into_iter().collect(),
            releases: Mutex::new(releases),
            next_noise: None,
            coarse_products: has_coarse_products,
            correlated,
        }
    }

    /// Adds a sparsifier.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if there is one already.
    pub(crate) fn set_sparsifier(&mut self, sparsifier: Sparsifier) -> Result<(), DpError> {
        refuse_second("sparsifier", self.sparsifier.as_ref())?;
        self.sparsifier = Some(sparsifier);
        Ok(())
    }

    /// Adds an average of the weights.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if there is one already.
    pub(crate) fn set_average(&mut self, average: WeightAverage) -> Result<(), DpError> {
        refuse_second("weight average", self.average.as_ref())?;
        self.average = Some(average);
        Ok(())
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

    /// Returns the checks of what enters the next step.
    pub(crate) fn admission(&self) -> Admission<'_> {
        Admission {
            plan: &self.plan,
            ledger: &self.ledger,
            next_step: self.next_step,
            pending: self.pending.as_ref(),
            records: self.records.as_deref(),
            frozen: self.frozen.as_ref(),
        }
    }

    /// Adds the clipped sum of the units of `part`.
    pub(crate) fn accumulate(&mut self, part: DrawPart, sum: ClippedSum) -> Result<(), DpError> {
        self.admission().check_part(&part)?;
        check_sum(&part, &sum, &self.thresholds()?)?;
        match &mut self.pending {
            Some(pending) => pending.add(&part, sum),
            None => {
                self.pending = Some(Pending::new(&part, sum));
                Ok(())
            }
        }
    }

    /// Returns the randomness of the layers in the current logical step.
    pub(crate) fn layer_randomness(&self) -> LayerRandomness {
        LayerRandomness::new(self.plan.key(), self.next_step)
    }

    /// Opens the scope in which the random layers of `model` have the units of a physical batch.
    pub(crate) fn unit_scope<M: Module>(&self, model: &M, part: &DrawPart) -> UnitScope {
        let copies = self.backward.group_size();
        row_scope(model, &self.layer_randomness(), part.private_indices(), part.rows(), copies)
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
        Ok(self.frozen.insert(thresholds).clone())
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
        let mut named = named.cloned().unwrap_or_default();
        join_values(&mut named, origin);
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
        self.buffers.accept(model).await?;
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

fn refuse_second(name: &str, present: Option<&impl std::fmt::Display>) -> Result<(), DpError> {
    let Some(present) = present else { return Ok(()) };
    Err(DpError::state(format!(
        "the optimizer has a {name} already ({present}); a restored run keeps its own"
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::correlated_noise::Strategy;

    use burn_dp_accountant::UnitOfPrivacy;

    use super::*;
    use crate::optim::{PrivacyPlanConfig, SamplingScheme};
    use crate::random::Purpose;
    use crate::updates::federated::FedSgdConfig;

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
    #[test]
    fn a_second_sparsifier_or_average_is_refused() {
        let config = PrivacyPlanConfig::new(100, 10.0).with_steps(9).with_noise_multiplier(1.0);
        let mut engine = PrivacyEngine::new(config.init().unwrap());
        for is_first in [true, false] {
            assert_eq!(engine.set_average(WeightAverage::new(0.9).unwrap()).is_ok(), is_first);
            assert_eq!(engine.set_sparsifier(Sparsifier::new(2, 1.0).unwrap()).is_ok(), is_first);
        }
    }

    #[cfg(feature = "train")]
    #[test]
    fn updates_of_users_that_were_replaced_are_not_in_the_statement() {
        let config = PrivacyPlanConfig::new(100, 10.0).with_steps(9).with_noise_multiplier(1.0);
        let plan = config.with_unit(UnitOfPrivacy::User).init().unwrap();
        let mut engine = PrivacyEngine::new(plan);
        let is_stated = |engine: &PrivacyEngine| {
            engine.described_ledger().header().facts.contains_key("user_update")
        };
        engine.begin_user_updates(&FedSgdConfig::new(5).init().unwrap()).unwrap();
        assert!(is_stated(&engine));
        engine.end_user_updates();
        assert!(!is_stated(&engine));
    }

    #[test]
    fn the_statement_has_the_updates_of_users_of_all_rounds() {
        let config = PrivacyPlanConfig::new(100, 10.0).with_steps(9).with_noise_multiplier(1.0);
        let plan = config.with_unit(UnitOfPrivacy::User).init().unwrap();
        let mut engine = PrivacyEngine::new(plan);
        for examples in [5, 7, 5] {
            engine.begin_user_updates(&FedSgdConfig::new(examples).init().unwrap()).unwrap();
            engine.note_options_of_passes();
        }
        let fact = engine.described_ledger().header().facts["user_update"].clone();
        for examples in [5, 7] {
            assert_eq!(fact.matches(&format!("at most {examples} examples")).count(), 1, "{fact}");
        }
    }
}
