//! Inversion of the moment generating function of the privacy loss on a saddle contour.
//!
//! With `M(s) = E_P[e^{sY}]`, `∫ δ(ε) e^{sε} dε = M(s)/(s(s+1))`, hence
//! `δ(ε) = 1/(2πi) ∫ M(s) e^{-sε} / (s(s+1)) ds` over `Re s = θ > 0`. On the contour through the saddle
//! point nothing cancels, and the trapezoidal rule converges geometrically: its aliases are
//! `δ(ε + kL) e^{θkL}`, `L = 2π` over the step. `M` is additive in the logarithm, so that a million
//! steps cost as much as one.

use crate::math::complex::Complex64;
use crate::math::normal;
use crate::mechanism::{Direction, Nodes, Pair};
use crate::saddle::Cumulants;

/// An exact value with its estimated error: the difference to a second contour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exact {
    pub(crate) value: f64,
    pub(crate) relative_error: f64,
}

/// More points on the contour mean that the integrand decays too slowly.
const MAX_CONTOUR: usize = 4096;

/// Values of `M(s)/(s(s+1))` on one contour, relative to a common factor.
struct Contour {
    theta: f64,
    step: f64,
    /// `ln M(θ)`.
    ln_scale: f64,
    /// `M(s)/(M(θ) s (s+1))`, without the factor `e^{-sε}`.
    values: Vec<Complex64>,
    /// Size of the last value relative to the first.
    remainder: f64,
}

impl Contour {
    /// `spread` scales the step and the number of nodes: the second contour uses another one.
    fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        theta: f64,
        variance: f64,
        delta: f64,
        spread: f64,
    ) -> Option<Self> {
        let curvature = variance + theta.powi(-2) + (theta + 1.0).powi(-2);
        let period = (16.0 * curvature.sqrt()).max((32.0 - delta.ln()) / theta) * spread;
        let step = 2.0 * std::f64::consts::PI / period;
        // Highest frequency: where the Gaussian factor has fallen to e^-38, if it is Gaussian.
        let highest = 8.8 / variance.sqrt();
        if !(highest / step < 4.0 * MAX_CONTOUR as f64) {
            return None;
        }
        let mut rules = Vec::new();
        for (pair, count) in parts {
            let rule = match *pair {
                Pair::Gaussian { mu } => Rule::Gaussian(mu),
                _ => Rule::Nodes(Nodes::new(
                    pair,
                    direction,
                    theta + 1.0,
                    spread * highest.min(step * MAX_CONTOUR as f64),
                )?),
            };
            rules.push((rule, *count as f64));
        }
        let ln_moment = |s: Complex64| -> Complex64 {
            rules
                .iter()
                .map(|(rule, count)| match rule {
                    Rule::Gaussian(mu) => s * (s + 1.0) * (0.5 * mu * mu * count),
                    Rule::Nodes(nodes) => nodes.ln_complex_moment(s) * *count,
                })
                .sum()
        };
        let ln_scale = ln_moment(Complex64::new(theta, 0.0)).re;
        let mut values = Vec::with_capacity(128);
        let mut remainder = 1.0;
        let first = 1.0 / (theta * (theta + 1.0));
        for k in 0..MAX_CONTOUR {
            let s = Complex64::new(theta, step * k as f64);
            let value = (ln_moment(s) - ln_scale).exp() / (s * (s + 1.0));
            remainder = value.norm() / first;
            values.push(value);
            if remainder < 1e-16 {
                break;
            }
        }
        (remainder < 1e-12 && ln_scale.is_finite())
            .then_some(Self { theta, step, ln_scale, values, remainder })
    }

    /// `δ(ε)` and `-δ'(ε)`, both divided by `e^{ln M(θ) - θε}`.
    fn evaluate(&self, epsilon: f64) -> (f64, f64) {
        let (mut delta, mut slope) = (0.0, 0.0);
        for (k, value) in self.values.iter().enumerate() {
            let angle = -self.step * k as f64 * epsilon;
            let term = value * Complex64::from_polar(1.0, angle);
            let weight = if k == 0 { 0.5 } else { 1.0 };
            delta += weight * term.re;
            let s = Complex64::new(self.theta, self.step * k as f64);
            slope += weight * (term * s).re;
        }
        let scale = self.step / std::f64::consts::PI;
        (scale * delta, scale * slope)
    }

    fn ln_delta(&self, epsilon: f64) -> (f64, f64) {
        let (delta, slope) = self.evaluate(epsilon);
        (delta.ln() + self.ln_scale - self.theta * epsilon, slope / delta)
    }

    /// Newton's method on `ln δ`, which is concave and falls.
    fn epsilon(&self, delta: f64, start: f64) -> Option<f64> {
        let target = delta.ln();
        let mut epsilon = start;
        for _ in 0..50 {
            let (value, decay) = self.ln_delta(epsilon);
            if !value.is_finite() || !(decay > 0.0) {
                return None;
            }
            let step = (value - target) / decay;
            epsilon += step;
            if step.abs() <= 1e-15 * epsilon.abs().max(1e-300) {
                return Some(epsilon);
            }
            if step.abs() <= 1e-12 * epsilon.abs() {
                // One more step of a quadratic method is below the rounding.
                let (value, decay) = self.ln_delta(epsilon);
                let last = (value - target) / decay;
                return last.is_finite().then_some(epsilon + last);
            }
        }
        None
    }
}

