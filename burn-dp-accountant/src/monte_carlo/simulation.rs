//! The simulation that a ledger may use.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::accountant::{MonteCarloAccountant, OneOfMany};
use super::confidence::check_failure_probability;
use super::sources::Sources;
use crate::accountant::Accountant;
use crate::dominating_pairs::dominating_pairs_of;
use crate::epsilon::{Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

/// Number of cached answers.
const KEPT: usize = 64;

/// Maximum number of samples.
const MOST_SAMPLES: u64 = 1_000_000_000;

/// Lets a ledger and a calibration bound ε by simulation where it is tighter than the certified
/// analysis: random participations with correlated noise of several bands, or under replace-one,
/// and mixtures ([`MonteCarloAccountant`]). The result is a single bracket: its lower end is
/// certified, its upper end is the smaller of the certified and the simulated bound, and the method
/// and the notes say which one it is.
///
/// # Privacy
///
/// A bound by simulation fails with a small probability, which is part of δ. A ledger is queried
/// many times, and later queries may depend on earlier answers: a calibration searches, and a group
/// is bounded by repeated queries. The failure probability of a simulation therefore covers the
/// first [`ANSWERS`](Self::ANSWERS) different answers *together*. Each of them fails with the
/// failure probability over this number, whatever the answers before it were, because each query
/// (events, relation, δ) has its own random numbers: its seed is a digest of the seed of the
/// simulation and of the query. The union bound adds up the failure probabilities. Equal queries
/// get equal answers. (Random numbers that several queries share would need a bound over all
/// queries that could have been made: "Preserving Statistical Validity in Adaptive Data Analysis",
/// Dwork et al. 2015.) The generator is not cryptographic; the argument assumes that its streams
/// are independent.
///
/// The seed is public and independent of the data. Choose it before the first answer and never
/// after one: the best of several seeds is not a bound. A ledger always keeps its simulation, and a
/// continued ledger must have the same one.
///
/// # Cost
///
/// One answer about 100 bins takes about six seconds of CPU time for a million samples, regardless
/// of the number of steps. A minimum separation and fresh bins draw all steps: about 80 seconds for
/// 1,000 steps. All cores are used. A calibration needs about 20 answers. The process caches the
/// last 64 answers.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::correlated_noise::{Participation, Strategy};
/// use burn_dp_accountant::{
///     DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, Simulation, UnitOfPrivacy,
/// };
///
/// let strategy = Strategy::banded_toeplitz(40, &[1.0, 0.5, 0.25, 0.125])?;
/// let bins = Participation::BallsInBins { bins: 10 };
/// let step = DpEvent::correlated_gaussian(2.0, &strategy, bins);
/// let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
/// let mut certified = PrivacyLedger::new(header.clone());
/// let simulation = Simulation::new(7).with_samples(200_000)?;
/// let mut simulated = PrivacyLedger::new(header.with_simulation(simulation));
/// certified.record_many(&step, 40)?;
/// simulated.record_many(&step, 40)?;
/// assert!(simulated.epsilon(1e-3)?.upper < certified.epsilon(1e-3)?.upper);
/// # Ok::<(), burn_dp_accountant::AccountantError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Simulation {
    samples: u64,
    seed: u64,
    failure_probability: f64,
}

// The failure probability is never NaN.
impl Eq for Simulation {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    samples: u64,
    seed: u64,
    failure_probability: f64,
}

impl From<Simulation> for Written {
    fn from(simulation: Simulation) -> Self {
        let Simulation { samples, seed, failure_probability } = simulation;
        Self { samples, seed, failure_probability }
    }
}

impl TryFrom<Written> for Simulation {
    type Error = AccountantError;

    fn try_from(written: Written) -> Result<Self, AccountantError> {
        Self::new(written.seed)
            .with_samples(written.samples)?
            .with_failure_probability(written.failure_probability)
    }
}

impl Simulation {
    /// Number of different answers that the failure probability covers together.
    pub const ANSWERS: u64 = 1 << 20;

    /// Creates a simulation with a million samples in each direction and a failure probability of
    /// 1e-9.
    pub fn new(seed: u64) -> Self {
        Self { samples: 1_000_000, seed, failure_probability: 1e-9 }
    }

