//! Self-composition of lattices over a window of losses, by fast Fourier transform and tilting.
//!
//! Each lattice is tilted by `e^{θy}` and normalized before it is transformed, with `θ` near the
//! saddle point of the wanted δ. The masses that determine δ are then of the order of the largest
//! masses, and the rounding of the transform relative to δ does not grow for small δ.
//!
//! # References
//!
//! Composition by transforms: "Computing Tight Differential Privacy Guarantees Using FFT", Koskela,
//! Jälkö, Honkela 2020; "Numerical Composition of Differential Privacy", Gopi, Lee, Wutschitz 2021.
//! Rounding of the transform: "Accuracy and Stability of Numerical Algorithms", Higham 2002,
//! Theorem 24.2.

use rustfft::num_complex::Complex64;

use super::bounds::with_errors;
use super::fourier::{FFT_ERROR, GridError, fast_size, plan_backward, plan_forward};
use crate::lattice::{LOSS_ERROR, Lattice, largest_losses, ln_moment, mass_errors, spread};
use crate::math::side::Side;

/// Tilted probability that may be outside the window (natural logarithm).
const LN_OUTSIDE: f64 = -32.0;

/// A composed lattice over a window of losses.
pub(super) struct Composed {
    width: f64,
    theta: f64,
    /// `ln` of the factor between tilted and true masses (without `e^{-θs}`).
    ln_scale: f64,
    /// Grid index of the first entry, and the sum of the offsets of all lattices.
    first: i64,
    offset: f64,
    /// `Σ_{j>k} p_j e^{-θ(s_j-s_k)} (1 - e^{-(s_j-s_k)})`.
    differences: Vec<f64>,
    /// `Σ_{j>k} p_j e^{-(θ+1)(s_j-s_k)}`.
    above_shifted: Vec<f64>,
    /// Bound of the absolute error of the scaled δ: rounding, wrap-around, missing tails.
    error: f64,
    /// Bound of the relative error: of the masses, over all repetitions.
    relative: f64,
}

impl Composed {
    /// Composes the parts, each repeated, tilted by `theta`.
    pub(super) fn new(
        parts: &[(&Lattice, u64)],
        width: f64,
        theta: f64,
        max_points: usize,
    ) -> Result<Self, GridError> {
        let moments = |t: f64| -> f64 {
            parts.iter().map(|(lattice, n)| *n as f64 * ln_moment(lattice, width, t)).sum()
        };
        let ln_scale = moments(theta);
        if !ln_scale.is_finite() {
            return Err(GridError::Overflow);
        }
        let offset: f64 = parts.iter().map(|(lattice, n)| *n as f64 * lattice.offset).sum();
        let (mean, deviation) = spread(parts, width, theta);
        // Chernoff bounds of the tilted tails, with the best of several further tilts.
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for factor in [1.5, 3.0, 6.0, 12.0] {
            for shift in [factor / deviation, factor * theta.max(1.0) / 16.0] {
                let up = moments(theta + shift) - ln_scale;
                if up.is_finite() {
                    high = high.min((up - LN_OUTSIDE) / shift);
                }
                let down = moments(theta - shift) - ln_scale;
                if down.is_finite() {
                    low = low.max((LN_OUTSIDE - down) / shift);
                }
            }
        }
        if !low.is_finite() || !high.is_finite() {
            return Err(GridError::Overflow);
        }
        let (low, high) = (low.min(mean - width) - offset, high.max(mean + width) - offset);
        let needed = (high - low) / width + 4.0;
        if needed > max_points as f64 {
            return Err(GridError::TooLarge(needed));
        }
        let size = fast_size(needed.ceil() as usize);
        let first = (low / width).floor() as i64;
        let (tilted, rounding) = convolve(parts, width, theta, size);
        // Rotate the window to the front, and sum from above.
        let start = first.rem_euclid(size as i64) as usize;
        if tilted.iter().any(|mass| !mass.is_finite()) {
            return Err(GridError::Overflow);
        }
        let (mut differences, mut above_shifted) = (vec![0.0; size], vec![0.0; size]);
        let (fall, fall_shifted) = ((-theta * width).exp(), (-(theta + 1.0) * width).exp());
        let shrunk = -(-width).exp_m1();
        // The difference of two sums with tilts θ and θ + 1 would lose digits if θ is large.
        let (mut d, mut b) = (0.0, 0.0);
        let window = tilted[start..].iter().chain(&tilted[..start]);
        for (k, mass) in (0..size).rev().zip(window.rev()) {
            differences[k] = d;
            above_shifted[k] = b;
            let mass = mass.max(0.0);
            d = (d + shrunk * (b + mass)) * fall;
            b = (b + mass) * fall_shifted;
        }
        // Largest weight e^{-θu}(1 - e^{-u}) of a misplaced mass; sum of the weights of all points.
        let largest = (theta * (theta / (theta + 1.0)).ln()).exp() / (theta + 1.0);
        let weights = 1.0 / -(-theta * width).exp_m1() - 1.0 / -(-(theta + 1.0) * width).exp_m1();
        Ok(Self {
            width,
            theta,
            ln_scale,
            first,
            offset,
            differences,
            above_shifted,
            error: 4.0 * LN_OUTSIDE.exp() * largest + rounding.weighted(largest, weights),
            relative: mass_errors(parts)
                + LOSS_ERROR * (theta + 1.0) * largest_losses(parts, width)
                + 4.0 * f64::EPSILON * (size as f64 + ln_scale.abs()),
        })
    }