enum Rule {
    Gaussian(f64),
    Nodes(Nodes),
}

/// Exact ε at `delta` in one direction; not below 0. `None` where the integrand decays too slowly or
/// a pair has no analytic rule: use privacy loss distributions there.
pub(crate) fn epsilon_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    delta: f64,
) -> Option<Exact> {
    if let Some(mu) = only_gaussian(parts) {
        return Some(Exact { value: gaussian_epsilon(mu, delta), relative_error: 1e-12 });
    }
    let mut cumulants = Cumulants::new(parts, direction, 1e-300);
    let saddle = cumulants.saddle(delta)?;
    let first = Contour::new(parts, direction, saddle.theta, saddle.variance, delta, 1.0)?;
    let epsilon = first.epsilon(delta, saddle.epsilon)?;
    if epsilon <= 0.0 {
        return Some(Exact { value: 0.0, relative_error: 0.0 });
    }
    let theta = 0.83 * saddle.theta;
    let (_, _, variance) = cumulants.at(theta);
    let second = Contour::new(parts, direction, theta, variance, delta, 1.13)?;
    let other = second.epsilon(delta, epsilon)?;
    let relative_error = (other / epsilon - 1.0).abs() + first.remainder + 1e-15;
    Some(Exact { value: epsilon, relative_error })
}

/// Exact δ at `epsilon` in one direction.
pub(crate) fn delta_of_direction(
    parts: &[(Pair, u64)],
    direction: Direction,
    epsilon: f64,
) -> Option<Exact> {
    if let Some(mu) = only_gaussian(parts) {
        return Some(Exact { value: gaussian_delta(mu, epsilon), relative_error: 1e-12 });
    }
    let mut cumulants = Cumulants::new(parts, direction, 1e-300);
    let (saddle, ln_delta) = cumulants.saddle_at(epsilon)?;
    let guess = ln_delta.exp().clamp(1e-280, 1.0);
    let value_at = |theta: f64, variance: f64, spread: f64| {
        let contour = Contour::new(parts, direction, theta, variance, guess, spread)?;
        let (ln_delta, _) = contour.ln_delta(epsilon);
        ln_delta.is_finite().then_some((ln_delta.exp(), contour.remainder))
    };
    let (value, remainder) = value_at(saddle.theta, saddle.variance, 1.0)?;
    let theta = 0.83 * saddle.theta;
    let (_, _, variance) = cumulants.at(theta);
    let (other, _) = value_at(theta, variance, 1.13)?;
    Some(Exact { value, relative_error: (other / value - 1.0).abs() + remainder + 1e-15 })
}

