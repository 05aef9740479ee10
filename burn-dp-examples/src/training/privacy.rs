//! Computes the noise of a plan from the requested privacy.

use burn_dp::DpError;
use burn_dp::optim::{IndependenceCheck, PrivacyPlan, PrivacyPlanConfig};
use burn_dp::random::InsecureSeed;
use burn_dp_accountant::{Budget, Rounded};
use serde::Serialize;

use super::options::PrivacyOptions;
use super::{TrainError, checks};

/// A budget, or a noise multiplier, or both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PrivacySettings {
    /// Budget: the noise is calibrated to end at this ε unless it is also given. Training stops
    /// before the step that would exceed it.
    pub epsilon: Option<f64>,
    /// δ at which ε is stated.
    pub delta: f64,
    /// Standard deviation of the noise over the sensitivity.
    pub noise_multiplier: Option<f64>,
    /// Number of units for which the statement also has a guarantee. A resumed run may use a
    /// different one.
    #[serde(skip)]
    pub group: Option<u64>,
    /// Known seed of sampling and noise. Nothing is private with it.
    pub insecure_seed: Option<u64>,
    /// When the independence of the examples is tested by value; the statement says what was
    /// tested, so a resumed run may use a different rate.
    #[serde(skip)]
    pub independence_check: IndependenceCheck,
}

impl PrivacySettings {
    /// Checks the options and fills in defaults.
    ///
    /// # Arguments
    ///
    /// - `epsilon`: the budget where neither a budget nor a noise multiplier is given
    /// - `delta`: δ where none is given
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if a number is not positive and finite, δ is not less than 1,
    /// or the group has no unit.
    pub fn new(
        options: &PrivacyOptions,
        epsilon: Option<f64>,
        delta: f64,
    ) -> Result<Self, TrainError> {
        let noise_multiplier = options.noise_multiplier;
        if let Some(sigma) = noise_multiplier
            && !(sigma > 0.0 && sigma.is_finite())
        {
            let reason = match options.epsilon {
                Some(epsilon) if sigma == 0.0 => format!(
                    "0 adds no noise, so no budget such as --epsilon {epsilon} can be met; leave \
                     it out and the noise is calibrated"
                ),
                _ => format!(
                    "must be a number greater than 0, got {sigma}; without noise there is no \
                     privacy: `cargo xtask train --non-private` trains without privacy"
                ),
            };
            return Err(TrainError::option("--noise-multiplier", reason));
        }
        let epsilon = match noise_multiplier {
            Some(_) => options.epsilon,
            None => options.epsilon.or(epsilon),
        };
        checks::positive(epsilon.map(|epsilon| ("--epsilon", epsilon)))?;
        let delta = options.delta.unwrap_or(delta);
        if !(delta > 0.0 && delta < 1.0) {
            let reason = format!("must be between 0 and 1/N, got {delta}; try --delta 1e-5");
            return Err(TrainError::option("--delta", reason));
        }
        if options.group == Some(0) {
            let reason = "must be at least 1, got 0: a guarantee is for one unit or several at \
                          once; leave it out, or give the number of units";
            return Err(TrainError::option("--group", reason));
        }
        let PrivacyOptions { group, insecure_seed, independence_check, .. } = *options;
        let independence_check = independence_check.unwrap_or_default();
        Ok(Self { epsilon, delta, noise_multiplier, group, insecure_seed, independence_check })
    }

    /// Checks that δ does not allow publishing one of `units` outright.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] with the largest δ and a remedy.
    pub fn check_delta(&self, units: usize, name: &str) -> Result<(), TrainError> {
        let largest = 1.0 / units as f64;
        if self.delta > 0.0 && self.delta < largest {
            return Ok(());
        }
        let reason = format!(
            "must be greater than 0 and less than 1 / {name} = 1/{units} = {largest:.2e}, got \
             {:e}: a larger value would allow publishing one of them outright; give --delta {:.0e}",
            self.delta,
            0.1 * largest
        );
        Err(TrainError::option("--delta", reason))
    }

    /// Returns the plan with this noise for a number of steps.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the noise multiplier spends more than the budget in the
    /// first step, and [`TrainError::Privacy`] if the plan is rejected or no noise meets the
    /// budget.
    pub fn plan(&self, config: PrivacyPlanConfig, steps: u64) -> Result<PrivacyPlan, TrainError> {
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
        if let (Some(epsilon), Some(noise_multiplier)) = (self.epsilon, self.noise_multiplier) {
            let first = config.clone().with_steps(1).init()?.epsilon_at_end(self.delta)?;
            if first > epsilon {
                let reason = format!(
                    "{noise_multiplier} spends epsilon = {} in the first step, more than --epsilon \
                     {epsilon}; leave it out and the noise is calibrated",
                    Rounded::up(first)
                );
                return Err(TrainError::option("--noise-multiplier", reason));
            }
        }
        Ok(config.with_steps(steps).init()?)
    }
}
