//! The plan of a run.
//!
//! Length: the numbers of a plan, and all readers that must agree with them, are one type.

use std::collections::BTreeMap;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;
use burn_dp_accountant::{
    Budget, DpEvent, LedgerHeader, NeighboringRelation, NoiseProvenance as LedgerNoise,
    PrivacyLedger, Simulation, UnitOfPrivacy,
};

use super::correlated::{CorrelatedPlan, event_of_step};
use super::earlier::Earlier;
use super::owner_limit::OwnerLimit;
use super::{PUBLIC_DATA, SamplingScheme};
use crate::DpError;
use crate::clipping::{Clipping, Seal, StepNoise};
use crate::noise::CorrelatedNoise;
use crate::random::{Key, NoiseSource};
use crate::sampling::{
    DistinctRecords, LogicalBatches, PrivateDataLoaderBuilder, RecordFacts, Sampler,
    SamplingMechanism,
};
use crate::schedule::Schedule;
use crate::updates::MiniSets;

/// The numbers of a private training run, from which the sampler, clipping, noise, and accounting
/// are derived.
///
/// Created by [`PrivacyPlanConfig`](super::PrivacyPlanConfig). A plan is one run: it holds the
/// run's key and cannot be cloned.
#[derive(Debug)]
pub struct PrivacyPlan {
    pub(crate) dataset_size: usize,
    pub(crate) expected_batch_size: f64,
    pub(crate) steps: u64,
    pub(crate) budget: Option<Budget>,
    pub(crate) noise_multiplier: f64,
    pub(crate) noise_schedule: Schedule,
    /// The events of all planned steps, in order, run-length encoded.
    pub(crate) planned: Vec<(DpEvent, u64)>,
    /// Whether all of them together were checked against the budget.
    pub(crate) certified: bool,
    pub(crate) clipping: Box<dyn Clipping>,
    pub(crate) scheme: SamplingScheme,
    pub(crate) mechanism: SamplingMechanism,
    pub(crate) relation: NeighboringRelation,
    pub(crate) origin: u64,
    pub(crate) unit: UnitOfPrivacy,
    pub(crate) mini_sets: Option<MiniSets>,
    pub(crate) correlated: Option<CorrelatedPlan>,
    pub(crate) owners: Option<OwnerLimit>,
    pub(crate) simulation: Option<Simulation>,
    /// Earlier releases on the same data; every ledger of the run begins with them.
    pub(crate) earlier: Earlier,
    pub(crate) source: NoiseSource,
}

impl PrivacyPlan {
    /// Returns the number of units.
    pub fn dataset_size(&self) -> usize {
        self.dataset_size
    }

    /// Returns the expected number of units in a step, by which the noisy sum is divided.
    pub fn expected_batch_size(&self) -> f64 {
        self.expected_batch_size
    }

    /// Returns the probability that a given unit takes part in a given step.
    pub fn sampling_probability(&self) -> f64 {
        self.expected_batch_size / self.dataset_size as f64
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of steps in which every unit takes part once on average, at least 1: what
    /// programs call an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        (1.0 / self.sampling_probability()).round().max(1.0) as u64
    }

    /// Returns the budget, if one was given.
    pub fn budget(&self) -> Option<Budget> {
        self.budget
    }

    /// Returns the standard deviation of the noise over the clipping threshold, before a schedule
    /// changes it. If groups are clipped separately or counts are released, this is the multiplier
    /// of the one Gaussian release that costs the same.
    pub fn noise_multiplier(&self) -> f64 {
        self.noise_multiplier
    }

    /// Returns the noise multiplier of one step.
    pub fn noise_multiplier_at(&self, step: u64) -> f64 {
        self.noise_multiplier * self.noise_schedule.factor(step)
    }

    /// Returns the clipping policy in its current state.
    pub fn clipping(&self) -> &dyn Clipping {
        &*self.clipping
    }

    /// Returns how units are drawn.
    pub fn sampling(&self) -> SamplingScheme {
        self.scheme
    }

    /// Returns the neighboring relation.
    pub fn relation(&self) -> NeighboringRelation {
        self.relation
    }

    /// Returns the unit of privacy.
    pub fn unit(&self) -> &UnitOfPrivacy {
        &self.unit
    }

