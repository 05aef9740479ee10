//! Planning with the total amount of noise (TAN): small runs that predict a large run.
//!
//! # References
//!
//! "TAN Without a Burn: Scaling Laws of DP-SGD", Sander, Stock, Sablayrolles 2023.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::calibration::Calibration;
use crate::domain::check_delta;
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::math::normal;

/// Minimum noise multiplier for which [`TotalAmountOfNoise::approximate_epsilon`] holds (section
/// 3.1).
///
/// Below it the approximation may be too low. This limit is not the "privacy wall" of the paper
/// (Figure 2), where ε explodes at a constant total amount of noise: the wall is near a noise
/// multiplier of 0.5.
pub const TAN_APPROXIMATION_LIMIT: f64 = 2.0;

/// The total amount of noise of a training run: `η² = q² S/(2σ²)`, `Σ = 1/η` (Definition 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TotalAmountOfNoise {
    eta: f64,
}

impl TotalAmountOfNoise {
    /// Returns the total amount of noise of `steps` steps of DP-SGD.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain.
    pub fn new(
        sampling_probability: f64,
        noise_multiplier: f64,
        steps: u64,
    ) -> Result<Self, AccountantError> {
        DpEvent::dp_sgd_step(sampling_probability, noise_multiplier).validate()?;
        let eta = sampling_probability * (0.5 * steps as f64).sqrt() / noise_multiplier;
        Ok(Self { eta })
    }

    /// Returns η: signal over noise of the whole training.
    pub fn eta(&self) -> f64 {
        self.eta
    }

    /// Returns Σ = 1/η: the total amount of noise.
    pub fn sigma(&self) -> f64 {
        1.0 / self.eta
    }

    /// Returns `ε_TAN = η² + 2η √ln(1/δ)` (section 3.1): an **approximation** for noise multipliers
    /// of at least [`TAN_APPROXIMATION_LIMIT`]. It is not a guarantee.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1.
    pub fn approximate_epsilon(&self, delta: f64) -> Result<f64, AccountantError> {
        check_delta(delta)?;
        Ok(self.eta * self.eta + 2.0 * self.eta * (-delta.ln()).sqrt())
    }

    /// Returns the sampling probability with the same η at another noise multiplier and number of
    /// steps: `η σ √(2/S)`. `None` if it is above 1.
    pub fn sampling_probability(&self, noise_multiplier: f64, steps: u64) -> Option<f64> {
        let q = self.eta * noise_multiplier * (2.0 / steps as f64).sqrt();
        (q <= 1.0).then_some(q)
    }
}

