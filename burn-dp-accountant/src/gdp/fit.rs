//! The Gaussian mechanism that dominates a curve.

use super::gaussian::GaussianDp;
use crate::math::gaussian_dp::gaussian_delta;

/// Maximum μ of a fit.
const LARGEST_MU: f64 = 1e3;

/// Relative margin of the closed form of δ.
const ROUNDING: f64 = 1e-9;

/// The smallest certified Gaussian guarantee of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct GaussianFit {
    /// The smallest μ (to 1e-9, rounded up, and up to the grid of the curve) that dominates.
    pub mu: f64,
    /// The guarantee is `δ(ε) <= δ_μ(ε) + slack` for all `ε >= 0`: the δ of the curve at its last
    /// ε, where its tail ends.
    pub slack: f64,
    /// The loss of the fit: the smallest `κ` with `f(α + κ) - κ <= G_μ(α)` for all type I errors
    /// `α`, where `f` is the curve. 0 if the curve is Gaussian.
    pub regret: f64,
}

impl GaussianFit {
    /// Returns the fit of a curve with the points `(ε, δ)` and its type II errors.
    pub(super) fn of_curve(
        profile: &[(f64, f64)],
        type_two_error: impl Fn(f64) -> f64,
    ) -> Option<Self> {
        let slack = profile.last()?.1;
        let mut mu = 0.0;
        for pair in profile.windows(2) {
            // δ falls: on the whole interval it is at most its value at the left end, and the
            // Gaussian δ at least its value at the right end.
            let (wanted, end) = (pair[0].1 - slack, pair[1].0);
            mu = raise(mu, wanted * (1.0 + ROUNDING), end)?;
        }
        let gdp = GaussianDp::new(mu).ok()?;
        Some(Self { mu, slack, regret: regret(&gdp, type_two_error) })
    }
}

/// Returns the regret of a Gaussian bound, rounded up to 1e-6.
fn regret(gdp: &GaussianDp, type_two_error: impl Fn(f64) -> f64) -> f64 {
    let points: Vec<(f64, f64)> = (0..=400)
        .map(|k| {
            let t = f64::from(k) / 400.0;
            let alpha = t * t * (3.0 - 2.0 * t);
            (alpha, gdp.type_two_error(alpha))
        })
        .collect();
    let covers = |kappa: f64| {
        points.iter().all(|&(alpha, beta)| {
            alpha + kappa >= 1.0 || type_two_error(alpha + kappa) - kappa <= beta
        })
    };
    let (mut low, mut high) = (0.0, 1.0);
    while high - low > 1e-6 {
        let middle = 0.5 * (low + high);
        if covers(middle) { high = middle } else { low = middle }
    }
    high
}

/// Returns the smallest shift from `mu` on whose δ at `epsilon` is at least `wanted`, rounded up.
fn raise(mu: f64, wanted: f64, epsilon: f64) -> Option<f64> {
    let enough = |mu: f64| wanted <= 0.0 || (mu > 0.0 && gaussian_delta(mu, epsilon) >= wanted);
    if enough(mu) {
        return Some(mu);
    }
    let (mut low, mut high) = (mu, mu.max(1e-6));
    while !enough(high) {
        low = high;
        high *= 2.0;
        if high > LARGEST_MU {
            return None;
        }
    }
    while high - low > 1e-9 * high {
        let middle = 0.5 * (low + high);
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tradeoff::TradeoffCurve;
    use super::*;

    fn curve(delta: impl Fn(f64) -> f64, largest: f64, points: usize) -> TradeoffCurve {
        let at = |k: usize| largest * (k as f64 / points as f64).powi(2);
        TradeoffCurve::new((0..=points).map(|k| (at(k), delta(at(k)))).collect())
    }

    #[test]
    fn gaussian_curve_is_its_own_fit() {
        for mu in [0.3, 1.0, 2.5] {
            let fit = curve(|e| gaussian_delta(mu, e), 8.0 * mu, 4_000).gaussian_fit().unwrap();
            assert!(fit.mu >= mu * (1.0 - 1e-6) && fit.mu < 1.01 * mu, "{mu}: {fit:?}");
            assert!(fit.regret < 3e-3 && fit.slack < 1e-8, "{mu}: {fit:?}");
        }
    }

    #[test]
    fn fit_dominates_and_less_does_not() {
        // Randomized response with ε = 1.
        let delta = |e: f64| ((1f64.exp() - e.exp()) / (1.0 + 1f64.exp())).max(0.0);
        let fit = curve(delta, 1.0, 2_000).gaussian_fit().unwrap();
        let holds = |mu: f64| {
            (0..500)
                .map(|k| f64::from(k) / 500.0)
                .all(|e| delta(e) <= gaussian_delta(mu, e) + 1e-12)
        };
        assert!(holds(fit.mu) && !holds(0.99 * fit.mu), "{fit:?}");
        assert!(fit.regret > 1e-3, "{fit:?}");
    }

    #[test]
    fn curve_without_privacy_has_no_fit() {
        assert_eq!(
            TradeoffCurve::new(vec![(0.0, 1.0), (1.0, 1.0), (2.0, 0.0)]).gaussian_fit(),
            None
        );
    }
}
