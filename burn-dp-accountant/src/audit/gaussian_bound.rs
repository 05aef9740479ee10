//! Lower bounds on μ of Gaussian differential privacy.

use serde::Serialize;

use super::band::Band;
use super::scores::Errors;
use crate::gdp::gaussian_bracket;
use crate::math::normal;

/// A lower bound on μ of μ-Gaussian differential privacy, and its ε at a δ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GaussianLowerBound {
    /// Lower bound of μ.
    pub mu_lower: f64,
    /// Lower bound of ε at δ. At δ = 0, no ε is finite for any μ above 0; this is then 0, which has
    /// no meaning.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bound of jax_privacy: every corner of the hull of the ROC curve at its share of
    /// half of the significance. `corners` are pairs of misses and true rejections.
    fn of_corners(
        corners: &[[usize; 2]],
        scores: [usize; 2],
        significance: f64,
        delta: f64,
    ) -> f64 {
        let level = 0.5 * significance / corners.len() as f64;
        let [misses, false_alarms] = scores.map(|scores| Band::of_one_threshold(scores, level));
        let errors = |&[misses, rejections]: &[usize; 2]| Errors {
            threshold: None,
            misses,
            false_alarms: scores[1] - rejections,
        };
        let thresholds: Vec<_> = corners.iter().map(errors).collect();
        let (mu, _) = mu_of_all_thresholds(&thresholds, &misses, &false_alarms);
        GaussianLowerBound::new(mu, delta).epsilon_lower
    }

    #[test]
    fn bounds_of_the_corners_of_the_hull_equal_the_golden_table() {
        // `from_gdp` of golden/auditing.json (an own implementation and jax_privacy at commit
        // 8967688c, whose solver stops at 1e-6): rows p036, p038 and p039.
        let [binary, hundred, ten] = [
            [[0, 0], [10, 32], [40, 40]],
            [[0, 0], [0, 100], [100, 100]],
            [[0, 0], [0, 10], [10, 10]],
        ];
        for (corners, scores, significance, delta, expected) in [
            (&binary, [40, 40], 0.05, 1e-5, 1.603_898_307_403_999_2),
            (&binary, [40, 40], 0.05, 0.01, 0.708_256_653_197_512_2),
            (&binary, [40, 40], 0.01, 1e-3, 0.426_856_212_091_608_8),
            (&binary, [40, 40], 0.1, 0.1, 0.315_773_719_377_936_3),
            (&hundred, [100, 100], 0.05, 1e-5, 19.290_488_978_795_93),
            (&hundred, [100, 100], 0.01, 1e-3, 13.554_816_662_305_537),
            (&ten, [10, 10], 0.05, 1e-5, 2.484_577_372_546_336_3),
            (&ten, [10, 10], 0.01, 1e-3, 0.290_657_693_640_045_2),
        ] {
            let found = of_corners(corners, scores, significance, delta);
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        }
        // Row p045, except release 2.0.0, which took the absolute value of a negative μ.
        let unequal = [
            [0, 0],
            [0, 5],
            [1, 9],
            [3, 14],
            [5, 17],
            [8, 21],
            [10, 23],
            [15, 27],
            [20, 30],
            [26, 33],
            [34, 36],
            [37, 37],
            [53, 41],
            [64, 43],
            [78, 45],
            [87, 46],
            [98, 47],
            [112, 48],
            [130, 49],
            [159, 50],
            [200, 50],
        ];
        let found = of_corners(&unequal, [200, 50], 0.01, 1e-3);
        assert!((found / 1.363_341_332_147_263_6 - 1.0).abs() < 1e-6, "{found}");
    }
}
