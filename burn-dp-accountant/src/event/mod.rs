//! What a mechanism released, as data that the accountants analyze.
//!
//! Compatibility rules of the serialized form (see
//! [`LEDGER_FORMAT_VERSION`](crate::LEDGER_FORMAT_VERSION)):
//!
//! 1. A variant or a field is never removed and never changes its meaning.
//! 2. A new variant is added only together with a new format version.
//! 3. A reader returns an error for an unknown variant, field or version. It never skips an event,
//!    because a skipped event is privacy loss that nobody counts.
//! 4. Parameters are the numbers that the mechanism used, never values derived for the accountant.

mod display;
mod validate;

use serde::{Deserialize, Serialize};

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
    /// `event` on a Poisson sample: each unit is drawn independently with the same probability.
    PoissonSampled {
        /// Probability that a unit is drawn.
        sampling_probability: f64,
        /// The release from the sample.
        event: Box<DpEvent>,
    },
    /// `event` on a Poisson sample that is cut, uniformly at random, to at most `max_batch_size`
    /// units.
    TruncatedPoissonSampled {
        /// Probability that a unit is drawn, before the cut.
        sampling_probability: f64,
        /// Number of units in the data set (public).
        dataset_size: u64,
        /// Largest number of units in the sample.
        max_batch_size: u64,
        /// The release from the sample.
        event: Box<DpEvent>,
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
    /// A release without protection: ε is infinite.
    NonPrivate,
    /// A release that no accountant can analyze. Every accountant returns an error for it.
    Unsupported {
        /// What was released.
        reason: String,
    },
}

/// Distribution of the number of runs of [`DpEvent::RepeatAndSelect`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RunCount {
    /// Poisson distribution.
    Poisson {
        /// Expected number of runs.
        mean: f64,
    },
    /// Truncated negative binomial distribution; `shape` 1 is the geometric distribution, `shape` 0
    /// the logarithmic distribution.
    TruncatedNegativeBinomial {
        /// Expected number of runs.
        mean: f64,
        /// The shape η, larger than -1.
        shape: f64,
    },
}

impl DpEvent {
    /// Returns a Gaussian release.
    pub fn gaussian(noise_multiplier: f64) -> Self {
        Self::Gaussian { noise_multiplier }
    }

    /// Returns `event` on a Poisson sample.
    pub fn poisson_sampled(sampling_probability: f64, event: DpEvent) -> Self {
        Self::PoissonSampled { sampling_probability, event: Box::new(event) }
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
