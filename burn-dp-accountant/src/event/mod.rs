//! The releases of a mechanism, as data that the accountants analyze.
//!
//! Compatibility rules of the serialized form (see
//! [`LEDGER_FORMAT_VERSION`](crate::LEDGER_FORMAT_VERSION)):
//!
//! 1. A variant or a field is never removed and never changes its meaning.
//! 2. A new variant is added only together with a new format version.
//! 3. A reader returns an error for an unknown variant, field or version. It never skips an event,
//!    because a skipped event is privacy loss that nobody counts.
//! 4. Parameters are the numbers that the mechanism used, never values derived for the accountant.

mod correlated;
mod display;
mod mixture;
mod participation;
mod patterned;
mod run_count;
mod validate;

pub use mixture::GaussianMixture;
pub use participation::RandomParticipation;
pub use patterned::PatternedGaussian;
pub use run_count::RunCount;
use serde::{Deserialize, Serialize};

use crate::correlated_noise::{Participation, Strategy};
use crate::domain::{check_positive, check_probability};
use crate::error::AccountantError;
use crate::math::logarithms::ln_binomial;

/// Maximum number of examples of one unit.
const MAX_EXAMPLES: u64 = 1_000;

/// One release, or a structure of releases, on private data.
///
/// A noise multiplier is the standard deviation (Laplace: the scale) of the noise over the clipping
/// threshold `C` of one unit's contribution. The accountant applies the sensitivity under the
/// [`NeighboringRelation`](crate::NeighboringRelation).
///
/// [`Display`](std::fmt::Display) rounds probabilities to four and noise multipliers to six
/// significant digits; the serialized form is exact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum DpEvent {
    /// A sum of contributions of norm at most `C`, plus Gaussian noise of standard deviation
    /// `noise_multiplier · C`.
    Gaussian {
        /// Noise standard deviation over the clipping threshold.
        noise_multiplier: f64,
    },
    /// A sum of contributions of 1-norm at most `C`, plus Laplace noise of scale
    /// `noise_multiplier · C`.
    Laplace {
        /// Noise scale over the clipping threshold.
        noise_multiplier: f64,
    },
    /// Several Gaussian releases on the same draw of units: a clipped gradient and the counts of
    /// adaptive clipping, or the layers of per-layer clipping. Each multiplier is relative to the
    /// clipping threshold of its own release.
    JointGaussian {
        /// One noise multiplier for each release.
        noise_multipliers: Vec<f64>,
    },
    /// One step of a run with correlated noise (see
    /// [`correlated_noise`](crate::correlated_noise)): a sum of contributions of norm at most `C`,
    /// plus the noise `noise_multiplier · C · (S^-1 z)_t`, where `S` is the strategy.
    ///
    /// A run begins at `first_step` 0, and its steps are released in order.
    /// [`PrivacyLedger`](crate::PrivacyLedger) merges consecutive steps into one entry. A count of
    /// this event means that number of consecutive steps. If `first_step` is above 0 outside a
    /// ledger, accountants count the whole run up to the last of the steps. The event cannot be a
    /// part of another event.
    CorrelatedGaussian {
        /// Standard deviation of the independent values `z` over the clipping threshold.
        noise_multiplier: f64,
        /// The strategy of the run.
        strategy: Strategy,
        /// The steps in which a unit may take part.
        participation: Participation,
        /// Index of the (first) step in the run.
        first_step: u64,
    },
    /// `event` on a Poisson sample: each unit is drawn independently with the same probability.
    PoissonSampled {
        /// Probability that a unit is drawn.
        sampling_probability: f64,
        /// The release from the sample.
        event: Box<DpEvent>,
    },
    /// `event` on a Poisson sample that is truncated, uniformly at random, to at most
    /// `max_batch_size` units. A unit that displaces another one changes a truncated batch by two
    /// contributions.
    TruncatedPoissonSampled {
        /// Probability that a unit is drawn, before truncation.
        sampling_probability: f64,
        /// Number of units in the data set (public).
        dataset_size: u64,
        /// Maximum number of units in the sample.
        max_batch_size: u64,
        /// The release from the sample.
        event: Box<DpEvent>,
    },
    /// A Gaussian release on a Poisson sample of examples, of which one unit has at most
    /// `examples`, that is truncated, uniformly at random, to at most `max_batch_size` examples.
    /// Created by [`truncated_poisson_sampled_examples`](Self::truncated_poisson_sampled_examples).
    TruncatedPoissonExamples {
        /// Probability that an example is drawn, before truncation.
        sampling_probability: f64,
        /// Number of examples in the data set (public).
        dataset_size: u64,
        /// Maximum number of examples in the sample.
        max_batch_size: u64,
        /// Maximum number of examples of one unit.
        examples: u64,
        /// Noise standard deviation over the clipping threshold.
        noise_multiplier: f64,
    },
    /// `event` on a uniformly random subset of fixed size.
    SampledWithoutReplacement {
        /// Number of units in the data set (public).
        dataset_size: u64,
        /// Size of the sample.
        sample_size: u64,
        /// The release from the sample.
        event: Box<DpEvent>,
    },
    /// `event` on a fixed number of independent uniform draws. A unit that is drawn several times
    /// contributes several times.
    SampledWithReplacement {
        /// Number of units in the data set (public).
        dataset_size: u64,
        /// Number of draws.
        sample_size: u64,
        /// The release from the sample.
        event: Box<DpEvent>,
    },
    /// `event` in each of `steps` steps, where each unit takes part in exactly `participations` of
    /// them, chosen uniformly at random. The whole is repeated for `epochs` epochs with the same
    /// choice ("balls in bins"); with a new choice in each epoch it is
    /// [`SelfComposed`](Self::SelfComposed) of one epoch.
    RandomAllocation {
        /// Number of steps of an epoch.
        steps: u64,
        /// Number of steps of an epoch in which a unit takes part.
        participations: u64,
        /// Number of epochs with the same choice.
        epochs: u64,
        /// The release of one step.
        event: Box<DpEvent>,
    },
    /// All of the events, each with independent randomness.
    Composed {
        /// The events, in any order.
        events: Vec<DpEvent>,
    },
    /// The same event `count` times, each with independent randomness.
    SelfComposed {
        /// The event.
        event: Box<DpEvent>,
        /// Number of repetitions.
        count: u64,
    },
    /// A mechanism known only to be ρ-zero-concentrated differentially private.
    ZeroConcentrated {
        /// The parameter ρ under the relation of the ledger.
        rho: f64,
    },
    /// A mechanism known only to be (ε, δ)-differentially private under the relation of the ledger.
    EpsilonDelta {
        /// Its ε.
        epsilon: f64,
        /// Its δ.
        delta: f64,
    },
    /// Hyperparameter search: `event` is run a random number of times on the same data, and only
    /// the best result is released.
    RepeatAndSelect {
        /// One run.
        event: Box<DpEvent>,
        /// Distribution of the number of runs.
        runs: RunCount,
    },
    /// A whole number of sensitivity `sensitivity`, plus discrete Gaussian noise.
    DiscreteGaussian {
        /// Parameter σ of the noise: the probability of `k` is proportional to `e^{-k²/(2σ²)}`.
        sigma: f64,
        /// Maximum change of the number by one unit.
        sensitivity: u64,
    },
    /// The exponential mechanism: an outcome is chosen with probability proportional to
    /// `e^{ε u/(2Δ)}`, `Δ` the sensitivity of the score `u` under the relation of the ledger.
    Exponential {
        /// Its ε.
        epsilon: f64,
    },
    /// A Gaussian release whose mean depends on a random participation.
    GaussianMixture(GaussianMixture),
    /// Gaussian releases with correlated noise and a random participation of each unit.
    Patterned(PatternedGaussian),
    /// A release without protection: ε is infinite.
    NonPrivate,
    /// A release that no accountant can analyze. Every accountant returns an error for it.
    Unsupported {
        /// What was released.
        reason: String,
    },
}

