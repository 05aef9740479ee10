//! Quadrature of the tilted losses of one Gaussian release under Poisson sampling, with a proven
//! error.
//!
//! Let `x` be the outcome, `L = 1 - q + q e^{μx - μ²/2}`, and `Y = ±ln L`. A panel of half-length
//! `r` around `m` integrates `p (e^{sY} - 1)`, `s = θ + iω`, with 16 nodes of Gauss and Legendre.
//! If the integrand is at most `F` on the ellipse with the sum `ρ r` of its half-axes, the error is
//! at most `64/15 · r F ρ^{-30} / (1 - ρ^{-2})`. On the ellipse, with its half-axes `a` and `b`:
//!
//! - the normal density is at most its value at the smallest `|Re x|`, times `e^{b²/2}`;
//! - `L` is the sum of `1 - q` and of a number with an angle of at most `φ = μb < π/2`. Its angle
//!   is at most the angle `Λ` at `φ` and the right end, its modulus at most `L` at the right end
//!   and at least `1 - q + q e^{..} cos φ` at the left end;
//! - `|e^{sY} - 1| <= |s| |Y| e^{θ (Re Y)^+ + ωΛ}`.
//!
//! # References
//!
//! "Approximation Theory and Approximation Practice", Trefethen 2013, Theorem 19.3.

use crate::dominating_pairs::{Direction, GAUSS_16, ln_mixture};
use crate::math::normal;
use crate::math::sum::CompensatedSum;

/// Sum of the half-axes of the ellipse over the half-length of the panel.
const RHO: f64 = 6.0;

/// Largest `ln` of `p e^{θ Y^+}` on the ellipse over its value in the middle of the panel: the
/// error is then about 1e-14 of it.
const LARGEST_GROWTH: f64 = 21.0;

/// Distance from the mean beyond which a standard normal variable is left to the bounds, toward
/// losses that the tilt makes rarer and, under "add", toward the largest losses.
const REACH: f64 = 10.0;
const LARGE_REACH: f64 = 20.0;

/// Under "add", `-θY` from which on a loss adds nothing to the moments.
const LN_NEGLIGIBLE: f64 = 60.0;

/// Maximum number of panels.
const MAX_PANELS: usize = 1 << 16;

/// Largest exponent `θY`, far from an overflow.
const LARGEST_EXPONENT: f64 = 600.0;

/// Rounding of a node without that of its exponents: relative error of its mass, and error of its
/// loss over `|Y| + q`. The exponent of the loss is below 700 and adds up to 1e-13 of `|Y| + q`.
const NODE_ERROR: f64 = 2e-13;
/// Rounding for each unit of the exponents `-x²/2`, `Y` and `θY`: a few operations on each.
const EXPONENT_ERROR: f64 = 4.0 * f64::EPSILON;

/// One release in one direction, without the outcomes above `high`.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptRelease {
    pub(super) q: f64,
    pub(super) mu: f64,
    pub(super) direction: Direction,
    /// Under "remove", the largest outcome and the mass under `P` beyond it.
    pub(super) cut: Option<(f64, f64)>,
}

/// Nodes of the tilted distribution.
pub(super) struct Panels {
    /// Loss, and mass under `P` times `e^{θY}`.
    pub(super) nodes: Vec<(f64, f64)>,
    /// `E_P[e^{θY} - 1]` of the nodes.
    pub(super) excess: f64,
    /// Bound of the rounding of `E_P[e^{sY} - 1]` over `|s|`: the sum of
    /// `(|Y| + q) max(1, e^{θY})` over the nodes, each with its relative error.
    pub(super) rounding: f64,
    /// Bound of the error of `E_P[e^{sY} - 1]` over `|s|`, for `|ω|` up to the largest frequency.
    pub(super) error: f64,
}

impl KeptRelease {
    /// Returns the loss and `ln` of its density under `P` at an outcome.
    fn point(&self, x: f64) -> (f64, f64) {
        let mixture = ln_mixture(self.q, self.mu, x);
        let ln_normal = normal::LN_DENSITY_AT_ZERO - 0.5 * x * x;
        match self.direction {
            Direction::Remove => (mixture, ln_normal + mixture),
            Direction::Add => (-mixture, ln_normal),
        }
    }