    fn ln_factor(&self, k: usize) -> f64 {
        self.ln_scale - self.theta * self.loss(k)
    }

    fn loss(&self, k: usize) -> f64 {
        self.offset + (self.first + k as i64) as f64 * self.width
    }

    /// Returns the scaled δ at grid point `k`, with the error on the wanted side.
    fn scaled(&self, k: usize, side: Side) -> f64 {
        with_errors(self.differences[k], self.relative, self.error, side)
    }

    fn ln_delta_at(&self, k: usize, side: Side) -> f64 {
        let scaled = self.scaled(k, side);
        if scaled <= 0.0 { f64::NEG_INFINITY } else { scaled.ln() + self.ln_factor(k) }
    }

    /// Returns an upper or lower bound of δ at `epsilon`. Outside the window, the upper bounds are
    /// 1 below it, and the bound at its end above it.
    pub(super) fn delta(&self, epsilon: f64, side: Side) -> f64 {
        let position = ((epsilon - self.offset) / self.width).floor() as i64 - self.first;
        if position < 0 {
            return if side == Side::Upper { 1.0 } else { self.delta(self.loss(0), Side::Lower) };
        }
        let k = position as usize;
        if k >= self.differences.len() {
            let end = self.differences.len() - 1;
            return if side == Side::Upper {
                self.ln_delta_at(end, Side::Upper).exp().min(1.0)
            } else {
                0.0
            };
        }
        let x = (epsilon - self.loss(k)).clamp(0.0, self.width);
        let value = self.differences[k] - x.exp_m1() * self.above_shifted[k];
        let error = self.error * (self.theta * self.width).exp();
        let scaled = with_errors(value, self.relative, error, side);
        (scaled.max(0.0) * self.ln_factor(k).exp()).clamp(0.0, 1.0)
    }
}

/// Bounds of the rounding of the composed masses.
#[derive(Debug, Clone, Copy, Default)]
struct RoundingError {
    /// Bound on the error of each mass.
    point: f64,
    /// Bound on the error of all masses in the 2-norm.
    norm: f64,
}

impl RoundingError {
    /// Returns a bound on the error of a weighted sum, from the largest weight and the sum of the
    /// weights: each error at its bound, or Cauchy-Schwarz with `Σw² <= max w · Σw`.
    fn weighted(self, largest: f64, sum: f64) -> f64 {
        (self.point * sum).min(self.norm * (largest * sum).sqrt())
    }
}