fn only_gaussian(parts: &[(Pair, u64)]) -> Option<f64> {
    let mut square = 0.0;
    for (pair, count) in parts {
        match pair {
            Pair::Gaussian { mu } => square += mu * mu * *count as f64,
            _ => return None,
        }
    }
    Some(f64::sqrt(square))
}

/// `δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2)` of Gaussian differential privacy (Dong, Roth, Su 2022,
/// Corollary 1; Balle and Wang 2018), without cancellation between the two terms' exponents.
pub(crate) fn gaussian_delta(mu: f64, epsilon: f64) -> f64 {
    let (a, b) = (-epsilon / mu + 0.5 * mu, -epsilon / mu - 0.5 * mu);
    let (ln_first, ln_second) = (normal::ln_cdf(a), epsilon + normal::ln_cdf(b));
    if ln_second < ln_first {
        (crate::math::ln_sub_exp(ln_first, ln_second)).exp()
    } else {
        0.0
    }
}

/// The ε at which [`gaussian_delta`] falls to `delta`, by Newton's method on `ln δ`; 0 if `δ(0)` is
/// below already.
pub(crate) fn gaussian_epsilon(mu: f64, delta: f64) -> f64 {
    if gaussian_delta(mu, 0.0) <= delta {
        return 0.0;
    }
    let target = delta.ln();
    let mut epsilon = 0.0;
    // ln δ is concave: from the left the iteration overshoots at most once.
    for _ in 0..200 {
        let value = gaussian_delta(mu, epsilon);
        if value <= 0.0 {
            epsilon *= 0.5;
            continue;
        }
        let ln_slope = epsilon + normal::ln_cdf(-epsilon / mu - 0.5 * mu) - value.ln();
        let step = (value.ln() - target) / ln_slope.exp();
        epsilon = (epsilon + step).max(0.0);
        if step.abs() <= 1e-14 * epsilon {
            break;
        }
    }
    epsilon
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn gaussian_duality_has_its_golden_values() {
        // gdp_fdp.json (30 digits).
        assert!((gaussian_delta(0.01, 0.0) / 0.003989406181481645 - 1.0).abs() < 1e-12);
        assert!((gaussian_delta(4.0, 0.0) / 0.9544997361036416 - 1.0).abs() < 1e-14);
        for (mu, delta) in [(0.1, 1e-5), (1.0, 1e-12), (5.0, 1e-3)] {
            let epsilon = gaussian_epsilon(mu, delta);
            assert!((gaussian_delta(mu, epsilon) / delta - 1.0).abs() < 1e-10, "{mu} {delta}");
        }
    }

    #[test]
    fn the_inversion_of_gaussians_equals_the_closed_form() {
        let parts = [(Pair::Gaussian { mu: 0.3 }, 7)];
        let mu = 0.3 * 7f64.sqrt();
        let mut cumulants = Cumulants::new(&parts, Direction::Remove, 1e-300);
        for delta in [1e-3, 1e-6, 1e-15] {
            let saddle = cumulants.saddle(delta).unwrap();
            let contour = Contour::new(
                &parts, Direction::Remove, saddle.theta, saddle.variance, delta, 1.0,
            ).unwrap();
            let epsilon = contour.epsilon(delta, saddle.epsilon).unwrap();
            let closed = gaussian_epsilon(mu, delta);
            assert!((epsilon / closed - 1.0).abs() < 1e-11, "{delta}: {epsilon} {closed}");
        }
    }

    #[test]
    fn the_golden_epsilon_of_mnist_is_reached_to_nine_digits() {
        // epsilon_poisson.json, row p000.
        let parts = [(Pair::Sampled { q: 256.0 / 60_000.0, mu: 1.0 / 1.1 }, 14_062)];
        let remove = epsilon_of_direction(&parts, Direction::Remove, 1e-5).unwrap();
        let add = epsilon_of_direction(&parts, Direction::Add, 1e-5).unwrap();
        assert!((remove.value / 2.38159692148991 - 1.0).abs() < 1e-9, "{remove:?}");
        assert!((add.value / 2.243559372698958 - 1.0).abs() < 1e-9, "{add:?}");
        assert!(remove.relative_error < 1e-9);
    }
}