    /// Returns the smallest and the largest outcome with nodes.
    fn ends(&self, theta: f64) -> (f64, f64) {
        match self.direction {
            Direction::Remove => (-REACH, self.cut.map_or(self.mu + LARGE_REACH, |(end, _)| end)),
            Direction::Add => {
                let before = ((LN_NEGLIGIBLE / theta).exp_m1() / self.q).ln_1p();
                (-LARGE_REACH, REACH.min((before + 0.5 * self.mu * self.mu) / self.mu))
            }
        }
    }

    /// Returns the mass under `P` above the largest outcome with nodes. The moments contain nothing
    /// of it.
    pub(super) fn dropped(&self, theta: f64) -> f64 {
        match self.direction {
            Direction::Remove => self.cut.map_or(0.0, |(_, mass)| mass),
            Direction::Add => normal::cdf(-self.ends(theta).1),
        }
    }

    /// Returns the slope of `ln L` at an outcome. It increases with the outcome.
    fn slope(&self, x: f64) -> f64 {
        let exponent = self.mu * x - 0.5 * self.mu * self.mu;
        self.mu * (self.q.ln() + exponent - ln_mixture(self.q, self.mu, x)).exp()
    }

    /// Returns the bound of the error over `|s|` of the outcomes beyond both ends.
    fn beyond(&self, theta: f64) -> f64 {
        let (low, high) = self.ends(theta);
        let largest = -(-self.q).ln_1p();
        match self.direction {
            // The losses are between ln(1-q) and 0.
            Direction::Remove => largest * normal::cdf(low),
            // The losses below `low` increase by at most a slope. The moments contain nothing of
            // the outcomes above `high`, where |e^{sY}| is at most e^{θY}, and |s| >= θ.
            Direction::Add => {
                let slope = theta * self.slope(low);
                let grown = theta * self.point(low).0 + slope * low + 0.5 * slope * slope;
                let below = (grown + normal::ln_cdf(low + slope)).exp();
                largest * below + (theta * self.point(high).0).exp() / theta * normal::cdf(-high)
            }
        }
    }

    /// Returns `ln` of the bound of `p e^{θ (Y)^+ + ωΛ}` on the ellipse, and the bound of `|Y|`.
    fn largest(&self, middle: f64, half: f64, theta: f64, frequency: f64) -> (f64, f64) {
        let (a, b) = (0.5 * half * (RHO + RHO.recip()), 0.5 * half * (RHO - RHO.recip()));
        let (left, right) = (middle - a, middle + a);
        let phi = self.mu * b;
        if phi > 1.5 {
            return (f64::INFINITY, f64::INFINITY);
        }
        let odds = self.q.ln() - (-self.q).ln_1p();
        let ln_ratio = |x: f64| odds + self.mu * x - 0.5 * self.mu * self.mu;
        let ratio = ln_ratio(right).min(600.0).exp();
        let angle = (ratio * phi.sin()).atan2(1.0 + ratio * phi.cos());
        let upper = ln_mixture(self.q, self.mu, right);
        let lower = (-self.q).ln_1p() + (ln_ratio(left).min(600.0).exp() * phi.cos()).ln_1p();
        let nearest = left.max(-right).max(0.0);
        let ln_normal = normal::LN_DENSITY_AT_ZERO - 0.5 * (nearest * nearest - b * b);
        let grown = ln_normal
            + frequency * angle
            + match self.direction {
                Direction::Remove => upper + theta * upper.max(0.0),
                Direction::Add => theta * (-lower).max(0.0),
            };
        (grown, upper.abs().max(lower.abs()) + angle)
    }

