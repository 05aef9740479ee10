use std::io::{self, Write};
use std::path::Path;

use burn::config::{Config, ConfigError};
use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_accountant::{Budget, PrivacyLedger, Simulation, UnitOfPrivacy, strict_json};
use serde::{Deserialize, Serialize};

use super::SamplingScheme;
use super::earlier::EarlierReleases;
use super::owner_limit::OwnerLimit;
use crate::clipping::Clipping;
use crate::random::InsecureSeed;
use crate::sampling::OwnedExamples;
use crate::schedule::Schedule;
use crate::updates::MiniSets;

/// Configuration of a [`PrivacyPlan`](super::PrivacyPlan).
///
/// Set the length of the training with [`with_steps`](Self::with_steps) or
/// [`with_epochs`](Self::with_epochs), and either a budget, to which the noise is calibrated, or
/// the noise multiplier. With both, the training stops before the step that would exceed the
/// budget.
///
/// It is a [`Config`] of Burn: [`save`](Config::save) writes it as JSON and [`load`](Config::load)
/// reads it, with the [clipping policy](Self::with_clipping) and the description of the public data
/// that it was created from. Two settings are not data, and `save` returns an error for a
/// configuration that has them: a [`Schedule::function`], and a policy that is not of this crate.
/// Leave them out, and set them after loading.
///
/// # Example
///
/// ```
/// use burn::config::Config;
/// use burn_dp::optim::PrivacyPlanConfig;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("plan.json");
/// let config = PrivacyPlanConfig::new(1000, 50.0).with_steps(20).with_noise_multiplier(1.0);
/// config.save(&path).unwrap();
/// let plan = PrivacyPlanConfig::load(&path).unwrap().init().unwrap();
/// assert_eq!(plan.steps(), 20);
/// ```
// No `derive(Config)`, because its builders would take `Option`s (`with_steps(Some(20))`).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyPlanConfig {
    pub(crate) dataset_size: usize,
    pub(crate) expected_batch_size: f64,
    #[serde(default)]
    pub(crate) steps: Option<u64>,
    #[serde(default)]
    pub(crate) epochs: Option<f64>,
    #[serde(default)]
    pub(crate) budget: Option<Budget>,
    #[serde(default)]
    pub(crate) noise_multiplier: Option<f64>,
    #[serde(default)]
    pub(crate) noise_schedule: Schedule,
    #[serde(default)]
    pub(crate) max_grad_norm: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clipping: Option<Box<dyn Clipping>>,
    #[serde(default)]
    pub(crate) sampling: SamplingScheme,
    #[serde(default = "example")]
    pub(crate) unit: UnitOfPrivacy,
    #[serde(default)]
    pub(crate) insecure_seed: Option<u64>,
    #[serde(default)]
    pub(crate) mini_sets: Option<MiniSets>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlated_noise: Option<Strategy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) noise_memory: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) simulation: Option<Simulation>,
    #[serde(default, skip_serializing_if = "EarlierReleases::is_empty")]
    pub(crate) earlier: EarlierReleases,
    #[serde(default)]
    pub(crate) owners: Option<OwnerLimit>,
}

fn example() -> UnitOfPrivacy {
    UnitOfPrivacy::Example
}

