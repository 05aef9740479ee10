//! Correlated noise of a plan: strategy, sampler, participation and events as one object.

use burn_dp_accountant::correlated_noise::{Participation, Strategy, StrategyMatrix};
use burn_dp_accountant::{DpEvent, effective_noise_multiplier};

use crate::DpError;
use crate::clipping::StepNoise;
use crate::noise::{CorrelatedNoise, DEFAULT_MEMORY, check_growth};
use crate::sampling::{ParticipationPattern, Sampler, SamplingMechanism};

/// Covers the rounding of an effective noise multiplier.
const ROUND_DOWN: f64 = 1.0 - 1e-14;
/// Covers the rounding of the diagonal, which can be divided by the norms of columns.
const ROUND_DIAGONAL_DOWN: f64 = 1.0 - 1e-12;

/// The strategy of a plan, with the participation pattern of its sampler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CorrelatedPlan {
    strategy: Strategy,
    participation: Participation,
    /// The smallest number on the diagonal, rounded down. To find it takes a pass over the columns,
    /// and every step needs it.
    diagonal: f64,
    /// Number of bytes that values of earlier steps may use.
    memory: usize,
}

impl CorrelatedPlan {
    /// Returns the strategy with the participation that `sampler` guarantees over `steps` steps.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the sampler does not bound participation, if the
    /// strategy has fewer steps, if it has more bands than cyclic sampling has parts, or if its
    /// noise can grow beyond all bounds.
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
        check_growth(&strategy)?;
        let diagonal = strategy.smallest_diagonal() * ROUND_DIAGONAL_DOWN;
        Ok(Self { strategy, participation, diagonal, memory: memory.unwrap_or(DEFAULT_MEMORY) })
    }

    /// Returns the event of `step`, whose independent noise has the event `noise`.
    ///
    /// Counts have independent noise. Sums and counts of a run are one Gaussian release with the
    /// strategy C for the sums and the identity for the counts. Let σ be the multiplier of the sums
    /// and τ the root of the sum of the inverse squared multipliers of the counts. A unit that
    /// takes part k times moves the outputs by at most `S²/σ² + k τ²`, where S is the sensitivity
    /// of C. Contributions in orthogonal directions show that `S²` is at least the sum of the
    /// squared norms of k columns, and so at least `k d²`, where d is the smallest entry of the
    /// diagonal. So the run costs at most as much as sums alone whose multiplier is `(σ^-2 +
    /// τ²/d²)^(-1/2)`. The same holds for each part of a run, and for the single participation of a
    /// round of cyclic Poisson sampling. For random participations, the counts of a step add τ² to
    /// the covariances of its row between patterns that both contain the step. The contributions
    /// `ā` of the accountant (`monte_carlo/correlated.rs`) are at least d there, so their
    /// covariances grow by at least as much, and the comparison holds. Counts and thresholds may
    /// depend on earlier releases, as sums may (Denisov et al. 2022, Theorem 2.1).
    ///
    /// A unit with several `examples` moves the outputs by the sum of what each of them moves, at
    /// most `examples` times as far. Their participation must be bounded for each example, not
    /// random.
    fn event(&self, step: u64, examples: u64, noise: &DpEvent) -> Result<DpEvent, DpError> {
        Ok(DpEvent::CorrelatedGaussian {
            noise_multiplier: over(one_multiplier(noise, self.diagonal)?, examples),
            strategy: self.strategy.clone(),
            participation: self.participation,
            first_step: step,
        })
    }

    /// Returns an error for a step that releases anything other than the sum and counts with their
    /// own cost.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the noise is correlated, and the step releases no
    /// sum (the noise of the next steps would be wrong) or a slack (its noise is independent).
    pub(super) fn check_release(&self, noise: &StepNoise) -> Result<(), DpError> {
        let slack = noise.count_std.is_some() && matches!(noise.event, DpEvent::Gaussian { .. });
        if self.is_independent() || !(noise.group_stds.is_empty() || slack) {
            return Ok(());
        }
        Err(DpError::invalid(
            "clipping",
            "must release the sum in every step of a run with correlated noise, and counts with a \
             cost of their own: counts alone and slack are refused; use quantile clipping, a \
             threshold that does not adapt, or independent noise",
        ))
    }

    fn is_independent(&self) -> bool {
        *self.strategy.matrix() == StrategyMatrix::Identity
    }

    /// Returns what correlates the noise, before the first step; `None` for independent noise.
    pub(crate) fn noise(&self) -> Option<CorrelatedNoise> {
        (!self.is_independent()).then(|| CorrelatedNoise::new(&self.strategy, self.memory))
    }

    /// Returns the exact strategy and participation. With independent noise, both follow from the
    /// sampler.
    pub(crate) fn fingerprint(&self) -> String {
        if self.is_independent() {
            return "none".into();
        }
        let exact = serde_json::to_vec(&(&self.strategy, &self.participation)).unwrap_or_default();
        format!("{self}, {}", &blake3::hash(&exact).to_hex()[..16])
    }
}