    /// Returns the nodes for one tilt and all frequencies up to a largest one; `None` if they are
    /// too many.
    pub(super) fn panels(&self, theta: f64, frequency: f64) -> Option<Panels> {
        let (mut left, high) = self.ends(theta);
        let mut nodes = Vec::new();
        let (mut excess, mut rounding) = (CompensatedSum::default(), 0.0);
        let mut error = self.beyond(theta);
        let mut half: f64 = 0.5;
        let factor = 64.0 / 15.0 * RHO.powi(-30) / (1.0 - RHO.powi(-2));
        while left < high {
            half = (1.5 * half).min(0.5 * (high - left));
            let (ln_largest, largest_loss) = loop {
                let middle = left + half;
                let (loss, ln_mass) = self.point(middle);
                let largest = self.largest(middle, half, theta, frequency);
                if largest.0 - (ln_mass + (theta * loss).max(0.0)) <= LARGEST_GROWTH {
                    break largest;
                }
                half *= 0.8;
                if half < 1e-9 {
                    return None;
                }
            };
            let right = if 2.0 * half < high - left { left + 2.0 * half } else { high };
            half = 0.5 * (right - left);
            error += factor * half * largest_loss * ln_largest.exp();
            for &(node, weight) in GAUSS_16.iter() {
                let x = left + half * (1.0 + node);
                let (loss, ln_mass) = self.point(x);
                let mass = half * weight * ln_mass.exp();
                let tilted = half * weight * (ln_mass + theta * loss).exp();
                let exponent = theta * loss;
                if exponent > LARGEST_EXPONENT {
                    return None;
                }
                excess.add(if exponent < 30.0 { mass * exponent.exp_m1() } else { tilted - mass });
                let exponents = 0.5 * x * x + loss.abs() + exponent.abs();
                let relative = NODE_ERROR + EXPONENT_ERROR * exponents;
                rounding += relative * tilted.max(mass) * (loss.abs() + self.q);
                nodes.push((loss, tilted));
            }
            if nodes.len() > 16 * MAX_PANELS {
                return None;
            }
            left = right;
        }
        Some(Panels { nodes, excess: excess.value(), rounding, error })
    }

    /// Returns an upper bound, not below 0, of `ln E_P[e^{tY}]` for `t >= 0`; `None` if it is not
    /// finite.
    pub(super) fn ln_moment_bound(&self, t: f64) -> Option<f64> {
        if t == 0.0 {
            return Some(0.0);
        }
        let bound = self
            .panels(t, 0.0)
            .map_or(f64::NAN, |panels| panels.excess + t * (panels.error + panels.rounding));
        if bound.is_finite() && bound > -1.0 {
            return Some(bound.max(0.0).ln_1p() * (1.0 + 1e-14));
        }
        // Too large an exponent, where the largest loss dominates.
        let largest = match self.direction {
            Direction::Remove => self.point(self.cut?.0).0,
            Direction::Add => -(-self.q).ln_1p(),
        };
        Some(t * largest.max(0.0) * (1.0 + 1e-12))
    }

