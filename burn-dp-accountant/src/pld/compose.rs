//! Self-composition of lattices by the fast Fourier transform, with exponential tilting.
//!
//! Each lattice is tilted by `e^{θy}` and normalised before it is transformed, `θ` near the saddle
//! point of the δ in question. The masses that decide δ are then of the order of the largest ones,
//! and the rounding of the transform, relative to δ, does not grow however small δ is.
//!
//! # References
//!
//! Composition by transforms: "Computing Tight Differential Privacy Guarantees Using FFT", Koskela,
//! Jälkö, Honkela 2020; "Numerical Composition of Differential Privacy", Gopi, Lee, Wutschitz 2021.
//! Rounding of the transform: "Accuracy and Stability of Numerical Algorithms", Higham 2002,
//! Theorem 24.2.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::{RealFftPlanner, RealToComplex};
use rustfft::num_complex::Complex64;

use super::lattice::Lattice;
use super::quadrature::MASS_ERROR;

/// Rounding of one transform of length `n = 2^a 3^b 5^c`, relative in the 2-norm, is below
/// `FFT_ERROR (log2(n) + 3)`, for every factorisation into stages of radix 2, 3, 4 and 5 (larger radices
/// are built of them), in any order.
///
/// A stage multiplies by twiddle factors, then adds `r` terms with coefficients of modulus at most 1. The
/// angle of a twiddle factor is a product of three rounded numbers of at most one turn, so that the
/// factor is known to `2.5 · 2π + 1 < 17` units of roundoff `u`; the complex product rounds by
/// `sqrt(5) u`. A path through the butterfly has at most `m` = 1, 4, 2, 6 roundings for `r` = 2, 3, 4, 5:
/// each output is known to `m u Σ|x_i|`, at most `m u sqrt(r)` of the 2-norm, beside which the stage grows
/// the norm by exactly `sqrt(r)`; over the `r` outputs the relative error is `(m sqrt(r) + 19.3) u` at most.
/// For each level of `log2(r)` that is 20.8 u, 16.6 u, 11.7 u and 14.1 u. (Higham 2002, Theorem 24.2, is the
/// case of radix 2 with exact twiddle factors.) The real transform of even length adds one level of
/// radix 2; two more are left for terms of the second order.
pub(super) const FFT_ERROR: f64 = 10.5 * f64::EPSILON;

/// Relative error of a tilted mass by the rounding of its loss, over the tilt and the largest loss.
pub(super) const LOSS_ERROR: f64 = 16.0 * f64::EPSILON;

/// Tilted probability that may lie outside of the window (natural logarithm).
const LN_OUTSIDE: f64 = -32.0;

/// Plans of longer transforms are not kept.
const LARGEST_KEPT_PLAN: usize = 1 << 18;

/// Plans of transforms are made once for each length.
static PLANNER: LazyLock<Mutex<RealFftPlanner<f64>>> =
    LazyLock::new(|| Mutex::new(RealFftPlanner::new()));

/// A composed lattice around the interesting losses.
pub(crate) struct Composed {
    width: f64,
    theta: f64,
    /// `ln` of the factor between tilted and true masses (without `e^{-θs}`).
    ln_scale: f64,
    /// Grid index of the first entry, and the sum of the offsets of all lattices.
    first: i64,
    offset: f64,
    /// `Σ_{j>k} p_j e^{-θ(s_j-s_k)}`.
    above: Vec<f64>,
    /// The same with `θ + 1`.
    above_shifted: Vec<f64>,
    /// Bound of the absolute error of the scaled δ: rounding, wrap-around, missing tails.
    error: f64,
    /// Bound of the relative error: of the masses, over all repetitions.
    relative: f64,
}

/// Why a composition was not possible.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The window would need this many points.
    TooLarge(f64),
    /// The tilt overflows.
    Overflow,
}

