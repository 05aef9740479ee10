//! Gaussian releases whose mean is random.

use serde::{Deserialize, Serialize};

use crate::domain::check_positive;
use crate::error::AccountantError;
use crate::math::logarithms::ln_sum_exp;
use crate::math::random::Generator;

/// A finite mixture of Gaussian distributions with given means, against the Gaussian of mean 0: the
/// hardest pair of a release in which the participation of a unit is random.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianMixture {
    /// Noise standard deviation over the clipping threshold.
    pub noise_multiplier: f64,
    /// Probability of each mean; the sum is 1.
    pub weights: Vec<f64>,
    /// Means in units of the clipping threshold, all of one length.
    pub means: Vec<Vec<f64>>,
}

impl GaussianMixture {
    /// Checks the parameters.
    pub(super) fn validate(&self) -> Result<(), AccountantError> {
        check_positive("noise_multiplier", self.noise_multiplier)?;
        let total: f64 = self.weights.iter().sum();
        let weights = self.weights.iter().all(|w| *w > 0.0) && (total - 1.0).abs() <= 1e-9;
        if !weights || self.weights.len() != self.means.len() {
            return Err(AccountantError::invalid(
                "weights",
                format!(
                    "must be positive, one for each of {} means, and add up to 1, got {} with sum \
                     {total}",
                    self.means.len(),
                    self.weights.len()
                ),
            ));
        }
        let length = self.means.first().map_or(0, Vec::len);
        let regular = |mean: &Vec<f64>| mean.len() == length && mean.iter().all(|m| m.is_finite());
        if length == 0 || !self.means.iter().all(regular) {
            return Err(AccountantError::invalid(
                "means",
                "must be finite vectors of one length, at least 1",
            ));
        }
        Ok(())
    }

    /// Returns the privacy loss at `output`, of the length of the means.
    pub(crate) fn loss(&self, output: &[f64]) -> f64 {
        let precision = self.noise_multiplier.powi(-2);
        ln_sum_exp(self.weights.iter().zip(&self.means).map(|(weight, mean)| {
            let terms = mean.iter().zip(output).map(|(m, y)| m * y - 0.5 * m * m);
            weight.ln() + terms.sum::<f64>() * precision
        }))
    }

    /// Returns a random output.
    pub(crate) fn output(&self, with_unit: bool, generator: &mut Generator) -> Vec<f64> {
        let mut left = generator.uniform();
        let chosen = self.weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        let mean = &self.means[chosen.unwrap_or(self.means.len() - 1)];
        let share = f64::from(u8::from(with_unit));
        mean.iter().map(|m| share * m + self.noise_multiplier * generator.normal()).collect()
    }
}