impl DpEvent {
    /// Calls `add` with each part that is not a composition, and with its number of releases in
    /// `count` releases of this event.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number overflows, and the errors of `add`.
    pub(crate) fn for_each_part(
        &self,
        count: u64,
        add: &mut dyn FnMut(&Self, u64) -> Result<(), AccountantError>,
    ) -> Result<(), AccountantError> {
        match self {
            _ if count == 0 => Ok(()),
            Self::Composed { events } => {
                events.iter().try_for_each(|part| part.for_each_part(count, add))
            }
            Self::SelfComposed { event, count: inner } => {
                let total = count.checked_mul(*inner).ok_or_else(|| {
                    AccountantError::invalid("count", format!("overflows: {count} x {inner}"))
                })?;
                event.for_each_part(total, add)
            }
            part => add(part, count),
        }
    }

    /// Whether draws are truncated to a maximum batch size, so that another number of units changes
    /// how often the others take part.
    pub(crate) fn is_truncated(&self) -> bool {
        match self {
            Self::TruncatedPoissonSampled { .. } | Self::TruncatedPoissonExamples { .. } => true,
            Self::Composed { events } => events.iter().any(Self::is_truncated),
            Self::SelfComposed { event, .. }
            | Self::RepeatAndSelect { event, .. }
            | Self::PoissonSampled { event, .. }
            | Self::SampledWithoutReplacement { event, .. }
            | Self::SampledWithReplacement { event, .. }
            | Self::RandomAllocation { event, .. } => event.is_truncated(),
            _ => false,
        }
    }

    /// Returns a Gaussian release.
    pub fn gaussian(noise_multiplier: f64) -> Self {
        Self::Gaussian { noise_multiplier }
    }

