//! Gaussian releases with correlated noise and a random participation of each unit.

use serde::{Deserialize, Serialize};

use super::participation::RandomParticipation;
use crate::domain::{check_count, check_positive};
use crate::error::AccountantError;
use crate::math::logarithms::{ln_add_exp, ln_sum_exp};
use crate::math::random::Generator;

/// Gaussian releases over several steps, with noise correlated by a lower-triangular Toeplitz
/// strategy, in which a unit takes part at random steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternedGaussian {
    /// The steps in which a unit takes part.
    pub participation: RandomParticipation,
    /// Number of steps.
    pub steps: u64,
    /// First column of the strategy, without zeros at the end: `[1.0]` for independent noise. The
    /// coefficients are not negative, the first one is positive.
    pub column: Vec<f64>,
    /// Noise standard deviation over the clipping threshold, before the correlation.
    pub noise_multiplier: f64,
}

impl PatternedGaussian {
    /// Checks the parameters.
    pub(super) fn validate(&self) -> Result<(), AccountantError> {
        check_positive("noise_multiplier", self.noise_multiplier)?;
        check_count("steps", self.steps)?;
        let sound = self.column.iter().all(|c| *c >= 0.0 && c.is_finite());
        if !sound || self.column.first().is_none_or(|c| *c <= 0.0) {
            return Err(AccountantError::invalid(
                "column",
                "must begin with a positive number and contain no negative one: only then the \
                 contributions of one unit add up to the worst case",
            ));
        }
        self.participation.validate(self.steps, self.column.len() as u64)
    }

    /// Returns the norm of the first column: the sensitivity of one participation.
    pub(crate) fn column_norm(&self) -> f64 {
        self.column.iter().map(|c| c * c).sum::<f64>().sqrt()
    }

    /// Returns the privacy loss `ln dP/dQ` at `output`, in units of the clipping threshold: `P` has
    /// the unit, `Q` does not.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `output` does not have one number for each
    /// step, or a parameter is outside its domain.
    pub fn privacy_loss(&self, output: &[f64]) -> Result<f64, AccountantError> {
        self.validate()?;
        self.check_output(output.len())?;
        Ok(self.loss(output))
    }

    /// Returns the privacy loss at `output` of minimum separation with batches that are truncated
    /// to `max_batch_size` units, given the number of other units that were drawn in each step. A
    /// unit in a truncated batch displaces another one: its contribution is 2 under `P` and -1
    /// under `Q`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if the participation is not minimum separation,
    /// a length is not the number of steps, or a parameter is outside its domain.
    pub fn truncated_privacy_loss(
        &self,
        output: &[f64],
        others: &[u64],
        max_batch_size: u64,
    ) -> Result<f64, AccountantError> {
        self.validate()?;
        self.check_output(output.len())?;
        self.check_output(others.len())?;
        check_count("max_batch_size", max_batch_size)?;
        let RandomParticipation::MinimumSeparation { .. } = self.participation else {
            return Err(AccountantError::invalid(
                "participation",
                "must be minimum separation: other schemes have no truncated loss",
            ));
        };
        let density = |cut: f64, whole: f64| {
            let terms: Vec<f64> = (0..others.len())
                .map(|step| {
                    if others[step] < max_batch_size {
                        return self.ln_ratio(output, step, whole);
                    }
                    let kept = max_batch_size as f64 / (others[step] + 1) as f64;
                    ln_add_exp(kept.ln() + self.ln_ratio(output, step, cut), (1.0 - kept).ln())
                })
                .collect();
            self.separated(&terms)
        };
        Ok(density(2.0, 1.0) - density(-1.0, 0.0))
    }

    fn check_output(&self, length: usize) -> Result<(), AccountantError> {
        if length as u64 == self.steps {
            return Ok(());
        }
        let reason = format!("must have one number for each of {} steps, got {length}", self.steps);
        Err(AccountantError::invalid("output", reason))
    }

    /// Returns `ln N(x C e_t, σ²)/N(0, σ²)` at `output`.
    fn ln_ratio(&self, output: &[f64], step: usize, x: f64) -> f64 {
        let terms = self.column.iter().zip(&output[step..]);
        let (dot, square) =
            terms.fold((0.0, 0.0), |(dot, square), (c, y)| (dot + c * y, square + c * c));
        (x * dot - 0.5 * x * x * square) / (self.noise_multiplier * self.noise_multiplier)
    }

