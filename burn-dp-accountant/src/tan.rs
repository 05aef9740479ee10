//! Planning with the total amount of noise (TAN): which small experiments predict a large run.
//!
//! # References
//!
//! "TAN Without a Burn: Scaling Laws of DP-SGD", Sander, Stock, Sablayrolles 2023.

use serde::{Deserialize, Serialize};

use crate::math::normal;
use crate::{AccountantError, Budget, Calibration, DpEvent};

/// Below this noise multiplier ε is no longer a function of the total amount of noise alone
/// (section 3.1).
pub const PRIVACY_WALL: f64 = 2.0;

/// The total amount of noise of a training: `η² = q² S/(2σ²)`, `Σ = 1/η` (Definition 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TotalAmountOfNoise {
    eta: f64,
}

impl TotalAmountOfNoise {
    /// Of `steps` steps with this sampling probability and noise multiplier.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] for numbers outside of their domains.
    pub fn new(
        sampling_probability: f64,
        noise_multiplier: f64,
        steps: u64,
    ) -> Result<Self, AccountantError> {
        DpEvent::dp_sgd_step(sampling_probability, noise_multiplier).validate()?;
        let eta = sampling_probability * (0.5 * steps as f64).sqrt() / noise_multiplier;
        Ok(Self { eta })
    }

    /// η: the signal over the noise of the whole training.
    pub fn eta(&self) -> f64 {
        self.eta
    }

    /// Σ = 1/η: the total amount of noise.
    pub fn sigma(&self) -> f64 {
        1.0 / self.eta
    }

    /// `ε_TAN = η² + 2η √ln(1/δ)` (section 3.1): an **approximation**, good while the noise
    /// multiplier is at least [`PRIVACY_WALL`]; not a guarantee.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] for a δ outside of (0, 1).
    pub fn approximate_epsilon(&self, delta: f64) -> Result<f64, AccountantError> {
        crate::budget::check_delta(delta)?;
        Ok(self.eta * self.eta + 2.0 * self.eta * (-delta.ln()).sqrt())
    }

    /// The sampling probability that keeps this η at another noise multiplier and number of steps:
    /// `η σ √(2/S)`. `None` if it is above 1.
    pub fn sampling_probability(&self, noise_multiplier: f64, steps: u64) -> Option<f64> {
        let q = self.eta * noise_multiplier * (2.0 / steps as f64).sqrt();
        (q <= 1.0).then_some(q)
    }
}

/// One training: batch size, noise and length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Expected batch size.
    pub expected_batch_size: f64,
    /// Noise multiplier.
    pub noise_multiplier: f64,
    /// Number of steps.
    pub steps: u64,
}

impl RunPlan {
    /// The run that simulates this one at `1/factor` of its batch and noise: same `σ/B`, same η, same
    /// number of steps, `1/factor` of the compute. It is for choosing hyper-parameters on data that
    /// is not released; its own ε is far larger.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] unless `factor` is at least 1 and finite.
    pub fn scaled_down(&self, factor: f64) -> Result<Self, AccountantError> {
        if !(factor >= 1.0 && factor.is_finite()) {
            return Err(AccountantError::invalid(
                "factor",
                format!("must be finite and at least 1, got {factor}"),
            ));
        }
        Ok(Self {
            expected_batch_size: self.expected_batch_size / factor,
            noise_multiplier: self.noise_multiplier / factor,
            steps: self.steps,
        })
    }

    /// The best run within a limit on the examples that are processed: the largest batch, because at
    /// constant η the accuracy grows with `ln B` (section 4), with the smallest noise that meets the
    /// budget. The noise is rounded up, the batch down.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Infeasible`] if not one example a step is allowed, and the errors of the
    /// calibration.
    pub fn best_within(
        budget: Budget,
        dataset_size: u64,
        steps: u64,
        max_examples: u64,
    ) -> Result<Self, AccountantError> {
        let batch = (max_examples / steps.max(1)).min(dataset_size);
        if batch == 0 {
            return Err(AccountantError::infeasible(format!(
                "{max_examples} examples in {steps} steps is less than one a step; allow more or take fewer steps"
            )));
        }
        let q = batch as f64 / dataset_size as f64;
        let noise_multiplier =
            Calibration::new(budget).noise_multiplier(steps, |s| DpEvent::dp_sgd_step(q, s))?;
        Ok(Self { expected_batch_size: batch as f64, noise_multiplier, steps })
    }
}

/// The line `accuracy = intercept + slope · ln B`, fitted to runs at constant steps and `σ/B`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScalingLaw {
    /// Accuracy at `B = 1`.
    pub intercept: f64,
    /// Gain per factor `e` of the batch.
    pub slope: f64,
    residual_deviation: f64,
    mean_ln_batch: f64,
    sum_of_squares: f64,
    runs: usize,
}

