//! From the privacy that is asked for to the noise of a plan.

use burn_dp::DpError;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::random::InsecureSeed;
use burn_dp_accountant::Budget;

use super::TrainError;

/// A budget, or a noise multiplier, or both; and a known seed, with which nothing is private.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Noise {
    pub(super) epsilon: Option<f64>,
    pub(super) delta: f64,
    pub(super) noise_multiplier: Option<f64>,
    pub(super) insecure_seed: Option<u64>,
}

impl Noise {
    /// Refuses a δ that would allow publishing one of so many units outright.
    ///
    /// # Errors
    ///
    /// [`TrainError::Option`] with the largest δ and a way out.
    pub(super) fn check_delta(&self, units: usize, name: &str) -> Result<(), TrainError> {
        let largest = 1.0 / units as f64;
        if self.delta > 0.0 && self.delta < largest {
            return Ok(());
        }
        let reason = format!(
            "must be greater than 0 and less than 1 / {name} = {largest:.2e}, got {:e}: a greater one \
             would allow publishing one of them outright; give --delta {:.0e}",
            self.delta,
            0.1 * largest
        );
        Err(TrainError::option("--delta", reason))
    }

    /// The plan with this noise.
    ///
    /// # Errors
    ///
    /// [`TrainError::Privacy`] for a budget that is none.
    pub(super) fn apply(self, config: PrivacyPlanConfig) -> Result<PrivacyPlanConfig, TrainError> {
        let mut config = config;
        if let Some(epsilon) = self.epsilon {
            config = config.with_budget(Budget::new(epsilon, self.delta).map_err(DpError::from)?);
        }
        if let Some(noise_multiplier) = self.noise_multiplier {
            config = config.with_noise_multiplier(noise_multiplier);
        }
        if let Some(seed) = self.insecure_seed {
            config = config.with_insecure_seed(InsecureSeed(seed));
        }
        Ok(config)
    }
}