    /// Returns `event` on a Poisson sample.
    pub fn poisson_sampled(sampling_probability: f64, event: DpEvent) -> Self {
        Self::PoissonSampled { sampling_probability, event: Box::new(event) }
    }

    /// Returns a Gaussian release on a Poisson sample of examples, of which one unit has at most
    /// `examples`: each is drawn independently, and a drawn one contributes at most the clipping
    /// threshold. The neighbor is the data set in which they contribute nothing.
    ///
    /// The number of drawn examples has a binomial distribution. Contributions of one direction are
    /// the worst case.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain, or
    /// `examples` is above 1,000.
    ///
    /// # References
    ///
    /// "Tight Group-Level DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians
    /// Mechanisms", Ganesh 2024.
    pub fn poisson_sampled_examples(
        sampling_probability: f64,
        noise_multiplier: f64,
        examples: u64,
    ) -> Result<Self, AccountantError> {
        check_probability("sampling_probability", sampling_probability)?;
        check_positive("noise_multiplier", noise_multiplier)?;
        if !(1..=MAX_EXAMPLES).contains(&examples) {
            return Err(AccountantError::invalid(
                "examples",
                format!("must be between 1 and {MAX_EXAMPLES}, got {examples}"),
            ));
        }
        if examples == 1 {
            return Ok(Self::dp_sgd_step(sampling_probability, noise_multiplier));
        }
        if sampling_probability == 0.0 {
            return Ok(Self::Composed { events: Vec::new() });
        }
        if sampling_probability == 1.0 {
            return Ok(Self::gaussian(noise_multiplier / examples as f64));
        }
        let (k, q) = (examples as f64, sampling_probability);
        let mass = |j: f64| (ln_binomial(k, j) + j * q.ln() + (k - j) * (-q).ln_1p()).exp();
        // Mass that is moved to more examples only makes the release worse: above the rounding.
        let drawn: Vec<f64> =
            (1..=examples).map(|j| mass(j as f64) * (1.0 + 1e-11) + f64::MIN_POSITIVE).collect();
        // Not above (1 - q)^k, even where the difference cancels.
        let none = (1.0 - drawn.iter().sum::<f64>()).min(mass(0.0) * (1.0 - 1e-11));
        let none = none.max(f64::MIN_POSITIVE);
        Ok(Self::GaussianMixture(GaussianMixture {
            noise_multiplier,
            weights: [&[none], &drawn[..]].concat(),
            means: (0..=examples).map(|j| vec![j as f64]).collect(),
        }))
    }

    /// Returns a Gaussian release on a Poisson sample of examples, cut to at most `max_batch_size`,
    /// of which one unit has at most `examples`: the neighbor is the data set without them (add or
    /// remove one unit).
    ///
    /// # Privacy
    ///
    /// Let `R` and `J` be the numbers of drawn examples of other units and of the unit, and `B` the
    /// cap. Given `R` and the `min(R, B)` examples that the batch has without the unit, the batch
    /// with the unit contains `J' <= J` of its examples and at least `B - J'` of the others if it
    /// is cut, so that the sums differ by at most `2J` contributions, and by at most `J` if `R + J
    /// <= B`. `J` is binomial and independent of `R`. The hockey-stick divergence is jointly convex
    /// in `R` and the batch, and grows with every contribution (Kahane's inequality, see
    /// [`poisson_sampled_examples`](Self::poisson_sampled_examples)). With probability `P[R > B -
    /// examples]` the release is therefore counted with `2J` contributions, and with `J` otherwise.
    /// `R` is at most a binomial number of `dataset_size` examples.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain, or
    /// `examples` is above 1,000.
    pub fn truncated_poisson_sampled_examples(
        sampling_probability: f64,
        dataset_size: u64,
        max_batch_size: u64,
        noise_multiplier: f64,
        examples: u64,
    ) -> Result<Self, AccountantError> {
        let event = match examples {
            1 => Self::TruncatedPoissonSampled {
                sampling_probability,
                dataset_size,
                max_batch_size,
                event: Box::new(Self::gaussian(noise_multiplier)),
            },
            _ => Self::TruncatedPoissonExamples {
                sampling_probability,
                dataset_size,
                max_batch_size,
                examples,
                noise_multiplier,
            },
        };
        event.validate()?;
        Ok(event)
    }

    /// Returns `event`, `count` times.
    pub fn self_composed(event: DpEvent, count: u64) -> Self {
        Self::SelfComposed { event: Box::new(event), count }
    }

    /// Returns one step of DP-SGD: a Gaussian release on a Poisson sample.
    pub fn dp_sgd_step(sampling_probability: f64, noise_multiplier: f64) -> Self {
        Self::poisson_sampled(sampling_probability, Self::gaussian(noise_multiplier))
    }
}
