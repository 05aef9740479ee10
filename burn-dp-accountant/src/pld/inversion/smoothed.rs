//! Bounds of δ from the moments of a release on a contour.
//!
//! δ is `E_P[h(S - ε)]`, `h(t) = (1 - e^{-t})^+`. The transform of `h` decays too slowly where a
//! composition has atoms, hence `h` is smoothed. Composed with a Gaussian release of shift `√v`, it
//! becomes `h_v(t) = E[h(t + η)]`, `η ~ N(v/2, v)`:
//!
//! - `h <= h_v`, because `h` is convex in `e^{-t}` and `E[e^{-η}] = 1`;
//! - `∂h_v/∂v = exp(-(t/√v + √v/2)²/2) / (2 √(2πv))`, and the exponent is at most `-t²/(2v) - t/2`,
//!   which increases with `v`: hence `h >= h_v - g_v`, `g_v(t) = √(v/2π) e^{-t²/(2v) - t/2}`.
//!
//! On the contour `s = θ + iω` the transforms are `e^{vs(s+1)/2} / (s(s+1))` for `h_v` and
//! `v e^{v/8} e^{vs(s+1)/2}` for `g_v`: both bounds are sums over the frequencies `2πk/L`, which
//! also contain the aliases `h_v(S - ε + mL) e^{-θmL}`. They are not negative, and bounded by
//! Chernoff's inequality.
//!
//! # References
//!
//! Inversion and its aliases: "The Fourier-series method for inverting transforms of probability
//! distributions", Abate and Whitt 1992.

use std::f64::consts::{PI, TAU};

use super::moments::Moments;
use crate::math::complex::{Complex64, ln_1p};
use crate::math::sum::CompensatedSum;
use crate::saddle::{Contour, ln_largest_weight};

/// `ln` of a modulus below which a power is only bounded.
const LN_NEGLIGIBLE: f64 = -70.0;

/// Number of frequencies in one block of rotations.
const BLOCK: usize = 64;

/// Rounding of `e^{n ln(1+d)}` relative to `1 + n |d|`, for `|1 + d| >= 1/4`.
const POWER_ERROR: f64 = 16.0 * f64::EPSILON;

/// Both bounds of the δ of a composition, for every ε.
pub(super) struct Smoothed {
    theta: f64,
    period: f64,
    /// The upper bound at each frequency, and the difference to the lower bound.
    values: Vec<[Complex64; 2]>,
    /// Bound of the absolute error of the scaled bounds, and of that per unit of `|ε|`.
    error: f64,
    angle_error: f64,
    /// `ln` of the factor from scaled to true δ, without `e^{-θε}`, and its error.
    ln_scale: f64,
    ln_scale_error: f64,
    /// Logarithms of the aliases from below and from above at ε = 0, with their tilts.
    aliases: [(f64, f64); 2],
}

/// The contour of an inversion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) contour: Contour,
    /// Variance of the smoothing.
    pub(super) variance: f64,
    /// `ln` of the bound of all frequencies above.
    pub(super) ln_truncated: f64,
    /// `ln E[e^{tS}]` of the composition at the tilts `θ - fall` and `θ + rise`.
    pub(super) ln_moments: (f64, f64),
}

/// Returns `ln` of the bound of all frequencies above `frequency` without the decay of the moments:
/// `|s(s+1)| >= ω²`.
pub(super) fn ln_truncated(theta: f64, variance: f64, frequency: f64) -> f64 {
    let exponent = 0.5 * variance * (theta * (theta + 1.0) - frequency * frequency);
    (1.0 + (variance / 8.0).exp()).ln() - (PI * frequency).ln() + exponent
}