impl Config for PrivacyPlanConfig {
    /// Saves the configuration as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, and for a clipping policy that is not of
    /// this crate, a function as schedule, or a number that is not finite.
    fn save<P: AsRef<Path>>(&self, file: P) -> io::Result<()> {
        let numbers = [self.epochs, self.noise_multiplier, self.max_grad_norm];
        let mut numbers = numbers.into_iter().flatten().chain([self.expected_batch_size]);
        if let Some(number) = numbers.find(|number| !number.is_finite()) {
            // JSON would lose it.
            let reason = format!("a plan with the number {number} cannot be saved");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        // Written in full before it replaces an older file.
        let folder = file.as_ref().parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut written = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        written.write_all(json.as_bytes())?;
        written.persist(file).map(drop).map_err(|error| error.error)
    }

    /// Loads the configuration. Nothing in the file is skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, and for an unknown or repeated field.
    fn load<P: AsRef<Path>>(file: P) -> Result<Self, ConfigError> {
        let found = std::fs::read(&file);
        let missing = |_| ConfigError::FileNotFound(file.as_ref().display().to_string());
        Self::load_binary(&found.map_err(missing)?)
    }

    fn load_binary(data: &[u8]) -> Result<Self, ConfigError> {
        strict_json::read(data).map_err(|error| ConfigError::InvalidFormat(error.to_string()))
    }
}

impl PrivacyPlanConfig {
    /// Configures a plan for a data set of `dataset_size` units and an expected number of units per
    /// step (for an integer, `batch_size as f64`).
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
            sampling: SamplingScheme::Poisson,
            unit: UnitOfPrivacy::Example,
            insecure_seed: None,
            mini_sets: None,
            correlated_noise: None,
            noise_memory: None,
            simulation: None,
            earlier: EarlierReleases::default(),
            owners: None,
        }
    }

    /// Configures a plan for batch clipping: the units that a step draws are mini-sets,
    /// `expected_mini_sets` of them in expectation.
    ///
    /// # Privacy
    ///
    /// With fixed-size sampling the guarantee is for one example replaced. With Poisson sampling it
    /// is for one whole mini-set added or removed, unless a mini-set is one example; see
    /// [`MiniSets`].
    pub fn for_mini_sets(mini_sets: &MiniSets, expected_mini_sets: impl Into<f64>) -> Self {
        let mini_sets = mini_sets.clone();
        let config = Self::new(mini_sets.len(), expected_mini_sets);
        Self { mini_sets: Some(mini_sets), ..config }
    }

    /// Configures a plan for examples that belong to several users: the units that a step draws are
    /// the selected examples.
    ///
    /// # Privacy
    ///
    /// The unit and the relation follow from the selection; see [`OwnedExamples`].
    pub fn for_owned_examples(
        selection: &OwnedExamples,
        expected_batch_size: impl Into<f64>,
    ) -> Self {
        let config = Self::new(selection.len(), expected_batch_size);
        Self { owners: Some(selection.into()), ..config }
    }

    /// Sets the number of steps.
    pub fn with_steps(mut self, steps: u64) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Sets the number of expected passes over the data, rounded to whole steps.
    pub fn with_epochs(mut self, epochs: impl Into<f64>) -> Self {
        self.epochs = Some(epochs.into());
        self
    }

    /// Sets the budget that the training may spend.
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Sets the standard deviation of the noise over the clipping threshold.
    ///
    /// Where groups are clipped separately or counts are released, this is the multiplier of the
    /// one Gaussian release that costs the same, `(Σ (C_h/σ_h)²)^(-1/2)`: L groups with a
    /// multiplier σ each have `σ/√L`.
    pub fn with_noise_multiplier(mut self, noise_multiplier: f64) -> Self {
        self.noise_multiplier = Some(noise_multiplier);
        self
    }

    /// Sets how the noise multiplier changes over the steps. The ledger records the multiplier of
    /// each step. A budget is calibrated for the whole schedule. Default: constant.
    pub fn with_noise_schedule(mut self, schedule: Schedule) -> Self {
        self.noise_schedule = schedule;
        self
    }

    /// Correlates the noise of the steps (DP-FTRL, matrix factorization): later noise cancels a
    /// part of earlier noise, so that the sum of the gradients has a smaller error for the same
    /// privacy.
    ///
    /// The noise of step t is `(C⁻¹ Z)_t` for the matrix C of `strategy`, in place of the
    /// independent `Z_t`; [`with_noise_multiplier`](Self::with_noise_multiplier) is the multiplier
    /// of `Z`. The optimizer applies momentum and learning rates as usual.
    ///
    /// # Privacy
    ///
    /// The guarantee needs a bound on how often and how soon a unit takes part again, so the
    /// [sampling scheme](Self::with_sampling) must have one: Poisson and fixed-size sampling have
    /// none and are rejected. Thresholds may depend on earlier releases: divided by its thresholds,
    /// a sum has a public bound in every step, and the correlated noise is added to that quotient
    /// with a constant standard deviation. The mechanism stays private for such adaptive inputs
    /// (Denisov et al. 2022, section 2). Counts of adaptive clipping have independent noise; sums
    /// and counts are one Gaussian release with a strategy of two blocks. Counts cost at most what
    /// they cost with independent noise, divided by the square of the smallest number on the
    /// diagonal of `strategy` (the proof is next to the event, in `optim/correlated.rs`). Steps
    /// that release only counts, and free counts of slack, are rejected.
    ///
    /// The state of the noise is as secret as the key of the run. Checkpoints contain it encrypted
    /// under that key.
    ///
    /// # References
    ///
    /// - S. Denisov et al., "Improved Differential Privacy for SGD via Optimal Private Linear
    ///   Operators on Adaptive Streams", 2022.
    /// - C. A. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization", 2023.
    pub fn with_correlated_noise(mut self, strategy: Strategy) -> Self {
        self.correlated_noise = Some(strategy);
        self
    }

    /// Sets the number of bytes that correlated noise may use for values of earlier steps. Beyond
    /// it, the values are drawn again from their keys in every step that needs them, where the
    /// strategy allows it. Otherwise they are kept on the host, and the sums of a device are copied
    /// to it. The noise is the same. Default: 1 GiB.
    pub fn with_noise_memory(mut self, bytes: usize) -> Self {
        self.noise_memory = Some(bytes);
        self
    }

    /// Lets the calibration and the ledger bound ε by simulation where that is tighter than the
    /// certified analysis: bins or a minimum separation with correlated noise of several bands, or
    /// under replace-one. It is saved with the plan and in the header of the ledger.
    ///
    /// # Privacy
    ///
    /// The bound fails with a probability that is part of δ. The seed is public: choose it before
    /// the plan is created, and never after a result is seen. See [`Simulation`].
    pub fn with_simulation(mut self, simulation: Simulation) -> Self {
        self.simulation = Some(simulation);
        self
    }

    /// Counts earlier releases on the same data, for example of an earlier run or search: the
    /// ledger of the run begins with them. Can be called for several ledgers.
    ///
    /// # Privacy
    ///
    /// The budget and every ε of the run, before, during and after it, are for the earlier releases
    /// and the run together; the noise is calibrated to what is left. [`init`](Self::init) rejects
    /// a ledger with another unit, another neighboring relation, or reproducible noise. The earlier
    /// releases are saved with the plan, and a resumed run must have the same ones. A ledger that
    /// is passed twice is counted twice. The statement of the run repeats what the earlier ledgers
    /// do not cover.
    ///
    /// Initial parameters, learning rate and clipping thresholds may depend on the earlier results.
    /// Noise multiplier, sampling and number of steps must not: the sum of privacy losses bounds
    /// settings that were fixed before the first of all releases. A
    /// [`PrivacyFilter`](burn_dp_accountant::PrivacyFilter) covers settings that were chosen after
    /// the results were seen.
    pub fn with_earlier_releases(mut self, ledger: PrivacyLedger) -> Self {
        self.earlier.push(ledger);
        self
    }

    /// Sets the threshold of flat clipping. Default: 1.
    pub fn with_max_grad_norm(mut self, max_grad_norm: f64) -> Self {
        self.max_grad_norm = Some(max_grad_norm);
        self
    }

    /// Sets the clipping policy. Default: [`FlatClipping`](crate::clipping::FlatClipping).
    pub fn with_clipping(mut self, clipping: impl Clipping + 'static) -> Self {
        self.clipping = Some(Box::new(clipping));
        self
    }

    /// Sets how units are drawn. Default: Poisson.
    pub fn with_sampling(mut self, sampling: SamplingScheme) -> Self {
        self.sampling = sampling;
        self
    }

    /// Sets what one item of the data set is. Default: an example.
    pub fn with_unit(mut self, unit: UnitOfPrivacy) -> Self {
        self.unit = unit;
        self
    }

    /// Takes all randomness from a known seed.
    ///
    /// # Privacy
    ///
    /// None: the ledger of such a run reports that it is not private. For tests and for experiments
    /// on public data.
    pub fn with_insecure_seed(mut self, seed: InsecureSeed) -> Self {
        self.insecure_seed = Some(seed.0);
        self
    }
}
