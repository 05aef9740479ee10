use burn_dp_accountant::{Budget, Calibration, DpEvent, NeighboringRelation, UnitOfPrivacy};

use super::{PrivacyPlan, Schedule};
use crate::DpError;
use crate::clipping::{Clipping, FlatClipping};
use crate::noise::{InsecureSeed, NoiseSource, Purpose};
use crate::sampling::{
    FixedSizeSampler, PoissonSampler, Sampler, SamplingKey, SamplingMechanism, ShuffledSampler,
};
use crate::units::MiniSets;

/// A calibrated multiplier is rounded up by this factor, so that the rounding of its division among
/// a sum and counts does not break the budget in the last step.
const SPLIT_ROUNDING: f64 = 1.0 + 1e-12;

/// How the units of a step are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SamplingScheme {
    /// Every unit independently with probability q. Neighbours differ by one unit added or removed.
    Poisson,
    /// A uniform subset of exactly the expected batch size. Neighbours differ by one unit replaced.
    FixedSize,
    /// Consecutive parts of a permutation. Gives no amplification: ε is that of steps which all see
    /// every unit. Neighbours differ by one unit replaced.
    Shuffled,
}

impl SamplingScheme {
    /// The sampler of the scheme, with a key derived from that of the run.
    pub(super) fn sampler(
        self,
        dataset_size: usize,
        expected_batch_size: f64,
        source: &NoiseSource,
    ) -> Result<Box<dyn Sampler>, DpError> {
        let key = SamplingKey::from_secret(*source.derive_key(Purpose::Sampling));
        let key = if source.is_secure() { key } else { key.into_insecure() };
        let batch = expected_batch_size;
        Ok(match self {
            Self::Poisson => Box::new(
                PoissonSampler::with_expected_batch_size(dataset_size, batch)?.with_key(key),
            ),
            Self::FixedSize => {
                Box::new(FixedSizeSampler::new(dataset_size, batch as usize)?.with_key(key))
            }
            Self::Shuffled => {
                Box::new(ShuffledSampler::new(dataset_size, batch as usize)?.with_key(key))
            }
        })
    }
}

/// Configuration of a [`PrivacyPlan`].
///
/// The length of the training is given with [`with_steps`](Self::with_steps) or
/// [`with_epochs`](Self::with_epochs), and either a budget, to which the noise is calibrated, or the
/// noise multiplier, or both: then the training stops before the step that would break the budget.
#[derive(Clone, Debug)]
pub struct PrivacyPlanConfig {
    dataset_size: usize,
    expected_batch_size: f64,
    steps: Option<u64>,
    epochs: Option<f64>,
    budget: Option<Budget>,
    noise_multiplier: Option<f64>,
    noise_schedule: Schedule,
    max_grad_norm: Option<f64>,
    clipping: Option<Box<dyn Clipping>>,
    scheme: SamplingScheme,
    unit: UnitOfPrivacy,
    insecure_seed: Option<InsecureSeed>,
    mini_sets: Option<MiniSets>,
}

impl PrivacyPlanConfig {
    /// A plan for a data set of so many units, with that expected number of them in a step.
    ///
    /// # Privacy
    ///
    /// Both numbers are treated as public.
    pub fn new(dataset_size: usize, expected_batch_size: impl Into<f64>) -> Self {
        Self {
            dataset_size,
            expected_batch_size: expected_batch_size.into(),
            steps: None,
            epochs: None,
            budget: None,
            noise_multiplier: None,
            noise_schedule: Schedule::constant(),
            max_grad_norm: None,
            clipping: None,
            scheme: SamplingScheme::Poisson,
            unit: UnitOfPrivacy::Example,
            insecure_seed: None,
            mini_sets: None,
        }
    }

    /// A plan for batch clipping: the units that a step draws, `expected_mini_sets` of them in the
    /// mean, are mini-sets.
    ///
    /// # Privacy
    ///
    /// With fixed-size sampling the guarantee is for one example replaced. With Poisson sampling it is
    /// for one whole mini-set added or removed, unless a mini-set is one example; see [`MiniSets`].
    pub fn for_mini_sets(mini_sets: &MiniSets, expected_mini_sets: impl Into<f64>) -> Self {
        let mini_sets = mini_sets.clone();
        let config = Self::new(mini_sets.len(), expected_mini_sets);
        Self { mini_sets: Some(mini_sets), ..config }
    }

    /// Number of steps.
    pub fn with_steps(mut self, steps: u64) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Number of expected passes over the data, rounded to whole steps.
    pub fn with_epochs(mut self, epochs: impl Into<f64>) -> Self {
        self.epochs = Some(epochs.into());
        self
    }