    pub(crate) fn loss(&self, output: &[f64]) -> f64 {
        let steps = output.len();
        match self.participation {
            RandomParticipation::BallsInBins { cycle } if self.column.len() as u64 <= cycle => {
                // The contributions of one unit do not overlap.
                let bins = (0..cycle as usize).map(|bin| {
                    let steps = (bin..steps).step_by(cycle as usize);
                    steps.map(|t| self.ln_ratio(output, t, 1.0)).sum::<f64>()
                });
                ln_sum_exp(bins) - (cycle as f64).ln()
            }
            RandomParticipation::BallsInBins { cycle } => {
                let cycle = cycle as usize;
                let precision = self.noise_multiplier.powi(-2);
                let mut mean = vec![0.0; steps];
                let bins = (0..cycle).map(|bin| {
                    mean.fill(0.0);
                    self.add_columns(&mut mean, (bin..steps).step_by(cycle));
                    let terms = mean.iter().zip(output).map(|(m, y)| m * y - 0.5 * m * m);
                    terms.sum::<f64>() * precision
                });
                ln_sum_exp(bins) - (cycle as f64).ln()
            }
            RandomParticipation::CyclicPoisson { cycle, sampling_probability: p } => {
                let parts = (0..cycle as usize).map(|part| {
                    let steps = (part..steps).step_by(cycle as usize);
                    let drawn = steps.map(|t| self.ln_ratio(output, t, 1.0));
                    drawn.map(|ratio| ln_add_exp((-p).ln_1p(), p.ln() + ratio)).sum::<f64>()
                });
                ln_sum_exp(parts) - (cycle as f64).ln()
            }
            RandomParticipation::MinimumSeparation { .. } => {
                let terms: Vec<f64> = (0..steps).map(|t| self.ln_ratio(output, t, 1.0)).collect();
                self.separated(&terms)
            }
            RandomParticipation::Subset { participations } => {
                // Elementary symmetric polynomial over the number of subsets.
                let k = participations as usize;
                let mut sums = vec![f64::NEG_INFINITY; k + 1];
                let mut counts = sums.clone();
                (sums[0], counts[0]) = (0.0, 0.0);
                for t in 0..steps {
                    let ratio = self.ln_ratio(output, t, 1.0);
                    for j in (1..=k).rev() {
                        sums[j] = ln_add_exp(sums[j], sums[j - 1] + ratio);
                        counts[j] = ln_add_exp(counts[j], counts[j - 1]);
                    }
                }
                sums[k] - counts[k]
            }
        }
    }

    /// Returns the logarithm of the expectation over minimum-separation patterns of the product of
    /// the ratios of the chosen steps, backwards over the steps.
    fn separated(&self, ln_ratios: &[f64]) -> f64 {
        let RandomParticipation::MinimumSeparation {
            separation,
            sampling_probability: p,
            warm_start,
        } = self.participation
        else {
            return f64::NAN;
        };
        let steps = ln_ratios.len();
        let separation = separation.min(steps as u64 + 1) as usize;
        let mut from = vec![0.0; steps + 1];
        for t in (0..steps).rev() {
            let later = from[(t + separation).min(steps)];
            from[t] = ln_add_exp((-p).ln_1p() + from[t + 1], p.ln() + ln_ratios[t] + later);
        }
        if !warm_start {
            return from[0];
        }
        let (ready, waits) = self.participation.stationary();
        let later = (1..).take(waits as usize).map(|w: usize| from[w.min(steps)]);
        ln_sum_exp(later.map(|v| (ready * p).ln() + v).chain([ready.ln() + from[0]]))
    }

    fn add_columns(&self, mean: &mut [f64], steps: impl Iterator<Item = usize>) {
        for step in steps {
            for (m, c) in mean[step..].iter_mut().zip(&self.column) {
                *m += c;
            }
        }
    }

    /// Returns a random output without the unit's contribution or with it.
    pub(crate) fn output(&self, with_unit: bool, generator: &mut Generator) -> Vec<f64> {
        let mut output: Vec<f64> =
            (0..self.steps).map(|_| self.noise_multiplier * generator.normal()).collect();
        if with_unit {
            let drawn = self.participation.draw(self.steps as usize, generator);
            self.add_columns(&mut output, drawn.into_iter());
        }
        output
    }
}