/// The plan of one training run: batch size, noise, and length.
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
    /// Returns the run that simulates this one at `1/factor` of its batch and noise: equal `σ/B`, η
    /// and number of steps, `1/factor` of the compute.
    ///
    /// It is for choosing hyperparameters; never release its model, because its own ε is far
    /// larger. On the private data, the choice is also a release; see
    /// [`events_with_simulations`](Self::events_with_simulations).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `factor` is below 1 or not finite.
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

    /// Returns the events of this run and of `simulations` runs that are
    /// [scaled down](Self::scaled_down) by `factor` on the same data.
    ///
    /// # Privacy
    ///
    /// Hyperparameters that were chosen with small runs on the private data depend on all of these
    /// runs, so their ε is part of the ε of the run. Small runs on public data cost nothing, and a
    /// random number of them costs less: see the module [`search`](crate::search).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain.
    pub fn events_with_simulations(
        &self,
        dataset_size: u64,
        factor: f64,
        simulations: u64,
    ) -> Result<Vec<(DpEvent, u64)>, AccountantError> {
        let small = self.scaled_down(factor)?;
        let event = |run: &Self| {
            let q = run.expected_batch_size / dataset_size as f64;
            let event = DpEvent::dp_sgd_step(q, run.noise_multiplier);
            event.validate().map(|()| event)
        };
        let steps = small.steps.checked_mul(simulations).ok_or_else(|| {
            AccountantError::invalid("simulations", format!("overflows the steps: {simulations}"))
        })?;
        Ok(vec![(event(&small)?, steps), (event(self)?, self.steps)])
    }

    /// Returns the best run within a limit on the number of processed examples.
    ///
    /// It has the largest batch, because at constant η the accuracy grows with `ln B` (section 4),
    /// and the smallest noise that meets the budget. The noise is rounded up, the batch is rounded
    /// down.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Infeasible`] if the limit is below one example per step or no
    /// noise multiplier meets the budget, and [`AccountantError::InvalidArgument`] if `steps` is 0.
    pub fn best_within(
        budget: Budget,
        dataset_size: u64,
        steps: u64,
        max_examples: u64,
    ) -> Result<Self, AccountantError> {
        let batch = (max_examples / steps.max(1)).min(dataset_size);
        if batch == 0 {
            return Err(AccountantError::infeasible(format!(
                "{max_examples} examples in {steps} steps are less than one per step; allow more \
                 examples or fewer steps"
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
    /// Gain of accuracy when the batch grows by a factor `e`.
    pub slope: f64,
    residual_deviation: f64,
    mean_ln_batch: f64,
    sum_of_squares: f64,
    runs: usize,
}

impl ScalingLaw {
    /// Fits the line to runs `(batch size, accuracy)` by least squares.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if there are fewer than three runs, a batch
    /// size is not positive, an accuracy is not finite, or all batch sizes are equal.
    pub fn fit(runs: &[(f64, f64)]) -> Result<Self, AccountantError> {
        if runs.len() < 3 {
            return Err(AccountantError::invalid(
                "runs",
                format!("must contain at least 3 runs for an interval, got {}", runs.len()),
            ));
        }
        if let Some(bad) = runs.iter().find(|(b, a)| !(*b > 0.0 && b.is_finite() && a.is_finite()))
        {
            return Err(AccountantError::invalid(
                "runs",
                format!("must contain positive batch sizes and finite accuracies, got {bad:?}"),
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

    /// Returns the predicted accuracy at a batch size and its two-sided 95% prediction interval, as
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

/// Returns the 97.5% quantile of Student's distribution: exact for 1 and 2 degrees of freedom, and
/// otherwise from four terms of the Cornish-Fisher expansion (relative error below 1%).
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
    fn small_runs_on_the_private_data_are_counted() {
        use crate::{Accountant, NeighboringRelation, PldAccountant};
        let run = RunPlan { expected_batch_size: 4_096.0, noise_multiplier: 3.0, steps: 250 };
        let epsilon = |simulations| {
            let events = run.events_with_simulations(50_000, 4.0, simulations).unwrap();
            let events = events.iter().map(|(event, count)| (event, *count));
            let relation = NeighboringRelation::AddOrRemoveOne;
            PldAccountant::new(events, relation).unwrap().epsilon(1e-5).unwrap().upper
        };
        let step = DpEvent::dp_sgd_step(4_096.0 / 50_000.0, 3.0);
        let relation = NeighboringRelation::AddOrRemoveOne;
        let alone = PldAccountant::new([(&step, 250)], relation).unwrap();
        let alone = alone.epsilon(1e-5).unwrap().upper;
        assert!((epsilon(0) / alone - 1.0).abs() < 1e-6, "{}", epsilon(0));
        // Below the wall of small noise, one small run costs more than the large one.
        assert!(
            epsilon(1) > 2.0 * alone && epsilon(4) > 1.5 * epsilon(1),
            "{} {alone}",
            epsilon(1)
        );
        assert!(run.events_with_simulations(50_000, 0.5, 1).is_err());
        assert!(run.events_with_simulations(50_000, 2.0, u64::MAX).is_err());
        assert!(run.events_with_simulations(1_000, 2.0, 1).is_err());
    }

    #[test]
    fn approximate_epsilon_matches_figure_2_of_the_paper() {
        // η = 0.13 is ε = 1 and η = 0.95 is ε = 8 at δ = 8e-7.
        for (eta, epsilon) in [(0.13, 0.991), (0.95, 8.02)] {
            let tan = TotalAmountOfNoise { eta };
            assert!((tan.approximate_epsilon(8e-7).unwrap() / epsilon - 1.0).abs() < 2e-3);
        }
    }

    #[test]
    fn scaled_run_has_equal_total_amount_of_noise() {
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
    fn exact_line_is_recovered_with_an_empty_interval() {
        let runs: Vec<(f64, f64)> =
            [128.0f64, 256.0, 512.0, 1024.0].iter().map(|&b| (b, 0.1 + 0.05 * b.ln())).collect();
        let law = ScalingLaw::fit(&runs).unwrap();
        let (value, low, high) = law.predict(16_384.0);
        assert!((value - (0.1 + 0.05 * 16_384f64.ln())).abs() < 1e-12 && high - low < 1e-10);
        assert!(ScalingLaw::fit(&runs[..2]).is_err());
        assert!(ScalingLaw::fit(&[(64.0, 0.1); 4]).is_err());
    }

    #[test]
    fn student_quantiles_match_the_tables() {
        for (freedom, table) in [(3.0, 3.182446), (4.0, 2.776445), (10.0, 2.228139)] {
            assert!((student_quantile_975(freedom) / table - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn best_run_uses_the_whole_limit() {
        let budget = Budget::new(4.0, 1e-5).unwrap();
        let plan = RunPlan::best_within(budget, 50_000, 1_000, 512_000).unwrap();
        assert_eq!(plan.expected_batch_size, 512.0);
        assert!(plan.noise_multiplier > 0.5 && plan.noise_multiplier < 3.0);
        assert!(RunPlan::best_within(budget, 50_000, 1_000, 500).is_err());
    }
}