impl Composed {
    /// The composition of the parts, each repeated, tilted by `theta`.
    pub(crate) fn new(
        parts: &[(&Lattice, u64)],
        width: f64,
        theta: f64,
        max_points: usize,
    ) -> Result<Self, Refusal> {
        let moments = |t: f64| -> f64 {
            parts.iter().map(|(lattice, n)| *n as f64 * ln_moment(lattice, width, t)).sum()
        };
        let ln_scale = moments(theta);
        if !ln_scale.is_finite() {
            return Err(Refusal::Overflow);
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
            return Err(Refusal::Overflow);
        }
        let (low, high) = (low.min(mean - width) - offset, high.max(mean + width) - offset);
        let needed = (high - low) / width + 4.0;
        if needed > max_points as f64 {
            return Err(Refusal::TooLarge(needed));
        }
        let size = fast_size(needed.ceil() as usize);
        let first = (low / width).floor() as i64;
        let (tilted, rounding) = convolve(parts, width, theta, size);
        // Rotate the window to the front, and sum from above.
        let start = first.rem_euclid(size as i64) as usize;
        let (mut above, mut above_shifted) = (vec![0.0; size], vec![0.0; size]);
        let (fall, fall_shifted) = ((-theta * width).exp(), (-(theta + 1.0) * width).exp());
        let (mut a, mut b) = (0.0, 0.0);
        let window = tilted[start..].iter().chain(&tilted[..start]);
        for (k, mass) in (0..size).rev().zip(window.rev()) {
            above[k] = a;
            above_shifted[k] = b;
            let mass = mass.max(0.0);
            a = (a + mass) * fall;
            b = (b + mass) * fall_shifted;
        }
        // Largest weight e^{-θu}(1 - e^{-u}) of a misplaced mass; sum of the weights of all points.
        let largest = (theta * (theta / (theta + 1.0)).ln()).exp() / (theta + 1.0);
        let weights = 1.0 / -(-theta * width).exp_m1() - 1.0 / -(-(theta + 1.0) * width).exp_m1();
        let repetitions: f64 = parts.iter().map(|(_, n)| *n as f64).sum();
        Ok(Self {
            width,
            theta,
            ln_scale,
            first,
            offset,
            above,
            above_shifted,
            error: 4.0 * LN_OUTSIDE.exp() * largest + rounding.weighted(largest, weights),
            relative: MASS_ERROR * repetitions
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

    /// Scaled δ at grid point `k`, with the error on the wanted side.
    fn scaled(&self, k: usize, upper: bool) -> f64 {
        let value = self.above[k] - self.above_shifted[k];
        if upper {
            value * (1.0 + self.relative) + self.error
        } else {
            value * (1.0 - self.relative) - self.error
        }
    }

    fn ln_delta_at(&self, k: usize, upper: bool) -> f64 {
        let scaled = self.scaled(k, upper);
        if scaled <= 0.0 { f64::NEG_INFINITY } else { scaled.ln() + self.ln_factor(k) }
    }

    /// Upper or lower bound of δ at `epsilon`. Outside of the window: 1 below, and above the bound
    /// at its end, or 0.
    pub(crate) fn delta(&self, epsilon: f64, upper: bool) -> f64 {
        let position = ((epsilon - self.offset) / self.width).floor() as i64 - self.first;
        if position < 0 {
            return if upper { 1.0 } else { self.delta(self.loss(0), false) };
        }
        let k = position as usize;
        if k >= self.above.len() {
            let end = self.above.len() - 1;
            return if upper { self.ln_delta_at(end, true).exp().min(1.0) } else { 0.0 };
        }
        let x = (epsilon - self.loss(k)).clamp(0.0, self.width);
        let value = self.above[k] - x.exp() * self.above_shifted[k];
        let error = self.error * (self.theta * self.width).exp();
        let scaled = if upper {
            value * (1.0 + self.relative) + error
        } else {
            value * (1.0 - self.relative) - error
        };
        (scaled.max(0.0) * self.ln_factor(k).exp()).clamp(0.0, 1.0)
    }
}

/// `ln Σ p e^{ty}`, by a recurrence; not finite on overflow.
pub(super) fn ln_moment(lattice: &Lattice, width: f64, t: f64) -> f64 {
    // The power is recomputed for every block, so that its rounding does not accumulate; four
    // independent chains keep the processor busy.
    const BLOCK: usize = 64;
    let step = (t * width).exp();
    let (step2, step4) = (step * step, step * step * step * step);
    let mut sum = 0.0;
    for (block, masses) in lattice.mass.chunks(BLOCK).enumerate() {
        let y = (lattice.first + (block * BLOCK) as i64) as f64 * width;
        let mut quarter = [0.0f64; 4];
        let (groups, rest) = masses.as_chunks::<4>();
        for (j, &mass) in rest.iter().enumerate() {
            quarter[j] = mass;
        }
        for group in groups.iter().rev() {
            for (chain, mass) in quarter.iter_mut().zip(group) {
                *chain = *chain * step4 + mass;
            }
        }
        let inner = quarter[0] + quarter[1] * step + (quarter[2] + quarter[3] * step) * step2;
        if inner > 0.0 {
            sum += inner * (t * y).exp();
        }
    }
    sum.ln() + t * lattice.offset
}

/// `Σ n max |loss|` over the parts.
pub(super) fn largest_losses(parts: &[(&Lattice, u64)], width: f64) -> f64 {
    let largest = |lattice: &Lattice| {
        let end = lattice.first + lattice.mass.len() as i64;
        let loss = |i: i64| (lattice.offset + i as f64 * width).abs();
        loss(lattice.first).max(loss(end))
    };
    parts.iter().map(|(lattice, n)| *n as f64 * largest(lattice)).sum()
}

/// Mean and standard deviation of the tilted composition.
pub(super) fn spread(parts: &[(&Lattice, u64)], width: f64, theta: f64) -> (f64, f64) {
    let (mut mean, mut variance) = (0.0, 0.0);
    for (lattice, count) in parts {
        let (mut zeroth, mut first, mut second) = (0.0, 0.0, 0.0);
        for (i, mass) in lattice.mass.iter().enumerate() {
            if *mass > 0.0 {
                let y = lattice.offset + (lattice.first + i as i64) as f64 * width;
                let tilted = mass * (theta * y).exp();
                zeroth += tilted;
                first += tilted * y;
                second += tilted * y * y;
            }
        }
        let m = first / zeroth;
        mean += *count as f64 * m;
        variance += *count as f64 * (second / zeroth - m * m).max(0.0);
    }
    (mean, variance.sqrt().max(width))
}

/// Bounds of the rounding of the composed masses.
#[derive(Debug, Clone, Copy, Default)]
struct Rounding {
    /// Of each mass.
    point: f64,
    /// Of all of them in the 2-norm.
    norm: f64,
}

impl Rounding {
    /// Bound of the error of a weighted sum, from the largest weight and the sum of the weights:
    /// each error at its bound, or Cauchy-Schwarz with `Σw² <= max w · Σw`.
    fn weighted(self, largest: f64, sum: f64) -> f64 {
        (self.point * sum).min(self.norm * (largest * sum).sqrt())
    }
}

fn plan<T>(size: usize, make: impl FnOnce(&mut RealFftPlanner<f64>) -> T) -> T {
    let mut planner = PLANNER.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = make(&mut planner);
    if size > LARGEST_KEPT_PLAN {
        *planner = RealFftPlanner::new();
    }
    plan
}

/// The plan of the forward transform of this length.
pub(super) fn plan_forward(size: usize) -> Arc<dyn RealToComplex<f64>> {
    plan(size, |planner| planner.plan_fft_forward(size))
}

/// The tilted composition on a circle of `size` points (entry `j` is grid index `j` modulo `size`),
/// and its rounding.
fn convolve(
    parts: &[(&Lattice, u64)],
    width: f64,
    theta: f64,
    size: usize,
) -> (Vec<f64>, Rounding) {
    let (forward, backward) = (plan_forward(size), plan(size, |p| p.plan_fft_inverse(size)));
    let levels = (size as f64).log2() + 3.0;
    let mut product: Vec<Complex64> = Vec::new();
    let mut error = Rounding::default();
    let failed = Rounding { point: f64::INFINITY, norm: f64::INFINITY };
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
        // What is left out below is far smaller than its bound e^-80 for each frequency.
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
            // Each frequency but the ends stands for two.
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
        // |z^n - w^n| <= n |z|^{n-1} |z - w|, where z - w is known in the 2-norm over the frequencies
        // (Cauchy-Schwarz for each point); and the rounding of the power itself.
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

/// The smallest even number from `n` on whose prime factors are 2, 3 and 5, mostly 2: fast transforms.
pub(super) fn fast_size(n: usize) -> usize {
    let n = n.max(16);
    let mut best = n.next_power_of_two();
    for odd in [3, 5, 9, 15, 27] {
        let mut size = odd * 4;
        while size < n {
            size *= 2;
        }
        best = best.min(size);
    }
    best
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_composition_of_coins_is_the_binomial_distribution() {
        // Loss 0 or 1 with probability 3/4 and 1/4, ten times; δ by direct summation.
        let lattice = Lattice { offset: 0.0, first: 0, mass: vec![0.75, 0.25] };
        let composed = Composed::new(&[(&lattice, 10)], 1.0, 2.0, 1 << 16).unwrap();
        for epsilon in [2.5, 4.0, 6.2] {
            let truth: f64 = (0..=10)
                .filter(|&k| f64::from(k) > epsilon)
                .map(|k| {
                    let k = f64::from(k);
                    let ln_mass = crate::math::ln_binomial(10.0, k)
                        + k * 0.25f64.ln()
                        + (10.0 - k) * 0.75f64.ln();
                    ln_mass.exp() * -(epsilon - k).exp_m1()
                })
                .sum();
            let (low, high) = (composed.delta(epsilon, false), composed.delta(epsilon, true));
            assert!(low <= truth && truth <= high, "{epsilon}: {low} {truth} {high}");
            assert!(high / low - 1.0 < 1e-9, "{low} {high}");
        }
    }

    #[test]
    fn a_tiny_delta_keeps_its_relative_accuracy() {
        // All of 60 coins show 1: probability 4^-60 = 7.5e-37.
        let lattice = Lattice { offset: 0.0, first: 0, mass: vec![0.75, 0.25] };
        let composed = Composed::new(&[(&lattice, 60)], 1.0, 6.0, 1 << 16).unwrap();
        let truth = 0.25f64.powi(60) * -(-0.5f64).exp_m1();
        let (low, high) = (composed.delta(59.5, false), composed.delta(59.5, true));
        assert!(low <= truth && truth <= high && high / low - 1.0 < 1e-7, "{low} {truth} {high}");
    }
}
