//! Correlated noise of a plan: strategy, sampler, participation and events as one object.

use burn_dp_accountant::correlated_noise::{Participation, Strategy, StrategyMatrix};
use burn_dp_accountant::{DpEvent, effective_noise_multiplier};

use crate::DpError;
use crate::noise::{CorrelatedNoise, DEFAULT_MEMORY};
use crate::sampling::{ParticipationPattern, Sampler, SamplingMechanism};

/// Covers the rounding of an effective noise multiplier.
const ROUND_DOWN: f64 = 1.0 - 1e-14;

/// The strategy of a plan, with how often its sampler lets a unit take part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CorrelatedPlan {
    strategy: Strategy,
    participation: Participation,
    /// Bytes that values of earlier steps may take.
    memory: usize,
}

impl CorrelatedPlan {
    /// Returns the strategy with the participation that `sampler` guarantees over `steps` steps.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the sampler bounds no participation, if the strategy
    /// has fewer steps, and if its bands are more than the parts of cyclic sampling.
    pub(super) fn new(
        strategy: Strategy,
        sampler: &dyn Sampler,
        steps: u64,
        memory: Option<usize>,
    ) -> Result<Self, DpError> {
        if strategy.steps() < steps {
            return Err(DpError::invalid(
                "correlated_noise",
                format!(
                    "needs a strategy of at least the {steps} steps of the plan, got {}; create it \
                     for {steps} steps",
                    strategy.steps()
                ),
            ));
        }
        let participation = participation(sampler, steps)?;
        participation.validate_for(&strategy)?;
        Ok(Self { strategy, participation, memory: memory.unwrap_or(DEFAULT_MEMORY) })
    }

    /// Returns the event of `step`, whose independent noise has the event `noise`.
    ///
    /// Without correlation, several releases of a step are one Gaussian release of their effective
    /// noise multiplier, in every step of the unit.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the noise is correlated and anything but a sum is
    /// released.
    fn event(&self, step: u64, noise: &DpEvent) -> Result<DpEvent, DpError> {
        let noise_multiplier = match noise {
            DpEvent::Gaussian { noise_multiplier } => *noise_multiplier,
            DpEvent::JointGaussian { noise_multipliers } if self.is_independent() => {
                let releases: Vec<_> =
                    noise_multipliers.iter().map(|&sigma| (1.0, sigma)).collect();
                effective_noise_multiplier(&releases)? * ROUND_DOWN
            }
            _ => {
                return Err(DpError::invalid(
                    "clipping",
                    format!(
                        "must release nothing but the clipped sum in a run with correlated noise, \
                         got {noise}; use a threshold that does not adapt to counts, or \
                         independent noise"
                    ),
                ));
            }
        };
        Ok(DpEvent::CorrelatedGaussian {
            noise_multiplier,
            strategy: self.strategy.clone(),
            participation: self.participation,
            first_step: step,
        })
    }

    fn is_independent(&self) -> bool {
        *self.strategy.matrix() == StrategyMatrix::Identity
    }

    /// Returns what correlates the noise, before the first step; `None` for independent noise.
    pub(crate) fn noise(&self) -> Option<CorrelatedNoise> {
        (!self.is_independent()).then(|| CorrelatedNoise::new(&self.strategy, self.memory))
    }

    /// Returns strategy and participation, exactly. With independent noise, both follow from the
    /// sampler.
    pub(crate) fn fingerprint(&self) -> String {
        if self.is_independent() {
            return "none".into();
        }
        let exact = serde_json::to_vec(&(&self.strategy, &self.participation)).unwrap_or_default();
        format!("{self}, {}", &blake3::hash(&exact).to_hex()[..16])
    }
}

/// Returns the event of `step`, whose noise has the event `noise`.
pub(super) fn event_of_step(
    correlated: Option<&CorrelatedPlan>,
    mechanism: &SamplingMechanism,
    step: u64,
    noise: &DpEvent,
) -> Result<DpEvent, DpError> {
    match correlated {
        Some(correlated) => correlated.event(step, noise),
        None => Ok(mechanism.event(noise.clone())),
    }
}

/// Returns what `sampler` guarantees about the steps of a unit.
fn participation(sampler: &dyn Sampler, steps: u64) -> Result<Participation, DpError> {
    let mechanism = sampler.mechanism();
    if let SamplingMechanism::CyclicPoisson { parts, sampling_probability } = mechanism {
        return Ok(Participation::CyclicPoisson { parts: parts as u64, sampling_probability });
    }
    let pattern = sampler.participation();
    match (bounds_participation(pattern), pattern.times(steps)) {
        (true, Some(times)) => {
            Ok(Participation::AtMost { times, separation: pattern.separation() })
        }
        _ => Err(DpError::invalid(
            "sampling",
            format!(
                "lets a unit take part in every step ({mechanism}), and the privacy of correlated \
                 noise depends on how often and how soon it takes part again; use cyclic Poisson \
                 sampling, balls in bins or shuffled epochs, or independent noise"
            ),
        )),
    }
}

/// Returns whether a unit cannot take part in every step, so that a run costs less than its steps
/// one by one.
pub(super) fn bounds_participation(pattern: ParticipationPattern) -> bool {
    matches!(
        pattern,
        ParticipationPattern::OncePerEpoch { .. } | ParticipationPattern::Separated { .. }
    )
}

impl std::fmt::Display for CorrelatedPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.strategy, self.participation)
    }
}