impl Smoothed {
    /// Computes the sums of `releases` repetitions.
    pub(super) fn new(moments: &Moments, plan: &Plan, releases: u64) -> Self {
        let (n, v) = (releases as f64, plan.variance);
        let Contour { theta, period, fall, rise, .. } = plan.contour;
        let step = TAU / period;
        let mut values = Vec::with_capacity(moments.differences.len());
        let mut error = plan.ln_truncated.exp();
        let (mut slopes, mut squares, mut magnitude, mut angles) = (0.0, 0.0, 0.0, 0.0);
        for (k, (difference, own)) in moments.differences.iter().zip(&moments.errors).enumerate() {
            let s = Complex64::new(theta, step * k as f64);
            let product = s * (s + 1.0);
            let multiplicity = if k == 0 { 1.0 } else { 2.0 };
            let smoothing = 0.5 * v * product;
            let ratio = v * (v / 8.0).exp();
            let scale = multiplicity / period * smoothing.re.exp();
            let weight = scale * (1.0 / product.norm() + ratio);
            let doubt = own + moments.point_error;
            let ln_most = ((difference + 1.0).norm() + doubt).ln();
            if n * ln_most < LN_NEGLIGIBLE {
                error += weight * (n * ln_most).exp();
                values.push([Complex64::default(); 2]);
                continue;
            }
            let logarithm = ln_1p(*difference) * n;
            let power = (logarithm + Complex64::new(0.0, smoothing.im)).exp() * scale;
            let value = power / product;
            let slope = weight * n * ((n - 1.0) * ln_most).exp();
            error += slope * own;
            slopes += slope;
            squares += slope * slope;
            let size = weight * logarithm.re.exp();
            error += size * POWER_ERROR * (n * difference.norm() + smoothing.norm() + 4.0);
            magnitude += size;
            angles += size * s.im;
            values.push([value, power * ratio]);
        }
        let by_point = slopes * moments.point_error;
        let by_norm = f64::sqrt(squares) * moments.norm_error;
        // Not a number stays one.
        error += if by_norm < by_point { by_norm } else { by_point };
        error += magnitude * f64::EPSILON * (2 * BLOCK) as f64;
        let smoothed = |order: f64| 0.5 * v * order * (order + 1.0);
        let ln_scale = n * moments.ln_total;
        let (down, up) = plan.ln_moments;
        let series = |tilt: f64| -tilt * period - (-(-tilt * period).exp_m1()).ln();
        let ln_scale_error = n * moments.ln_total_error + 4.0 * f64::EPSILON * ln_scale.abs();
        let rounding = ln_scale_error + 1e-9;
        let below = smoothed(theta - fall) + down - ln_scale + series(fall) + rounding;
        let above = ln_largest_weight(theta) + smoothed(theta + rise) + up - ln_scale + rounding;
        Self {
            theta,
            period,
            values,
            error,
            angle_error: 8.0 * f64::EPSILON * angles,
            ln_scale,
            ln_scale_error,
            aliases: [(below, fall), (above + series(rise), -rise)],
        }
    }

