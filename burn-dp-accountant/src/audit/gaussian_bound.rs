//! Lower bounds on μ of Gaussian differential privacy.

use serde::Serialize;

use super::band::Band;
use super::scores::Errors;
use crate::gdp::gaussian_bracket;
use crate::math::normal;

/// A lower bound of μ of μ-Gaussian differential privacy, and its ε at a δ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GaussianLowerBound {
    /// Lower bound of μ.
    pub mu_lower: f64,
    /// Lower bound of ε at δ. At δ = 0 no ε is finite for any μ above 0; then this is 0, which says
    /// nothing.
    pub epsilon_lower: f64,
}

impl GaussianLowerBound {
    pub(super) fn new(mu_lower: f64, delta: f64) -> Self {
        let finite = delta > 0.0 && mu_lower > 0.0;
        let epsilon_lower = if finite { gaussian_bracket(mu_lower, delta)[0] } else { 0.0 };
        Self { mu_lower, epsilon_lower }
    }
}

/// Returns the largest μ that the limits of both error rates contradict at any threshold, and the
/// threshold: with misses at most `β` and false alarms at most `α`, `G_μ(α) <= β` needs
/// `μ >= -Φ⁻¹(α) - Φ⁻¹(β)`.
pub(super) fn mu_of_all_thresholds(
    thresholds: &[Errors],
    misses: &Band,
    false_alarms: &Band,
) -> (f64, Option<f64>) {
    let mut best = (0.0, None);
    for errors in thresholds {
        let (alpha, beta) = (false_alarms.limit(errors.false_alarms), misses.limit(errors.misses));
        if alpha >= 1.0 || beta >= 1.0 {
            continue;
        }
        let mu = (-normal::quantile(alpha) - normal::quantile(beta)) * (1.0 - 1e-12);
        if mu > best.0 {
            best = (mu, errors.threshold);
        }
    }
    best
}
