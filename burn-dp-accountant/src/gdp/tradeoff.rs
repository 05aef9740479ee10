//! Trade-off curves: the type II error of the best test as a function of its type I error.

use super::fit::GaussianFit;
use super::gaussian::GaussianDp;

/// A lower bound on the trade-off curve of a composition, symmetrized over both directions, from
/// its privacy loss distribution. Every point is a guarantee: no test has smaller errors.
#[derive(Debug, Clone, PartialEq)]
pub struct TradeoffCurve {
    /// `(ε, upper bound of δ(ε))`, ε from 0.
    profile: Vec<(f64, f64)>,
}

impl TradeoffCurve {
    pub(crate) fn new(profile: Vec<(f64, f64)>) -> Self {
        Self { profile }
    }

    /// Returns the points `(ε, δ)` of the curve; every δ is an upper bound.
    pub fn profile(&self) -> &[(f64, f64)] {
        &self.profile
    }

    /// Returns a lower bound on the type II error at type I error `alpha` (clamped to `[0, 1]`):
    /// `max_ε max(0, 1-δ-e^ε α, e^{-ε}(1-δ-α))`.
    ///
    /// # References
    ///
    /// "Gaussian Differential Privacy", Dong, Roth, Su 2022, Proposition 6.
    pub fn type_two_error(&self, alpha: f64) -> f64 {
        let alpha = alpha.clamp(0.0, 1.0);
        let lines = self.profile.iter().map(|&(epsilon, delta)| {
            let left = 1.0 - delta;
            (left - epsilon.exp() * alpha).max((left - alpha) * (-epsilon).exp())
        });
        lines.fold(0.0, f64::max).min(1.0 - alpha)
    }

    /// Returns the smallest μ such that μ-Gaussian differential privacy dominates the curve: a
    /// summary of the whole curve in one number. `None` if no μ up to 1,000 does.
    ///
    /// # References
    ///
    /// "(ε, δ) Considered Harmful: Best Practices for Reporting Differential Privacy Guarantees",
    /// Gomez et al. 2025 (the fit and its regret); "Gaussian Differential Privacy", Dong, Roth, Su
    /// 2022, Corollary 1 (the dual form).
    pub fn gaussian_fit(&self) -> Option<GaussianFit> {
        GaussianFit::of_curve(&self.profile, |alpha| self.type_two_error(alpha))
    }
}

/// A convex, piecewise linear trade-off function on a grid, for the operators of f-DP.
///
/// It interpolates between grid points, slightly above the original function. Use it for plots and
/// comparisons, and [`TradeoffCurve`] for guarantees.
#[derive(Debug, Clone, PartialEq)]
pub struct TradeoffFunction {
    points: Vec<(f64, f64)>,
}

impl TradeoffFunction {
    /// Creates the convex hull of the values of `f` at `count + 1` points, denser near 0 and 1.
    pub fn from_function(f: impl Fn(f64) -> f64, count: usize) -> Self {
        let count = count.max(4);
        let points = (0..=count).map(|k| {
            let t = k as f64 / count as f64;
            // Smooth step: quadratic near both ends.
            let alpha = t * t * (3.0 - 2.0 * t);
            (alpha, f(alpha).clamp(0.0, 1.0 - alpha))
        });
        Self { points: convex(points.collect()) }
    }

    /// Returns `G_μ` on a grid.
    pub fn gaussian(gdp: &GaussianDp, count: usize) -> Self {
        Self::from_function(|alpha| gdp.type_two_error(alpha), count)
    }

    /// Returns the value at `alpha` (clamped to `[0, 1]`), by interpolation.
    pub fn at(&self, alpha: f64) -> f64 {
        let alpha = alpha.clamp(0.0, 1.0);
        let after = self.points.partition_point(|p| p.0 < alpha);
        match (after.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(after)) {
            (Some(a), Some(b)) if b.0 > a.0 => a.1 + (b.1 - a.1) * (alpha - a.0) / (b.0 - a.0),
            (_, Some(b)) => b.1,
            (Some(a), None) => a.1,
            (None, None) => 0.0,
        }
    }

    /// Returns the inverse function, with the roles of the two errors exchanged.
    pub fn inverse(&self) -> Self {
        let mut points: Vec<(f64, f64)> = self.points.iter().rev().map(|&(a, b)| (b, a)).collect();
        if points.first().is_none_or(|p| p.0 > 0.0) {
            let value = self.points.last().map_or(1.0, |p| p.0);
            points.insert(0, (0.0, value));
        }
        if points.last().is_none_or(|p| p.0 < 1.0) {
            points.push((1.0, 0.0));
        }
        Self { points: convex(points) }
    }

    /// Applies the subsampling operator `C_p(f) = min{f_p, f_p⁻¹}**` with `f_p = p f + (1-p) Id`.
    ///
    /// # References
    ///
    /// "Gaussian Differential Privacy", Dong, Roth, Su 2022, Definition 6 and Theorem 4.
    pub fn subsampled(&self, p: f64) -> Self {
        let p = p.clamp(0.0, 1.0);
        let mixed = Self {
            points: self.points.iter().map(|&(a, b)| (a, p * b + (1.0 - p) * (1.0 - a))).collect(),
        };
        let inverse = mixed.inverse();
        let mut alphas: Vec<f64> =
            mixed.points.iter().chain(&inverse.points).map(|point| point.0).collect();
        alphas.sort_by(f64::total_cmp);
        alphas.dedup();
        let points = alphas.into_iter().map(|a| (a, mixed.at(a).min(inverse.at(a))));
        Self { points: convex(points.collect()) }
    }
}

/// Returns the lower convex hull of points sorted by their first coordinate.
fn convex(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for point in points {
        if hull.last().is_some_and(|last| last.0 == point.0) {
            if hull.last().is_some_and(|last| last.1 <= point.1) {
                continue;
            }
            hull.pop();
        }
        while let [.., a, b] = hull[..] {
            // b is above the chord from a to the new point.
            if (b.1 - a.1) * (point.0 - a.0) >= (point.1 - a.1) * (b.0 - a.0) {
                hull.pop();
            } else {
                break;
            }
        }
        hull.push(point);
    }
    hull
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn subsampling_is_identity_at_one_and_perfect_at_zero() {
        let gdp = GaussianDp::new(1.0).unwrap();
        let f = TradeoffFunction::gaussian(&gdp, 2_000);
        for alpha in [0.01, 0.2, 0.6, 0.95] {
            assert!((f.subsampled(1.0).at(alpha) - gdp.type_two_error(alpha)).abs() < 1e-5);
            assert!((f.subsampled(0.0).at(alpha) - (1.0 - alpha)).abs() < 1e-12);
        }
    }

    #[test]
    fn subsampled_function_is_symmetric_and_below_its_parts() {
        let gdp = GaussianDp::new(1.5).unwrap();
        let f = TradeoffFunction::gaussian(&gdp, 2_000);
        let sampled = f.subsampled(0.3);
        for alpha in [0.01, 0.1, 0.4, 0.8] {
            let beta = sampled.at(alpha);
            assert!((sampled.at(beta) - alpha).abs() < 1e-4, "{alpha} {beta}");
            assert!(beta <= 0.3 * f.at(alpha) + 0.7 * (1.0 - alpha) + 1e-12);
            assert!(beta >= f.at(alpha) - 1e-12);
        }
    }
}