/// Returns the event of `step`, whose noise has the event `noise`. A unit has at most `examples` of
/// the drawn items.
pub(super) fn event_of_step(
    correlated: Option<&CorrelatedPlan>,
    mechanism: &SamplingMechanism,
    examples: u64,
    step: u64,
    noise: &DpEvent,
) -> Result<DpEvent, DpError> {
    match (correlated, mechanism) {
        (Some(correlated), _) => correlated.event(step, examples, noise),
        (None, _) if examples == 1 => Ok(mechanism.event(noise.clone())),
        (None, &SamplingMechanism::Poisson { sampling_probability }) => {
            let noise = one_multiplier(noise, 1.0)?;
            Ok(DpEvent::poisson_sampled_examples(sampling_probability, noise, examples)?)
        }
        // A draw is one of the unit's examples with a probability of at most this, and contributes
        // as much as the draw of a unit with one example.
        (None, &SamplingMechanism::WithReplacement { dataset_size, batch_size }) => {
            let dataset_size = (dataset_size / examples as usize).max(1);
            Ok(SamplingMechanism::WithReplacement { dataset_size, batch_size }.event(noise.clone()))
        }
        (None, SamplingMechanism::NoAmplification { .. }) => {
            Ok(DpEvent::gaussian(over(one_multiplier(noise, 1.0)?, examples)))
        }
        (None, _) => Err(DpError::invalid(
            "sampling",
            format!("is {mechanism}, which does not account for several examples of a unit"),
        )),
    }
}

/// Returns the noise multiplier of a release in which a unit contributes `examples` times.
fn over(noise_multiplier: f64, examples: u64) -> f64 {
    match examples {
        1 => noise_multiplier,
        _ => noise_multiplier / examples as f64 * ROUND_DOWN,
    }
}

/// Returns the noise multiplier of the one Gaussian release that costs as much as the releases of a
/// step. A unit with several examples changes all of them by as many contributions.
///
/// # Arguments
///
/// - `diagonal`: the factor of the multipliers of the counts, which follow the sum
fn one_multiplier(noise: &DpEvent, diagonal: f64) -> Result<f64, DpError> {
    match noise {
        DpEvent::Gaussian { noise_multiplier } => Ok(*noise_multiplier),
        DpEvent::JointGaussian { noise_multipliers } => {
            let factors = std::iter::once(1.0).chain(std::iter::repeat(diagonal));
            let releases: Vec<_> =
                noise_multipliers.iter().zip(factors).map(|(sigma, f)| (1.0, sigma * f)).collect();
            Ok(effective_noise_multiplier(&releases)? * ROUND_DOWN)
        }
        other => Err(DpError::invalid("clipping", format!("must add Gaussian noise, got {other}"))),
    }
}

/// Returns the guarantee of `sampler` about the steps of a unit.
fn participation(sampler: &dyn Sampler, steps: u64) -> Result<Participation, DpError> {
    let mechanism = sampler.mechanism();
    match mechanism {
        SamplingMechanism::CyclicPoisson { parts, sampling_probability } => {
            return Ok(Participation::CyclicPoisson { parts: parts as u64, sampling_probability });
        }
        SamplingMechanism::BallsInBins { bins } => {
            return Ok(Participation::BallsInBins { bins: bins as u64 });
        }
        SamplingMechanism::RandomAllocation { bins } => {
            return Ok(Participation::RandomAllocation { bins: bins as u64 });
        }
        SamplingMechanism::MinSeparation { separation, sampling_probability } => {
            let separation = separation as u64;
            return Ok(Participation::MinSeparation { separation, sampling_probability });
        }
        _ => {}
    }
    let pattern = sampler.participation();
    if let ParticipationPattern::Periodic { period } = pattern {
        return Ok(Participation::FixedOrder { period });
    }
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
        ParticipationPattern::OncePerEpoch { .. }
            | ParticipationPattern::Separated { .. }
            | ParticipationPattern::Periodic { .. }
    )
}