    /// Returns a lower bound of `-ln |z(ω)/z(0)|` for all `|ω| >= frequency`; `ln_total` is
    /// `ln z(0)`.
    ///
    /// On an interval of outcomes with losses `w` apart, the density of the loss is at least its
    /// smallest value: a share `λ` of the tilted distribution is uniform there, whose transform is
    /// `sin(u)/u` with `u = ωw/2`. Hence `|z(ω)| <= z(0) (1 - Σ λ (1 - |sin(u)/u|))` over disjoint
    /// intervals.
    pub(super) fn decay(&self, theta: f64, ln_total: f64, frequency: f64) -> f64 {
        let (low, high) = self.ends(theta);
        let length = (1.0 / self.mu).clamp(0.3, 1.5);
        let mut lost = 0.0;
        let mut right = high;
        while right - length > low {
            let left = right - length;
            let (from, to) = (self.point(left), self.point(right));
            let width = (to.0 - from.0).abs();
            // The normal density is smallest at the end that is farther from 0.
            let far = left.abs().max(right.abs());
            let order = match self.direction {
                Direction::Remove => (theta + 1.0) * from.0,
                Direction::Add => theta * to.0,
            };
            let ln_density = normal::LN_DENSITY_AT_ZERO - 0.5 * far * far + order - ln_total;
            let share = ln_density.exp() * width / self.slope(right);
            let share = if share.is_nan() { 0.0 } else { share.min(1.0) };
            let half = 0.5 * width * frequency;
            // Beyond π the modulus is at most 0.2173. A small angle has no difference of nearly
            // equal numbers.
            let gap = if half < 0.1 {
                half * half / 6.1
            } else if half < std::f64::consts::PI {
                1.0 - (half.sin() / half).max(0.2173)
            } else if half.is_finite() {
                1.0 - 0.2173
            } else {
                0.0
            };
            lost += share * gap;
            right = left;
        }
        -(-lost.min(1.0) * (1.0 - 1e-9)).ln_1p()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn release(q: f64, mu: f64, direction: Direction) -> KeptRelease {
        KeptRelease { q, mu, direction, cut: None }
    }

    #[test]
    fn moments_equal_their_closed_forms() {
        // E_P[e^Y] = E_Q[L²] and E_P[e^{2Y}] = E_Q[L³].
        for (q, mu) in [(1e-6f64, 1.4f64), (0.01, 0.2), (0.3, 2.0)] {
            let grown = |order: f64| (0.5 * order * (order - 1.0) * mu * mu).exp_m1();
            let second = q * q * grown(2.0);
            let third = 3.0 * q * q * (1.0 - q) * grown(2.0) + q * q * q * grown(3.0);
            for (theta, truth) in [(1.0, second), (2.0, third)] {
                let panels = release(q, mu, Direction::Remove).panels(theta, 5.0).unwrap();
                let error = theta * (panels.error + panels.rounding);
                let gap = (panels.excess - truth).abs();
                let largest = 4.0 * panels.rounding;
                let context = format!("{q} {mu} {theta}: {gap:e} {error:e} {largest:e}");
                assert!(gap <= error && error < theta * largest, "{context}");
            }
        }
        // The other direction: E_P[e^{sY}] = E[L^{-s}], which is 1 at s = -1 only; a finer rule.
        let add = release(0.01, 1.5, Direction::Add);
        let (coarse, fine) = (add.panels(3.0, 1.0).unwrap(), add.panels(3.0, 900.0).unwrap());
        assert!(fine.nodes.len() > 2 * coarse.nodes.len());
        let error = 3.0 * (coarse.error + coarse.rounding);
        assert!((coarse.excess - fine.excess).abs() <= 2.0 * error && error < 1e-13);
    }

    #[test]
    fn moments_of_large_tilts_are_bounded_from_above() {
        // Under "add" the tilt moves the mass far to the left; the first one beyond all nodes,
        // where only the bound of what is beyond them is left.
        for (q, mu, tilt, most) in [
            (0.5, 0.02, 2_200.0, 5.0),
            (0.5, 0.02, 1_000.0, 1e-7),
            (0.99, 0.1, 110.0, 1e-7),
            (0.01, 1.5, 3.0, 1e-11),
        ] {
            let step = 1e-3;
            let ln_density = |k: i32| {
                let x = step * f64::from(k);
                normal::LN_DENSITY_AT_ZERO - 0.5 * x * x - tilt * ln_mixture(q, mu, x)
            };
            let peak = (-60_000..=20_000).map(ln_density).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (-60_000..=20_000).map(|k| (ln_density(k) - peak).exp()).sum();
            let truth = peak + (step * sum).ln();
            let bound = release(q, mu, Direction::Add).ln_moment_bound(tilt).unwrap();
            let gap = bound - truth;
            assert!((-1e-12..most).contains(&gap), "{q} {mu} {tilt}: {gap:e} {truth}");
        }
    }

    #[test]
    fn decay_is_below_that_of_the_moments() {
        for (q, mu, theta, direction) in [
            (1e-4, 1.2, 30.0, Direction::Remove),
            (0.05, 0.3, 4.0, Direction::Remove),
            (0.02, 0.8, 9.0, Direction::Add),
        ] {
            let mut release = release(q, mu, direction);
            if direction == Direction::Remove {
                let end: f64 = 6.0;
                let mass = (1.0 - q) * normal::cdf(-end) + q * normal::cdf(mu - end);
                release.cut = Some((end, mass));
            }
            let spread = q * (mu * mu).exp_m1().sqrt();
            for scale in [0.1, 1.0, 4.0, 20.0] {
                let frequency = scale / spread;
                let panels = release.panels(theta, frequency).unwrap();
                let total: f64 = panels.nodes.iter().map(|(_, mass)| mass).sum();
                let decay = release.decay(theta, total.ln(), frequency);
                for further in [1.0, 1.3, 2.0, 3.0] {
                    let panels = release.panels(theta, further * frequency).unwrap();
                    let part = |trigonometric: fn(f64) -> f64| -> f64 {
                        let terms = panels.nodes.iter();
                        terms.map(|(y, mass)| mass * trigonometric(further * frequency * y)).sum()
                    };
                    let modulus = part(f64::cos).hypot(part(f64::sin)) / total;
                    assert!(-modulus.ln() >= decay, "{q} {mu} {scale}: {modulus} {decay}");
                }
                assert!(decay > 1e-3 * (scale * scale).min(1.0) * 0.1, "{q} {mu} {scale}: {decay}");
            }
        }
    }
}