    /// Returns the mini-sets that a step draws, in batch clipping.
    pub fn mini_sets(&self) -> Option<&MiniSets> {
        self.mini_sets.as_ref()
    }

    /// Returns the key of the run, for its draws.
    pub(crate) fn key(&self) -> &Key {
        self.source.key()
    }

    /// Returns whether the noise is secret. If not, nothing of the run is private.
    pub fn is_secure(&self) -> bool {
        self.source.is_secure()
    }

    /// Returns the event of the first step, and of every other step unless the noise has a schedule
    /// or is correlated.
    pub fn event(&self) -> DpEvent {
        match self.planned.first() {
            Some((event, _)) => event.clone(),
            None => self.mechanism.event(DpEvent::gaussian(self.noise_multiplier)),
        }
    }

    /// Returns the event of `step` with this noise.
    pub(crate) fn event_of(&self, step: u64, noise: &StepNoise) -> Result<DpEvent, DpError> {
        if let Some(correlated) = &self.correlated {
            correlated.check_release(noise)?;
        }
        let examples = self.owners.map_or(1, |owners| owners.examples_of(&self.unit));
        event_of_step(self.correlated.as_ref(), &self.mechanism, examples, step, &noise.event)
    }

    /// Returns the state that correlates the noise of the steps, before the first step.
    pub(crate) fn correlated_noise(&self) -> Option<CorrelatedNoise> {
        self.correlated.as_ref().and_then(CorrelatedPlan::noise)
    }

    /// Returns whether the plan as a whole keeps the budget and the run followed it up to `event`
    /// of `step`. If so, ε need not be computed, because a part costs no more than the whole.
    pub(crate) fn is_certified(&self, step: u64, event: &DpEvent, ledger: &PrivacyLedger) -> bool {
        self.certified && self.planned_event(step).as_ref() == Some(event) && self.is_prefix(ledger)
    }

    pub(crate) fn planned_event(&self, step: u64) -> Option<DpEvent> {
        let mut first = 0;
        self.planned.iter().find_map(|(event, count)| {
            let found = (step < first + count).then(|| event.advanced(step - first));
            first += count;
            found
        })
    }

    /// Returns whether the ledger holds the earlier releases and the first of the planned events,
    /// in order, and nothing else.
    pub(crate) fn is_prefix(&self, ledger: &PrivacyLedger) -> bool {
        if !self.earlier.entries.is_empty() {
            return self.earlier.is_prefix(&self.planned, ledger);
        }
        let Some((last, before)) = ledger.entries().split_last() else { return true };
        let mut planned = self.planned.iter();
        let whole = before.iter().all(|entry| {
            let next = planned.next();
            next.is_some_and(|(event, count)| *event == entry.event && *count == entry.count)
        });
        let next = planned.next();
        whole && next.is_some_and(|(event, count)| *event == last.event && last.count <= *count)
    }

    /// Returns how many releases of a ledger of the run are its own, after the earlier ones.
    pub fn own_releases(&self, ledger: &PrivacyLedger) -> u64 {
        self.earlier.own_releases(ledger)
    }

    /// Returns the ledger with this header before the first step: with the earlier releases.
    pub(crate) fn ledger_of(&self, header: LedgerHeader) -> PrivacyLedger {
        self.earlier.ledger(header)
    }

    /// Returns an upper bound on ε after all steps, including the releases
    /// [before](super::PrivacyPlanConfig::with_earlier_releases) the run, as if the noise were
    /// secret.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Accountant`] if δ is outside (0, 1).
    pub fn epsilon_at_end(&self, delta: f64) -> Result<f64, DpError> {
        let mut ledger = self.new_ledger();
        for (event, count) in &self.planned {
            ledger.record_many(event, *count)?;
        }
        Ok(ledger.nominal_epsilon(delta)?.upper)
    }

    /// Returns the sampler of the run. Its draws follow from the key of the run.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the scheme cannot draw such batches.
    pub fn sampler(&self) -> Result<Box<dyn Sampler>, DpError> {
        self.scheme.sampler(self.dataset_size, self.expected_batch_size, self.key())
    }

