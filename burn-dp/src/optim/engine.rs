//! The part of a private step that is the same whichever loop drives it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_dp_accountant::{Epsilon, PrivacyLedger, PrivacyStatement};

use super::PrivacyPlan;
use super::buffers::BufferCheck;
use super::independence::{Independence, IndependenceCheck};
use super::release::Release;
use crate::DpError;
use crate::checkpoint::release_log::ReleaseLog;
use crate::clipping::{ClippedSum, ClippingStatistics, PublicNorms, StepNoise, Thresholds};
use crate::grads::PrivateBackward;
use crate::grads::Probe;
use crate::noise::NoiseAhead;
use crate::random::Purpose;
use crate::sampling::{Draw, ExampleWeights};

/// Clips, adds noise and keeps the ledger; the optimizer of Burn stands behind it.
pub(crate) struct PrivacyEngine {
    pub(crate) plan: PrivacyPlan,
    pub(crate) ledger: PrivacyLedger,
    pub(crate) backward: PrivateBackward,
    /// What the logical step under way clips to.
    frozen: Option<Thresholds>,
    pub(crate) next_step: u64,
    /// Number of steps that were lost by going back to a checkpoint and not made again.
    pub(crate) skipped: u64,
    pub(crate) pending: Option<ClippedSum>,
    pub(crate) statistics: ClippingStatistics,
    /// What the last step clipped to, and its noise.
    pub(crate) last: Option<(Thresholds, StepNoise)>,
    pub(crate) buffers: BufferCheck,
    pub(crate) independence: IndependenceCheck,
    /// Public facts of this run, for its statements.
    pub(crate) facts: BTreeMap<String, String>,
    /// What was released, also by steps that a resumed run makes again.
    pub(crate) releases: Mutex<ReleaseLog>,
    /// Noise of the next step, if it can be known.
    ahead: Option<NoiseAhead>,
}

impl PrivacyEngine {
    pub(crate) fn new(plan: PrivacyPlan) -> Self {
        let (ledger, releases) = (plan.new_ledger(), ReleaseLog::new(plan.origin));
        Self::resumed(plan, ledger, 0, releases)
    }

    /// A run whose ledger may be ahead of its next step: the steps between are made again.
    pub(crate) fn resumed(
        plan: PrivacyPlan,
        ledger: PrivacyLedger,
        next_step: u64,
        releases: ReleaseLog,
    ) -> Self {
        Self {
            plan,
            ledger,
            next_step,
            skipped: 0,
            backward: PrivateBackward::new(),
            frozen: None,
            pending: None,
            statistics: ClippingStatistics::default(),
            last: None,
            buffers: BufferCheck::default(),
            independence: IndependenceCheck::new(),
            facts: BTreeMap::new(),
            releases: Mutex::new(releases),
            ahead: None,
        }
    }

    /// What a thread needs to clip a physical batch of the logical step under way.
    pub(crate) fn clip_task<M: Module>(&mut self, model: &M) -> Result<ClipTask, DpError> {
        self.buffers.look(model)?;
        Ok(ClipTask {
            backward: self.backward.clone(),
            probe: self.independence.take_probe(&self.plan.source, self.next_step),
            thresholds: self.thresholds()?,
        })
    }

    /// Takes back what a [`ClipTask`] found.
    pub(crate) fn end_task(&mut self, probe: Option<Probe>) {
        self.independence.give_back(probe);
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
                "the thresholds of a logical step stay as they are until the step is made; give \
                 public norms between two steps, or discard the logical batch",
            ));
        }
        self.plan.clipping.set_public_norms(norms)
    }

    pub(crate) fn discard(&mut self) {
        self.pending = None;
        self.frozen = None;
    }

    /// Whether the next step may be made at all: known before its examples are looked at.
    #[cfg(feature = "train")]
    pub(crate) fn check_next(&mut self) -> Result<(), DpError> {
        let batch = self.plan.expected_batch_size;
        let multiplier = self.plan.noise_multiplier_at(self.next_step);
        let thresholds = match &self.frozen {
            Some(thresholds) => thresholds.clone(),
            None => self.plan.clipping.thresholds(self.next_step)?,
        };
        let noise = thresholds.noise(multiplier, batch)?;
        self.check_budget(&self.plan.mechanism.event(noise.event))
    }

    /// Adds the noise and enters the release into the ledger. Without gradients nothing but counts was
    /// released.
    pub(crate) fn release<M: Module>(
        &mut self,
        model: &M,
        draw: &Draw,
    ) -> Result<Option<GradientsParams>, DpError> {
        self.check_draw(draw)?;
        let (step, batch) = (self.next_step, self.plan.expected_batch_size);
        let thresholds = self.thresholds()?;
        // Noise and event follow the very object that clipped.
        let noise = thresholds.noise(self.plan.noise_multiplier_at(step), batch)?;
        let event = self.plan.mechanism.event(noise.event.clone());
        self.check_budget(&event)?;
        let prepared = Release::new(model, &thresholds, &noise, batch)?;
        let gradient_noise = self.plan.source.begin_step(Purpose::Gradient, step)?;
        let count_noise = match noise.count_std {
            Some(_) => Some(self.plan.source.begin_step(Purpose::Count, step)?),
            None => None,
        };
        let sum = self.pending.take().unwrap_or_else(|| ClippedSum::empty(thresholds.clone()));
        self.frozen = None;
        let statistics = sum.statistics().reveal();
        let bound = prepared.bind(model, sum, gradient_noise, count_noise)?;
        // Recorded before it is made: an interrupted release is paid for.
        let releases = self.releases.get_mut().map_err(|_| poisoned())?;
        if releases.record(step, &event, bound.mark())? {
            self.ledger.record(&event)?;
        }
        self.independence.end_of_step(step);
        self.next_step += 1;
        self.last = Some((thresholds, noise));
        self.statistics = statistics;
        let (lengths, ahead) = (bound.lengths(), self.ahead.take());
        let (grads, fractions) = bound.release(model, ahead.as_ref())?;
        self.plan.clipping.update(step, &fractions);
        if self.next_step < self.plan.steps() {
            let (purpose, step) = (Purpose::Gradient, self.next_step);
            self.ahead = self.plan.source.draw_ahead(purpose, step, &lengths, ahead);
        }
        Ok(grads)
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
        Ok(statement)
    }

    /// Adds a public fact of this run to its statements.
    pub(crate) fn note(&mut self, name: &str, value: impl Into<String>) {
        self.facts.insert(name.into(), value.into());
    }
}

/// A thread panicked while it wrote the log.
pub(crate) fn poisoned() -> DpError {
    DpError::state("the log of releases is unusable after a panic; resume from the last checkpoint")
}

/// The clipping of one physical batch, which any thread may do.
pub(crate) struct ClipTask {
    backward: PrivateBackward,
    probe: Option<Probe>,
    thresholds: Thresholds,
}

impl ClipTask {
    /// The clipped sum, and the probe to give [back](PrivacyEngine::end_task) whatever the outcome.
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