    /// Returns a lower and an upper bound of δ at `epsilon`.
    pub(super) fn delta(&self, epsilon: f64) -> (f64, f64) {
        let turn = epsilon / self.period;
        let rotation = |k: usize| {
            let turns = k as f64 * turn;
            Complex64::from_polar(1.0, -TAU * (turns - turns.round()))
        };
        let table: [Complex64; BLOCK] = std::array::from_fn(rotation);
        let (mut above, mut between) = (CompensatedSum::default(), CompensatedSum::default());
        for (block, values) in self.values.chunks(BLOCK).enumerate() {
            let (mut first, mut second) = (Complex64::default(), Complex64::default());
            for ([value, difference], turn) in values.iter().zip(&table) {
                first += value * turn;
                second += difference * turn;
            }
            let base = rotation(block * BLOCK);
            above.add((first * base).re);
            between.add((second * base).re);
        }
        let (upper, between) = (above.value(), between.value());
        let aliases: f64 =
            self.aliases.iter().map(|(ln_size, tilt)| (ln_size + tilt * epsilon).exp()).sum();
        let error = self.error + self.angle_error * epsilon.abs();
        let scale = |side: f64| {
            let exponent = self.ln_scale - self.theta * epsilon;
            let rounding = 1e-14 + 1e-15 * (self.theta * epsilon).abs();
            (exponent + side * (self.ln_scale_error + rounding)).exp()
        };
        // Where an error is not a number, nothing is known.
        let least = upper - between - error - aliases;
        let lower = if least > 0.0 { least * scale(-1.0) } else { 0.0 };
        let most = upper + error;
        let upper = if most > 0.0 || most.is_nan() { most * scale(1.0) } else { 0.0 };
        (if lower.is_nan() { 0.0 } else { lower }, if upper.is_nan() { 1.0 } else { upper })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::normal;

    #[test]
    fn smoothing_encloses_the_loss() {
        for v in [1e-6f64, 0.01, 1.0] {
            let root = v.sqrt();
            let mut close = 0;
            for k in -400..=400 {
                let t = 0.02 * root * f64::from(k);
                let plain = (-(-t).exp_m1()).max(0.0);
                let d = t / root + 0.5 * root;
                let smooth = normal::cdf(d) - (-t).exp() * normal::cdf(d - root);
                let less = smooth - (v / TAU).sqrt() * (-t * t / (2.0 * v) - 0.5 * t).exp();
                let context = format!("{v} {t}: {less} {plain} {smooth}");
                assert!(less <= plain + 1e-15 && plain <= smooth + 1e-15, "{context}");
                close += usize::from(smooth - less < 1e-3 * root);
            }
            assert!(close > 400, "{close}");
        }
    }

    #[test]
    fn nothing_is_known_where_an_error_is_not_a_number() {
        let one = Complex64::new(1.0, 0.0);
        let sums = |error: f64, value: f64| Smoothed {
            theta: 1.0,
            period: 10.0,
            values: vec![[one * value, Complex64::default()]],
            error,
            angle_error: 0.0,
            ln_scale: 0.0,
            ln_scale_error: 0.0,
            aliases: [(-50.0, 1.0), (-50.0, -1.0)],
        };
        assert_eq!(sums(f64::NAN, 0.5).delta(1.0), (0.0, 1.0));
        assert_eq!(sums(1e-9, f64::NAN).delta(1.0), (0.0, 1.0));
        let (lower, upper) = sums(1e-9, 0.5).delta(1.0);
        let truth = 0.5 * f64::exp(-1.0);
        assert!(lower < truth && truth < upper && upper - lower < 1e-8, "{lower} {upper}");
    }

    #[test]
    fn bounds_enclose_a_composition_of_coins() {
        // Losses 0 and 1 with probabilities 3/4 and 1/4, twenty times: an integrand that never
        // decays without the smoothing.
        let (n, p, theta, variance) = (20, 0.25f64, 1.2f64, 1e-4f64);
        let total = 1.0 - p + p * theta.exp();
        let moment = |t: f64| f64::from(n) * (p * t.exp_m1()).ln_1p();
        let (period, fall, rise) = (60.0, theta, 1.0);
        let contour = Contour { theta, period, fall, rise, allowed: 1e-12 };
        let count = 10_000;
        let step = TAU / period;
        let differences: Vec<Complex64> = (0..=count)
            .map(|k| {
                p * theta.exp() / total * (Complex64::from_polar(1.0, step * f64::from(k)) - 1.0)
            })
            .collect();
        let moments = Moments {
            ln_total: total.ln(),
            ln_total_error: 1e-15,
            errors: vec![1e-15; differences.len()],
            differences,
            point_error: 0.0,
            norm_error: 0.0,
        };
        let end = step * f64::from(count);
        let plan = Plan {
            contour,
            variance,
            ln_truncated: ln_truncated(theta, variance, end),
            ln_moments: (moment(theta - fall), moment(theta + rise)),
        };
        let sums = Smoothed::new(&moments, &plan, 20);
        for epsilon in [6.5, 9.3, 10.7, 12.4] {
            let mut mass = (1.0 - p).powi(n);
            let mut truth = 0.0;
            for k in 0..=n {
                truth += mass * (-(epsilon - f64::from(k)).exp_m1()).max(0.0);
                mass *= f64::from(n - k) / f64::from(k + 1) * p / (1.0 - p);
            }
            let (lower, upper) = sums.delta(epsilon);
            assert!(lower <= truth && truth <= upper, "{epsilon}: {lower:e} {truth:e} {upper:e}");
            assert!(upper - lower < 1e-2 * truth, "{epsilon}: {lower:e} {truth:e} {upper:e}");
        }
    }
}