    /// The budget that the training may spend.
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Standard deviation of the noise over the clipping norm.
    ///
    /// Where groups are clipped apart or units are counted, this is the multiplier of the one Gaussian
    /// release that costs the same, `(Σ (C_h/σ_h)²)^(-1/2)`: L groups with a multiplier σ each have
    /// `σ/√L`.
    pub fn with_noise_multiplier(mut self, noise_multiplier: f64) -> Self {
        self.noise_multiplier = Some(noise_multiplier);
        self
    }

    /// How the noise multiplier changes over the steps. The ledger gets the multiplier of each step. A
    /// budget is calibrated for the whole schedule. Default: it stays.
    pub fn with_noise_schedule(mut self, schedule: Schedule) -> Self {
        self.noise_schedule = schedule;
        self
    }

    /// Threshold of flat clipping. Default: 1.
    pub fn with_max_grad_norm(mut self, max_grad_norm: f64) -> Self {
        self.max_grad_norm = Some(max_grad_norm);
        self
    }

    /// The clipping policy. Default: [`FlatClipping`].
    pub fn with_clipping(mut self, clipping: impl Clipping + 'static) -> Self {
        self.clipping = Some(Box::new(clipping));
        self
    }

    /// How units are drawn. Default: Poisson.
    pub fn with_sampling(mut self, scheme: SamplingScheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// What one item of the data set is. Default: an example.
    pub fn with_unit(mut self, unit: UnitOfPrivacy) -> Self {
        self.unit = unit;
        self
    }

    /// Takes all randomness from a known seed.
    ///
    /// # Privacy
    ///
    /// None: the ledger of such a run reports that it is not private. For tests and for experiments on
    /// public data.
    pub fn with_insecure_seed(mut self, seed: InsecureSeed) -> Self {
        self.insecure_seed = Some(seed);
        self
    }

    /// Checks the configuration, calibrates the noise, and takes a key from the operating system.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] naming the value that cannot be used, [`DpError::Accountant`] when
    /// no noise reaches the budget, [`DpError::Entropy`] when there is none.
    pub fn init(self) -> Result<PrivacyPlan, DpError> {
        let steps = self.check_steps()?;
        let clipping = self.clipping()?;
        self.check_batch()?;
        if let Some(budget) = self.budget {
            let examples = self.mini_sets.as_ref().map_or(self.dataset_size, MiniSets::examples);
            check_delta(examples, budget.delta())?;
        }
        let source = match self.insecure_seed {
            Some(seed) => NoiseSource::insecure(seed),
            None => NoiseSource::from_os()?,
        };
        let (size, batch) = (self.dataset_size, self.expected_batch_size);
        let sampler = self.scheme.sampler(size, batch, &source)?;
        let (mechanism, origin) = (sampler.mechanism(), sampler.origin());
        let unit = self.resolved_unit(mechanism.relation())?;
        let runs = self.noise_schedule.runs(steps);
        let noise_multiplier = self.noise_multiplier(&runs, &mechanism)?;
        let thresholds = clipping.thresholds(0)?;
        let planned = runs
            .iter()
            .map(|&(factor, count)| {
                let noise = thresholds.noise(noise_multiplier * factor, batch)?;
                Ok((mechanism.event(noise.event), count))
            })
            .collect::<Result<Vec<_>, DpError>>()?;
        let mut plan = PrivacyPlan {
            dataset_size: self.dataset_size,
            expected_batch_size: self.expected_batch_size,
            steps,
            budget: self.budget,
            noise_multiplier,
            noise_schedule: self.noise_schedule,
            planned,
            certified: false,
            clipping,
            scheme: self.scheme,
            mechanism,
            origin,
            unit,
            mini_sets: self.mini_sets,
            source,
        };
        // Where every step is the same, the ledger knows how many of them fit.
        if let Some(budget) = plan.budget
            && plan.planned.len() > 1
        {
            plan.certified = plan.epsilon_at_end(budget.delta())? <= budget.epsilon();
        }
        Ok(plan)
    }

    fn clipping(&self) -> Result<Box<dyn Clipping>, DpError> {
        match (&self.clipping, self.max_grad_norm) {
            (Some(clipping), None) => Ok(clipping.clone()),
            (None, norm) => Ok(Box::new(FlatClipping::new(norm.unwrap_or(1.0))?)),
            (Some(clipping), Some(norm)) => Err(DpError::invalid(
                "max_grad_norm",
                format!(
                    "{norm} and a clipping policy ({}) were both given; give one of them",
                    clipping.describe()
                ),
            )),
        }
    }

    /// What the relation protects, where mini-sets are drawn.
    fn resolved_unit(&self, relation: NeighboringRelation) -> Result<UnitOfPrivacy, DpError> {
        let Some(mini_sets) = &self.mini_sets else { return Ok(self.unit.clone()) };
        let one_example = mini_sets.size() == 1 || relation == NeighboringRelation::ReplaceOne;
        match &self.unit {
            UnitOfPrivacy::Example if one_example => Ok(UnitOfPrivacy::Example),
            UnitOfPrivacy::Example | UnitOfPrivacy::MiniSet => Ok(UnitOfPrivacy::MiniSet),
            other => Err(DpError::invalid(
                "unit",
                format!("is {other}, but the plan draws mini-sets of examples; leave it out"),
            )),
        }
    }

    fn check_batch(&self) -> Result<(), DpError> {
        let (size, batch) = (self.dataset_size, self.expected_batch_size);
        if size == 0 {
            return Err(DpError::invalid("dataset_size", "must be at least 1, got 0"));
        }
        if !(batch > 0.0 && batch <= size as f64) {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!("must be positive and at most dataset_size = {size}, got {batch}"),
            ));
        }
        if self.scheme != SamplingScheme::Poisson && batch.fract() != 0.0 {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!("must be a whole number unless sampling is Poisson, got {batch}"),
            ));
        }
        Ok(())
    }

    fn check_steps(&self) -> Result<u64, DpError> {
        match (self.steps, self.epochs) {
            (Some(0), _) => Err(DpError::invalid("steps", "must be at least 1, got 0")),
            (Some(steps), None) => Ok(steps),
            (None, Some(epochs)) if epochs > 0.0 && epochs.is_finite() => {
                let steps = epochs * self.dataset_size as f64 / self.expected_batch_size;
                Ok((steps.round() as u64).max(1))
            }
            (None, Some(epochs)) => Err(DpError::invalid(
                "epochs",
                format!("must be positive and finite, got {epochs}"),
            )),
            (Some(steps), Some(epochs)) => Err(DpError::invalid(
                "steps",
                format!("and epochs were both given ({steps} and {epochs}); give one of them"),
            )),
            (None, None) => {
                Err(DpError::invalid("steps", "or epochs must be given: the noise depends on them"))
            }
        }
    }

    /// The noise multiplier before the schedule.
    fn noise_multiplier(
        &self,
        runs: &[(f64, u64)],
        mechanism: &SamplingMechanism,
    ) -> Result<f64, DpError> {
        match (self.noise_multiplier, self.budget) {
            (Some(sigma), _) if sigma > 0.0 && sigma.is_finite() => Ok(sigma),
            (Some(sigma), _) => Err(DpError::invalid(
                "noise_multiplier",
                format!(
                    "must be positive and finite, got {sigma}; without noise nothing is private, \
                     train the plain model instead if that is meant"
                ),
            )),
            (None, Some(budget)) => {
                let calibration = Calibration::new(budget).with_relation(mechanism.relation());
                let event = |sigma: f64| mechanism.event(DpEvent::gaussian(sigma));
                if let [(1.0, steps)] = *runs {
                    return Ok(calibration.noise_multiplier(steps, event)? * SPLIT_ROUNDING);
                }
                let whole = |sigma: f64| DpEvent::Composed {
                    events: runs
                        .iter()
                        .map(|&(factor, count)| {
                            DpEvent::self_composed(event(sigma * factor), count)
                        })
                        .collect(),
                };
                Ok(calibration.noise_multiplier(1, whole)? * SPLIT_ROUNDING)
            }
            (None, None) => Err(DpError::invalid(
                "budget",
                "or noise_multiplier must be given: without either there is no noise",
            )),
        }
    }
}