    /// Returns the batches of the run, which are loaded on `device`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `dataset` does not have the length of the plan, or
    /// has [items of another unit](DistinctRecords::unit) or
    /// [other mini-sets or examples](DistinctRecords::members).
    pub fn batches<D, I, O, E>(
        &self,
        dataset: D,
        batcher: impl Batcher<I, O> + 'static,
        device: &Device,
    ) -> Result<LogicalBatches<O>, DpError>
    where
        D: DistinctRecords<I, E> + 'static,
        I: Send + 'static,
        O: Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        self.check_dataset(&RecordFacts::of(&dataset))?;
        let builder = PrivateDataLoaderBuilder::new(batcher).with_device(device.clone());
        builder.build(dataset, self.sampler()?, self.steps)
    }

    /// Returns an error if the items of a data set are known to be another unit than the plan
    /// draws, other mini-sets, or another selection of owned examples.
    pub(crate) fn check_dataset(&self, records: &RecordFacts) -> Result<(), DpError> {
        self.check_unit(records.unit.as_ref())?;
        let sets = self.mini_sets.as_ref().map(MiniSets::members_in_words);
        let planned = sets.or_else(|| self.owners.map(OwnerLimit::members));
        match (planned, &records.members) {
            (Some(planned), Some(found)) if planned != *found => Err(DpError::invalid(
                "dataset",
                "has other mini-sets, or another selection of owned examples, than the plan; \
                 create it from the `MiniSets` or `OwnedExamples` of the plan (the same seed and \
                 size)",
            )),
            _ => Ok(()),
        }
    }

    /// Returns whether the plan divides or selects examples, and `records` do not say how theirs
    /// are.
    pub(crate) fn misses_members(&self, records: &RecordFacts) -> bool {
        (self.mini_sets.is_some() || self.owners.is_some()) && records.members.is_none()
    }

    /// A unit in words cannot be compared.
    fn check_unit(&self, items: Option<&UnitOfPrivacy>) -> Result<(), DpError> {
        let drawn = match &self.unit {
            _ if self.owners.is_some() => &UnitOfPrivacy::Example,
            _ if self.mini_sets.is_some() => &UnitOfPrivacy::MiniSet,
            UnitOfPrivacy::Other(_) => return Ok(()),
            unit => unit,
        };
        let Some(items) = items.filter(|&items| items != drawn) else { return Ok(()) };
        let way_out = match items {
            UnitOfPrivacy::User => "`with_unit(UnitOfPrivacy::User)`",
            UnitOfPrivacy::MiniSet => "`PrivacyPlanConfig::for_mini_sets`",
            UnitOfPrivacy::Example => "`PrivacyPlanConfig::for_owned_examples`",
            _ => "`with_unit`",
        };
        Err(DpError::invalid(
            "dataset",
            format!(
                "has items that are {items}, but the plan draws {drawn}; plan with {way_out}, or \
                 pass a data set whose items are {drawn}"
            ),
        ))
    }

    /// Returns whether the guarantee relies on an index being the same record in all steps: if not,
    /// each step draws anew from all units.
    pub(crate) fn binds_records(&self) -> bool {
        let draws_anew = matches!(
            self.scheme,
            SamplingScheme::Poisson
                | SamplingScheme::TruncatedPoisson { .. }
                | SamplingScheme::FixedSize
                | SamplingScheme::WithReplacement
        );
        !draws_anew || self.mini_sets.is_some() || self.owners.is_some()
    }

    /// Returns whether code of the program computes the thresholds or the factors of the noise: a
    /// policy that is not of this crate, or a schedule that is a function.
    pub(crate) fn has_own_policy(&self) -> bool {
        // Such settings cannot be saved as data.
        let clipping = self.clipping.to_config(Seal).map(serde_json::to_value);
        !matches!(clipping, Some(Ok(_))) || serde_json::to_value(&self.noise_schedule).is_err()
    }

    /// Returns an error if δ would allow publishing a unit outright.
    pub(crate) fn check_delta(&self, delta: f64) -> Result<(), DpError> {
        let units = self.mini_sets.as_ref().map_or(self.dataset_size, MiniSets::examples);
        check_delta(self.owners.map_or(units, |owners| owners.units(units)), delta)
    }

    /// Returns every number of the plan, by name, which a checkpoint compares.
    pub(crate) fn fingerprint(&self) -> BTreeMap<String, String> {
        let budget = self.budget.map_or("none".to_string(), |budget| {
            format!("epsilon {}, delta {}", budget.epsilon(), budget.delta())
        });
        let correlated =
            self.correlated.as_ref().map_or("none".into(), CorrelatedPlan::fingerprint);
        let mini_sets = self.mini_sets.as_ref().map_or("none".to_string(), |sets| {
            format!("{} examples in sets of {}, {}", sets.examples(), sets.size(), sets.digest())
        });
        [
            ("mini_sets", mini_sets),
            ("dataset_size", self.dataset_size.to_string()),
            ("expected_batch_size", self.expected_batch_size.to_string()),
            ("steps", self.steps.to_string()),
            ("budget", budget),
            ("noise_multiplier", self.noise_multiplier.to_string()),
            ("noise_schedule", self.noise_schedule.to_string()),
            ("clipping", self.clipping.describe()),
            ("sampling", self.mechanism.to_string()),
            ("unit", self.unit.to_string()),
            ("correlated_noise", correlated),
            ("secure", self.is_secure().to_string()),
        ]
        .into_iter()
        .chain(self.owners.map(|owners| ("owners", format!("{owners:?}"))))
        .chain(self.simulation.map(|simulation| ("simulation", simulation.to_string())))
        .chain(self.earlier.in_words().map(|earlier| ("earlier_releases", earlier)))
        .map(|(name, value)| (name.to_string(), value))
        .collect()
    }

    /// Returns the ledger before the first step: the earlier releases, if any.
    pub(crate) fn new_ledger(&self) -> PrivacyLedger {
        let noise = match self.is_secure() {
            true => LedgerNoise::Secure,
            false => LedgerNoise::Insecure { reason: "the noise follows from a known seed".into() },
        };
        let mut header = LedgerHeader::new(self.unit.clone(), self.relation())
            .with_sampler(self.mechanism.to_string())
            .with_simulation(self.simulation)
            .with_clipping(self.clipping.describe())
            .with_noise_source(noise)
            .with_fact("dataset_size", self.dataset_size)
            .with_fact("expected_batch_size", self.expected_batch_size)
            .with_fact("planned_steps", self.steps)
            .with_fact("noise_multiplier", self.noise_multiplier)
            .with_fact("noise_schedule", &self.noise_schedule)
            .with_not_covered(
                "The rounding of the sum of clipped gradients, which is in single precision before \
                 the noise is added in integers.",
            )
            .with_fact("noise", "Gaussian on a grid, ChaCha12, keyed by run, step and parameter");
        if let Some(correlated) = &self.correlated {
            header = header.with_fact("correlated_noise", correlated);
        }
        let mut public: Vec<String> = Vec::new();
        for origin in self.clipping.public_data() {
            if !public.contains(&origin) {
                public.push(origin);
            }
        }
        if !public.is_empty() {
            header = header.with_fact(PUBLIC_DATA, public.join("; "));
        }
        if let Some(sets) = &self.mini_sets {
            header = self.describe_mini_sets(sets, header);
        }
        if let Some(owners) = self.owners {
            header = owners.describe(&self.unit, header);
        }
        self.earlier.ledger(header)
    }

    fn describe_mini_sets(&self, sets: &MiniSets, header: LedgerHeader) -> LedgerHeader {
        let header = sets.describe(header.with_fact("mini_sets", sets.len()));
        match self.unit {
            UnitOfPrivacy::MiniSet => header.with_not_covered(
                "A single example that is replaced changes its mini-set, which is one mini-set \
                 removed and another added: two steps of the relation, so for one example epsilon \
                 doubles and delta grows by the factor 1 + exp(epsilon). A single example that is \
                 added or removed changes the number of examples, from which the members of all \
                 mini-sets follow: no bound is stated for it.",
            ),
            _ => header,
        }
    }
}

/// Returns an error if δ would allow publishing a unit outright.
pub(crate) fn check_delta(dataset_size: usize, delta: f64) -> Result<(), DpError> {
    let largest = 1.0 / dataset_size as f64;
    if delta < largest {
        return Ok(());
    }
    Err(DpError::invalid(
        "delta",
        format!(
            "must be below 1 / dataset_size = {largest:e}, got {delta:e}: such a delta would \
             allow publishing a unit outright"
        ),
    ))
}