    /// Sets the number of random losses in each direction.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if it is not between 1,000 and 1e9.
    pub fn with_samples(mut self, samples: u64) -> Result<Self, AccountantError> {
        if !(1_000..=MOST_SAMPLES).contains(&samples) {
            return Err(AccountantError::invalid(
                "samples",
                format!("must be between 1000 and {MOST_SAMPLES}, got {samples}"),
            ));
        }
        self.samples = samples;
        Ok(self)
    }

    /// Sets the probability that any of the answers fails, which is part of δ.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if it is not between 0 and 1.
    pub fn with_failure_probability(mut self, probability: f64) -> Result<Self, AccountantError> {
        check_failure_probability(probability)?;
        self.failure_probability = probability;
        Ok(self)
    }

    /// Returns the number of random losses in each direction.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the public seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the probability that any of the answers fails.
    pub fn failure_probability(&self) -> f64 {
        self.failure_probability
    }

    /// Returns whether these events have anything to simulate.
    pub(crate) fn applies<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> bool {
        // Each event separately, so that one that cannot be drawn does not hide the others.
        let mut sources = events.into_iter().map(|event| Sources::of([event], relation));
        sources.any(|sources| sources.is_ok_and(|sources| sources.is_tighter))
    }

    /// Returns the simulated ε at `delta` of `events`, or `None` where the certified analysis is
    /// tight. The upper end is infinite, with the reason, if there is no simulated bound.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain.
    pub(crate) fn epsilon(
        &self,
        events: &[(&DpEvent, u64)],
        relation: NeighboringRelation,
        delta: f64,
    ) -> Result<Option<Epsilon>, AccountantError> {
        if !Self::applies(events.iter().copied(), relation) {
            return Ok(None);
        }
        let no_bound = |error: AccountantError| match error {
            AccountantError::Unsupported { .. } | AccountantError::Numerical { .. } => {
                let reason = format!("nothing was simulated: {error}");
                Ok(Some(Epsilon::infinite(delta, Method::MonteCarlo, reason)))
            }
            error => Err(error),
        };
        let sources = match Sources::of(events.iter().copied(), relation) {
            Ok(sources) => sources,
            Err(error) => return no_bound(error),
        };
        let question = Question::new(self, &sources, delta);
        if let Some(known) = question.answer() {
            return Ok(Some(known));
        }
        let pairs = dominating_pairs_of(events.iter().copied(), relation).ok();
        let one_of = OneOfMany { answers: Self::ANSWERS, seed: self.seed, pairs };
        let accountant = MonteCarloAccountant::of(sources, Some(one_of))
            .with_samples(usize::try_from(self.samples).unwrap_or(usize::MAX))
            .with_seed(question.seed())
            .with_failure_probability(self.failure_probability)?;
        match accountant.epsilon(delta) {
            Ok(answer) => {
                question.keep(&answer);
                Ok(Some(answer))
            }
            Err(error) => no_bound(error),
        }
    }
}

impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} samples in each direction, seed {}, failure probability {:e} for {} answers \
             together",
            self.samples,
            self.seed,
            self.failure_probability,
            Self::ANSWERS
        )
    }
}

/// The query, as a digest, with the number of samples and the failure probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Question([u64; 2]);

static ANSWERS: Mutex<VecDeque<(Question, Epsilon)>> = Mutex::new(VecDeque::new());

impl Question {
    fn new(simulation: &Simulation, sources: &Sources, delta: f64) -> Self {
        let mut digest = Digest([0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b]);
        // Debug writes every bit of a number. Writing to a digest does not fail.
        let _ = write!(digest, "{simulation:?} {sources:?} {delta:?}");
        Self(digest.0)
    }

    fn seed(self) -> u64 {
        self.0[0]
    }

    fn answer(self) -> Option<Epsilon> {
        let kept = ANSWERS.lock().ok()?;
        kept.iter().find(|(question, _)| *question == self).map(|(_, answer)| answer.clone())
    }

    fn keep(self, answer: &Epsilon) {
        if let Ok(mut kept) = ANSWERS.lock() {
            kept.truncate(KEPT - 1);
            kept.push_front((self, answer.clone()));
        }
    }
}

/// Two chains of multiply-and-mix rounds over the bytes of a text.
struct Digest([u64; 2]);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd134_2543_de82_ef95];
        for byte in text.bytes() {
            for (state, factor) in self.0.iter_mut().zip(FACTORS) {
                let mixed = (*state ^ u64::from(byte)).wrapping_mul(factor);
                *state = mixed ^ (mixed >> 29);
            }
        }
        Ok(())
    }
}
