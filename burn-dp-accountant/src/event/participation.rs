//! Distributions of the steps in which a unit takes part.

use serde::{Deserialize, Serialize};

use crate::domain::{check_count, check_probability};
use crate::error::AccountantError;
use crate::math::random::Generator;

/// Distribution of the steps in which a unit takes part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RandomParticipation {
    /// One uniformly random step of the first `cycle` steps, and every `cycle` steps after it.
    BallsInBins {
        /// Number of bins.
        cycle: u64,
    },
    /// A uniformly random one of `cycle` parts of the data; step `t` draws each unit of part
    /// `t mod cycle` with the same probability.
    CyclicPoisson {
        /// Number of parts.
        cycle: u64,
        /// Probability that a unit of the part is drawn.
        sampling_probability: f64,
    },
    /// Each step draws each unit with the same probability, except during the `separation - 1`
    /// steps after it was drawn.
    MinimumSeparation {
        /// Smallest distance between two steps of one unit.
        separation: u64,
        /// Probability that a unit is drawn that may be drawn.
        sampling_probability: f64,
        /// Whether the first step is in the stationary state of the process.
        warm_start: bool,
    },
    /// A uniformly random set of this many steps.
    Subset {
        /// Number of steps in which a unit takes part.
        participations: u64,
    },
}

impl RandomParticipation {
    /// Checks the parameters for a run of `steps` steps and a strategy of `bands` bands.
    pub(super) fn validate(&self, steps: u64, bands: u64) -> Result<(), AccountantError> {
        let apart = |name: &'static str, distance: u64| {
            if bands <= distance {
                return Ok(());
            }
            Err(AccountantError::invalid(
                name,
                format!(
                    "must be at least the number of coefficients, {bands}, so that the \
                     contributions of one unit do not overlap, got {distance}; use fewer bands"
                ),
            ))
        };
        match *self {
            Self::BallsInBins { cycle } => check_count("cycle", cycle),
            Self::CyclicPoisson { cycle, sampling_probability } => {
                check_count("cycle", cycle)?;
                check_probability("sampling_probability", sampling_probability)?;
                apart("cycle", cycle)
            }
            Self::MinimumSeparation { separation, sampling_probability, .. } => {
                check_count("separation", separation)?;
                check_probability("sampling_probability", sampling_probability)?;
                apart("separation", separation)
            }
            Self::Subset { participations } => {
                apart("column", 1)?;
                if (1..=steps).contains(&participations) {
                    return Ok(());
                }
                Err(AccountantError::invalid(
                    "participations",
                    format!("must be from 1 to steps = {steps}, got {participations}"),
                ))
            }
        }
    }

    /// Returns the stationary probability that a unit may be drawn, and the number of waits.
    pub(super) fn stationary(&self) -> (f64, u64) {
        match *self {
            Self::MinimumSeparation { separation, sampling_probability: p, .. } => {
                (1.0 / (1.0 + p * (separation - 1) as f64), separation - 1)
            }
            _ => (1.0, 0),
        }
    }

    /// Returns the steps in which the unit takes part.
    pub(super) fn draw(&self, steps: usize, generator: &mut Generator) -> Vec<usize> {
        match *self {
            Self::BallsInBins { cycle } => {
                (generator.below(cycle) as usize..steps).step_by(cycle as usize).collect()
            }
            Self::CyclicPoisson { cycle, sampling_probability } => {
                let first = generator.below(cycle) as usize;
                let eligible = (first..steps).step_by(cycle as usize);
                eligible.filter(|_| generator.uniform() < sampling_probability).collect()
            }
            Self::MinimumSeparation { separation, sampling_probability, warm_start } => {
                let (ready, waits) = self.stationary();
                let mut step = 0;
                if warm_start && generator.uniform() >= ready {
                    step = 1 + generator.below(waits) as usize;
                }
                let mut drawn = Vec::new();
                while step < steps {
                    if generator.uniform() < sampling_probability {
                        drawn.push(step);
                        step = step.saturating_add(separation as usize);
                    } else {
                        step += 1;
                    }
                }
                drawn
            }
            Self::Subset { participations } => {
                // Selection sampling (Knuth, volume 2, algorithm S).
                let mut left = participations;
                let mut drawn = Vec::new();
                for step in 0..steps {
                    if generator.below((steps - step) as u64) < left {
                        drawn.push(step);
                        left -= 1;
                    }
                }
                drawn
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_drawn_with_its_probability() {
        let sampling_probability = 0.3;
        for (participation, expected) in [
            (RandomParticipation::BallsInBins { cycle: 3 }, 1.0 / 3.0),
            (RandomParticipation::CyclicPoisson { cycle: 3, sampling_probability }, 0.1),
            // In the stationary state, a unit may be drawn in 1 of 1 + 2 · 0.3 steps.
            (
                RandomParticipation::MinimumSeparation {
                    separation: 3,
                    sampling_probability,
                    warm_start: true,
                },
                0.3 / 1.6,
            ),
            (RandomParticipation::Subset { participations: 2 }, 1.0 / 3.0),
        ] {
            let (mut generator, mut counts) = (Generator::new(5, 0), [0u32; 6]);
            for _ in 0..60_000 {
                for step in participation.draw(6, &mut generator) {
                    counts[step] += 1;
                }
            }
            // More than 5 standard deviations.
            let close = |count: &u32| (f64::from(*count) / 6e4 - expected).abs() < 0.01;
            assert!(counts.iter().all(close), "{participation:?}: {counts:?}");
        }
    }
}