/// Refuses a δ that allows to publish a unit outright.
pub(super) fn check_delta(dataset_size: usize, delta: f64) -> Result<(), DpError> {
    let largest = 1.0 / dataset_size as f64;
    if delta < largest {
        return Ok(());
    }
    Err(DpError::invalid(
        "delta",
        format!(
            "must be below 1 / dataset_size = {largest:e}, got {delta:e}: such a delta allows to \
             publish a unit outright"
        ),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config() -> PrivacyPlanConfig {
        PrivacyPlanConfig::new(10_000, 100.0).with_steps(500)
    }

    fn refused(config: PrivacyPlanConfig) -> String {
        config.init().unwrap_err().to_string()
    }

    #[test]
    fn a_budget_becomes_a_noise_multiplier_that_keeps_it() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let plan = config().with_budget(budget).init().unwrap();
        let spent = plan.epsilon_at_end(1e-5).unwrap();
        assert!(spent <= 2.0 && spent > 1.99, "{spent}");
    }

    #[test]
    fn epochs_become_whole_steps() {
        let config = PrivacyPlanConfig::new(1000, 30.0).with_noise_multiplier(1.0);
        assert_eq!(config.clone().with_epochs(3.0).init().unwrap().steps(), 100);
        assert_eq!(config.with_epochs(0.001).init().unwrap().steps(), 1);
    }

    #[test]
    fn impossible_configurations_are_refused_by_name() {
        let noisy = || config().with_noise_multiplier(1.0);
        for (config, name) in [
            (
                PrivacyPlanConfig::new(0, 1.0).with_steps(1).with_noise_multiplier(1.0),
                "dataset_size",
            ),
            (PrivacyPlanConfig::new(10, 11.0).with_steps(1).with_noise_multiplier(1.0), "batch"),
            (PrivacyPlanConfig::new(10, 0.0).with_steps(1).with_noise_multiplier(1.0), "batch"),
            (
                PrivacyPlanConfig::new(10, 2.5)
                    .with_steps(1)
                    .with_noise_multiplier(1.0)
                    .with_sampling(SamplingScheme::FixedSize),
                "whole number",
            ),
            (config().with_noise_multiplier(0.0), "noise_multiplier must be positive"),
            (config().with_noise_multiplier(f64::NAN), "noise_multiplier must be positive"),
            (config(), "budget"),
            (noisy().with_epochs(1.0), "give one of them"),
            (noisy().with_steps(0), "steps"),
            (noisy().with_max_grad_norm(0.0), "max_grad_norm"),
            (PrivacyPlanConfig::new(10, 5.0).with_noise_multiplier(1.0), "steps or epochs"),
        ] {
            let error = refused(config);
            assert!(error.contains(name), "{error} does not mention {name}");
        }
    }

    #[test]
    fn a_delta_that_allows_to_publish_a_unit_is_refused() {
        let error = refused(config().with_budget(Budget::new(1.0, 1e-4).unwrap()));
        assert!(error.contains("1 / dataset_size"), "{error}");
    }

    // Sharp edge: the relation decides what a mini-set protects.
    #[test]
    fn what_mini_sets_protect_follows_from_the_relation() {
        let sets = MiniSets::consecutive(1000, 10).unwrap();
        let plan = |sets: &MiniSets, scheme| {
            PrivacyPlanConfig::for_mini_sets(sets, 5.0)
                .with_noise_multiplier(1.0)
                .with_steps(3)
                .with_sampling(scheme)
        };
        let fixed = plan(&sets, SamplingScheme::FixedSize).init().unwrap();
        assert_eq!(fixed.unit, UnitOfPrivacy::Example);
        assert_eq!(fixed.relation(), NeighboringRelation::ReplaceOne);
        assert_eq!((fixed.dataset_size(), fixed.expected_batch_size()), (100, 5.0));
        let poisson = plan(&sets, SamplingScheme::Poisson).init().unwrap();
        assert_eq!(poisson.unit, UnitOfPrivacy::MiniSet);
        let not_covered = poisson.new_ledger().header().not_covered.join(" ");
        assert!(not_covered.contains("one mini-set removed and another added"), "{not_covered}");
        let single = MiniSets::consecutive(1000, 1).unwrap();
        let single = plan(&single, SamplingScheme::Poisson).init().unwrap();
        assert_eq!(single.unit, UnitOfPrivacy::Example);
        let user = plan(&sets, SamplingScheme::Poisson).with_unit(UnitOfPrivacy::User);
        assert!(refused(user).starts_with("unit is one user"));
        // There are 1000 examples, not 100: a larger delta would allow to publish one.
        let budget = Budget::new(1.0, 0.002).unwrap();
        let error = refused(plan(&sets, SamplingScheme::FixedSize).with_budget(budget));
        assert!(error.contains("1 / dataset_size = 1e-3"), "{error}");
    }

    #[test]
    fn replacement_costs_more_than_addition_and_shuffling_is_not_amplified() {
        let epsilon = |scheme| {
            let plan = config().with_noise_multiplier(4.0).with_sampling(scheme).init().unwrap();
            plan.epsilon_at_end(1e-5).unwrap()
        };
        let poisson = epsilon(SamplingScheme::Poisson);
        let fixed = epsilon(SamplingScheme::FixedSize);
        let shuffled = epsilon(SamplingScheme::Shuffled);
        assert!(poisson < fixed && fixed < shuffled, "{poisson} {fixed} {shuffled}");
    }
}