/// Returns the tilted composition on a circle of `size` points (entry `j` is grid index `j` modulo
/// `size`), and its rounding.
fn convolve(
    parts: &[(&Lattice, u64)],
    width: f64,
    theta: f64,
    size: usize,
) -> (Vec<f64>, RoundingError) {
    let (forward, backward) = (plan_forward(size), plan_backward(size));
    let levels = (size as f64).log2() + 3.0;
    let mut product: Vec<Complex64> = Vec::new();
    let mut error = RoundingError::default();
    let failed = RoundingError { point: f64::INFINITY, norm: f64::INFINITY };
    for (lattice, count) in parts {
        let normalizer = ln_moment(lattice, width, theta);
        let mut input = forward.make_input_vec();
        let mut index = lattice.first.rem_euclid(size as i64) as usize;
        for (i, mass) in lattice.mass.iter().enumerate() {
            if *mass > 0.0 {
                let y = lattice.offset + (lattice.first + i as i64) as f64 * width;
                input[index] += mass * (theta * y - normalizer).exp();
            }
            index += 1;
            if index == size {
                index = 0;
            }
        }
        let norm = input.iter().map(|m| m * m).sum::<f64>().sqrt();
        let mut output = forward.make_output_vec();
        if forward.process(&mut input, &mut output).is_err() {
            return (vec![0.0; size], failed);
        }
        let n = *count as f64;
        // The omitted frequencies are far smaller than their bound e^-80.
        let negligible = (-160.0 / n).exp();
        let rest = size as f64 * (-80.0f64).exp();
        let (mut squares, mut own_squares, mut own_sum) = (rest, rest, rest);
        for (k, value) in output.iter_mut().enumerate() {
            let square = value.norm_sqr();
            if square < negligible && n > 2.0 {
                *value = Complex64::new(0.0, 0.0);
                continue;
            }
            let ln_radius = 0.5 * square.ln();
            // Each frequency except the ends stands for two.
            let multiplicity = if k == 0 || 2 * k == size { 1.0 } else { 2.0 };
            let own = (n * ln_radius).exp();
            let before = if square > 0.0 { ((n - 1.0) * ln_radius).exp() } else { 1.0 };
            squares += multiplicity * before * before;
            own_squares += multiplicity * own * own;
            own_sum += multiplicity * own;
            *value = if n == 1.0 {
                *value
            } else if square > 0.0 {
                Complex64::from_polar(own, n * value.arg())
            } else {
                Complex64::new(0.0, 0.0)
            };
        }
        // `|z^n - w^n| <= n |z|^{n-1} |z - w|`, with a bound of z - w in the 2-norm over
        // frequencies (Cauchy-Schwarz for each point), plus the rounding of the power itself.
        let length = size as f64;
        let transform = n * FFT_ERROR * levels * norm;
        let power = n * 4.0 * f64::EPSILON;
        error.point += transform * (squares / length).sqrt() + power * own_sum / length;
        error.norm += transform + power * (own_squares / length).sqrt();
        if product.is_empty() {
            product = output;
        } else {
            product.iter_mut().zip(&output).for_each(|(a, b)| *a *= b);
        }
    }
    // The transform of a real sequence is real at both ends.
    if let Some(z) = product.first_mut() {
        z.im = 0.0;
    }
    if size.is_multiple_of(2)
        && let Some(z) = product.last_mut()
    {
        z.im = 0.0;
    }
    let mut result = backward.make_output_vec();
    if product.is_empty() || backward.process(&mut product, &mut result).is_err() {
        return (vec![0.0; size], failed);
    }
    let scale = 1.0 / size as f64;
    result.iter_mut().for_each(|m| *m *= scale);
    let norm = result.iter().map(|m| m * m).sum::<f64>().sqrt();
    error.point += FFT_ERROR * levels * norm;
    error.norm += FFT_ERROR * levels * norm;
    (result, error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lattice::MASS_ERROR;
    use crate::math::sum::CompensatedSum;

    #[test]
    fn composition_of_coins_is_binomial() {
        // Loss 0 or 1 with probability 3/4 and 1/4, ten times; δ by direct summation.
        let lattice = Lattice { offset: 0.0, first: 0, mass: vec![0.75, 0.25], error: MASS_ERROR };
        let composed = Composed::new(&[(&lattice, 10)], 1.0, 2.0, 1 << 16).unwrap();
        for epsilon in [2.5, 4.0, 6.2] {
            let truth: f64 = (0..=10)
                .filter(|&k| f64::from(k) > epsilon)
                .map(|k| {
                    let k = f64::from(k);
                    let ln_mass = crate::math::logarithms::ln_binomial(10.0, k)
                        + k * 0.25f64.ln()
                        + (10.0 - k) * 0.75f64.ln();
                    ln_mass.exp() * -(epsilon - k).exp_m1()
                })
                .sum();
            let (low, high) =
                (composed.delta(epsilon, Side::Lower), composed.delta(epsilon, Side::Upper));
            assert!(low <= truth && truth <= high, "{epsilon}: {low} {truth} {high}");
            assert!(high / low - 1.0 < 1e-9, "{low} {high}");
        }
    }

    #[test]
    fn tiny_delta_keeps_its_relative_accuracy() {
        // All of 60 coins show 1: probability 4^-60 = 7.5e-37.
        let lattice = Lattice { offset: 0.0, first: 0, mass: vec![0.75, 0.25], error: MASS_ERROR };
        let composed = Composed::new(&[(&lattice, 60)], 1.0, 6.0, 1 << 16).unwrap();
        let truth = 0.25f64.powi(60) * -(-0.5f64).exp_m1();
        let (low, high) = (composed.delta(59.5, Side::Lower), composed.delta(59.5, Side::Upper));
        assert!(low <= truth && truth <= high && high / low - 1.0 < 1e-7, "{low} {truth} {high}");
    }

    // The weights of the losses above ε are differences of exponentials that nearly agree.
    #[test]
    fn large_tilts_keep_their_accuracy() {
        let (width, theta, cells) = (1e-9, 1e6, 1 << 16);
        let bell = |i: usize| {
            let z = (i as f64 - 0.5 * cells as f64) / 4_000.0;
            (-0.5 * z * z - theta * width * i as f64).exp()
        };
        let mass: Vec<f64> = (0..cells).map(bell).collect();
        let total: f64 = mass.iter().sum();
        let mass: Vec<f64> = mass.iter().map(|m| m / total).collect();
        let lattice = Lattice { offset: 0.0, first: 0, mass, error: MASS_ERROR };
        let composed = Composed::new(&[(&lattice, 1)], width, theta, 1 << 20).unwrap();
        for at in [20_000, 30_000, 36_000] {
            let mut truth = CompensatedSum::default();
            for (i, mass) in lattice.mass.iter().enumerate().skip(at) {
                truth.add(mass * -(-((i - at) as f64) * width).exp_m1());
            }
            let (truth, epsilon) = (truth.value(), at as f64 * width);
            let (low, high) =
                (composed.delta(epsilon, Side::Lower), composed.delta(epsilon, Side::Upper));
            assert!(low <= truth && truth <= high, "{at}: {low:e} {truth:e} {high:e}");
            assert!(high / low - 1.0 < 1e-7, "{at}: {low:e} {truth:e} {high:e}");
        }
    }
}
