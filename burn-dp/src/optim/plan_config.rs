use burn_dp_accountant::{Budget, UnitOfPrivacy};

use super::SamplingScheme;
use crate::clipping::Clipping;
use crate::random::InsecureSeed;
use crate::schedule::Schedule;
use crate::updates::MiniSets;

/// Configuration of a [`PrivacyPlan`](super::PrivacyPlan).
///
/// The length of the training is given with [`with_steps`](Self::with_steps) or
/// [`with_epochs`](Self::with_epochs), and either a budget, to which the noise is calibrated, or the
/// noise multiplier, or both: then the training stops before the step that would break the budget.
#[derive(Clone, Debug)]
pub struct PrivacyPlanConfig {
    pub(crate) dataset_size: usize,
    pub(crate) expected_batch_size: f64,
    pub(crate) steps: Option<u64>,
    pub(crate) epochs: Option<f64>,
    pub(crate) budget: Option<Budget>,
    pub(crate) noise_multiplier: Option<f64>,
    pub(crate) noise_schedule: Schedule,
    pub(crate) max_grad_norm: Option<f64>,
    pub(crate) clipping: Option<Box<dyn Clipping>>,
    pub(crate) scheme: SamplingScheme,
    pub(crate) unit: UnitOfPrivacy,
    pub(crate) insecure_seed: Option<InsecureSeed>,
    pub(crate) mini_sets: Option<MiniSets>,
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

    /// The clipping policy. Default: [`FlatClipping`](crate::clipping::FlatClipping).
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
}