impl ScalingLaw {
    /// Least squares over `(batch size, accuracy)`.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] for fewer than three runs, a batch that is not positive, an
    /// accuracy that is not finite, or batches that are all equal.
    pub fn fit(runs: &[(f64, f64)]) -> Result<Self, AccountantError> {
        if runs.len() < 3 {
            return Err(AccountantError::invalid(
                "runs",
                format!("must hold at least 3 runs for an interval, got {}", runs.len()),
            ));
        }
        if let Some(bad) = runs.iter().find(|(b, a)| !(*b > 0.0 && b.is_finite() && a.is_finite()))
        {
            return Err(AccountantError::invalid(
                "runs",
                format!("must hold positive batch sizes and finite accuracies, got {bad:?}"),
            ));
        }
        let n = runs.len() as f64;
        let mean_x = runs.iter().map(|(b, _)| b.ln()).sum::<f64>() / n;
        let mean_y = runs.iter().map(|(_, a)| a).sum::<f64>() / n;
        let squares: f64 = runs.iter().map(|(b, _)| (b.ln() - mean_x).powi(2)).sum();
        if squares < 1e-12 {
            return Err(AccountantError::invalid("runs", "must have different batch sizes"));
        }
        let products: f64 = runs.iter().map(|(b, a)| (b.ln() - mean_x) * (a - mean_y)).sum();
        let slope = products / squares;
        let intercept = mean_y - slope * mean_x;
        let residuals: f64 =
            runs.iter().map(|(b, a)| (a - intercept - slope * b.ln()).powi(2)).sum();
        Ok(Self {
            intercept,
            slope,
            residual_deviation: (residuals / (n - 2.0)).sqrt(),
            mean_ln_batch: mean_x,
            sum_of_squares: squares,
            runs: runs.len(),
        })
    }

    /// Predicted accuracy at a batch size, with its two-sided 95 % prediction interval
    /// `(value, low, high)` (Student's distribution; residuals assumed normal).
    pub fn predict(&self, batch: f64) -> (f64, f64, f64) {
        let x = batch.ln();
        let value = self.intercept + self.slope * x;
        let n = self.runs as f64;
        let leverage = 1.0 + 1.0 / n + (x - self.mean_ln_batch).powi(2) / self.sum_of_squares;
        let half = student_quantile_975(n - 2.0) * self.residual_deviation * leverage.sqrt();
        (value, value - half, value + half)
    }
}

/// The 97.5 % quantile of Student's distribution: exact for 1 and 2 degrees of freedom, by the
/// expansion of Cornish and Fisher with four terms above (relative error below 1 %).
fn student_quantile_975(freedom: f64) -> f64 {
    if freedom <= 1.0 {
        return 12.706_204_736_432_1;
    }
    if freedom <= 2.0 {
        return 4.302_652_729_911_3;
    }
    let z = normal::quantile(0.975);
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    let n = freedom;
    z + (z3 + z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn figure_2_of_the_paper_has_its_two_levels() {
        // η = 0.13 is ε = 1 and η = 0.95 is ε = 8 at δ = 8e-7.
        for (eta, epsilon) in [(0.13, 0.991), (0.95, 8.02)] {
            let tan = TotalAmountOfNoise { eta };
            assert!((tan.approximate_epsilon(8e-7).unwrap() / epsilon - 1.0).abs() < 2e-3);
        }
    }

    #[test]
    fn a_scaled_run_has_the_same_total_amount_of_noise() {
        let run = RunPlan { expected_batch_size: 4096.0, noise_multiplier: 3.0, steps: 2_500 };
        let small = run.scaled_down(16.0).unwrap();
        let eta = |r: &RunPlan| {
            let q = r.expected_batch_size / 50_000.0;
            TotalAmountOfNoise::new(q, r.noise_multiplier, r.steps).unwrap().eta()
        };
        assert!((eta(&run) / eta(&small) - 1.0).abs() < 1e-14);
        assert!((eta(&run) - 0.965436458580033).abs() < 1e-12);
        assert!(run.scaled_down(0.5).is_err());
    }

    #[test]
    fn an_exact_line_is_recovered_and_its_interval_closes() {
        let runs: Vec<(f64, f64)> =
            [128.0f64, 256.0, 512.0, 1024.0].iter().map(|&b| (b, 0.1 + 0.05 * b.ln())).collect();
        let law = ScalingLaw::fit(&runs).unwrap();
        let (value, low, high) = law.predict(16_384.0);
        assert!((value - (0.1 + 0.05 * 16_384f64.ln())).abs() < 1e-12 && high - low < 1e-10);
        assert!(ScalingLaw::fit(&runs[..2]).is_err());
        assert!(ScalingLaw::fit(&[(64.0, 0.1); 4]).is_err());
    }

    #[test]
    fn students_quantiles_match_the_tables() {
        for (freedom, table) in [(3.0, 3.182446), (4.0, 2.776445), (10.0, 2.228139)] {
            assert!((student_quantile_975(freedom) / table - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn the_best_run_uses_the_whole_limit_and_meets_the_budget() {
        let budget = Budget::new(4.0, 1e-5).unwrap();
        let plan = RunPlan::best_within(budget, 50_000, 1_000, 512_000).unwrap();
        assert_eq!(plan.expected_batch_size, 512.0);
        assert!(plan.noise_multiplier > 0.5 && plan.noise_multiplier < 3.0);
        assert!(RunPlan::best_within(budget, 50_000, 1_000, 500).is_err());
    }
}