impl std::fmt::Display for CorrelatedPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.strategy, self.participation)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};

    fn plan(scheme: SamplingScheme) -> PrivacyPlanConfig {
        let config = PrivacyPlanConfig::new(1000, 10.0).with_steps(300);
        config.with_noise_multiplier(10.0).with_sampling(scheme)
    }

    // A rounding in the other direction would record more noise than there is.
    #[test]
    fn the_multiplier_of_several_releases_is_rounded_down() {
        let is_just_below = |found: f64, exact: f64| found < exact && found > exact * (1.0 - 1e-12);
        assert_eq!(over(3.0, 1), 3.0);
        assert!(is_just_below(over(3.0, 2), 1.5));
        let exact = effective_noise_multiplier(&[(1.0, 2.0), (1.0, 3.0)]).unwrap();
        let joint = DpEvent::JointGaussian { noise_multipliers: vec![2.0, 3.0] };
        assert!(is_just_below(one_multiplier(&joint, 1.0).unwrap(), exact));
    }

    #[test]
    fn the_event_of_a_run_has_the_participation_of_its_sampler() {
        for (scheme, expected) in [
            (
                SamplingScheme::CyclicPoisson { parts: 4 },
                Participation::CyclicPoisson { parts: 4, sampling_probability: 0.04 },
            ),
            (SamplingScheme::BallsInBins { bins: 100 }, Participation::BallsInBins { bins: 100 }),
            (
                SamplingScheme::RandomAllocation { bins: 100 },
                Participation::RandomAllocation { bins: 100 },
            ),
            (SamplingScheme::ShuffledOnce, Participation::FixedOrder { period: 100 }),
        ] {
            let event = plan(scheme).init().unwrap().event();
            let DpEvent::CorrelatedGaussian { participation, .. } = event else {
                panic!("{scheme:?}: {event}");
            };
            assert_eq!(participation, expected, "{scheme:?}");
        }
        let separated = plan(SamplingScheme::MinSeparation { separation: 50 }).init().unwrap();
        let event = separated.event();
        let DpEvent::CorrelatedGaussian { participation, .. } = event else { panic!("{event}") };
        let is_separated =
            matches!(participation, Participation::MinSeparation { separation: 50, .. });
        assert!(is_separated, "{participation}");
    }

    // The strategy that is divided by its diagonal adds the same noise with a larger multiplier.
    #[test]
    fn counts_cost_as_much_as_with_the_strategy_divided_by_its_diagonal() {
        let of_step = |noise_multiplier: f64, matrix: &[f64]| {
            let strategy = Strategy::banded_toeplitz(300, matrix).unwrap();
            let config = plan(SamplingScheme::ShuffledOnce).with_correlated_noise(strategy);
            let plan = config.init().unwrap();
            let noise = DpEvent::JointGaussian { noise_multipliers: vec![noise_multiplier, 3.0] };
            match plan.correlated.as_ref().unwrap().event(0, 1, &noise).unwrap() {
                DpEvent::CorrelatedGaussian { noise_multiplier, .. } => noise_multiplier,
                other => panic!("{other}"),
            }
        };
        for diagonal in [0.25, 0.5, 2.0] {
            let own = of_step(1.0, &[diagonal, 0.5 * diagonal]);
            let divided = of_step(1.0 / diagonal, &[1.0, 0.5]) * diagonal;
            assert!((own / divided - 1.0).abs() < 1e-11, "{diagonal}: {own} {divided}");
        }
        assert!((of_step(1.0, &[0.25, 0.125]) - 0.6).abs() < 1e-11, "1 and 3/4: 3/5");
    }

    #[test]
    fn the_fingerprint_has_the_exact_strategy() {
        let shuffled = || plan(SamplingScheme::ShuffledOnce);
        let name = |plan: &PrivacyPlan| plan.fingerprint()["correlated_noise"].clone();
        let independent = shuffled().init().unwrap();
        assert!(independent.correlated_noise().is_none());
        assert_eq!(name(&independent), "none");
        let banded = |second: f64| {
            let strategy = Strategy::banded_toeplitz(300, &[1.0, second]).unwrap();
            let plan = shuffled().with_correlated_noise(strategy).init().unwrap();
            assert!(plan.correlated_noise().is_some());
            name(&plan)
        };
        assert_eq!(banded(0.5), banded(0.5));
        assert_ne!(banded(0.5), banded(0.5f64.next_up()));
    }
}
