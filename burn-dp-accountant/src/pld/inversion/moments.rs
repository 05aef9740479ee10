//! Moments of a tilted release at equally spaced frequencies, by a transform on a circle.
//!
//! Each node at a loss `y` is spread over the `2S + 1` points of a lattice around it, so that all
//! polynomials of degree `2S` keep their mean there. By the error of Lagrange's interpolation the
//! value of `e^{iωy}` changes by at most `(ωh)^{2S+1} |t| (S!)²/(2S+1)!`, where `th` is the
//! distance from the nearest point: nearly all losses of a rarely sampled release are next to one
//! point, 0. The point 0 adds nothing to `z(ω) - z(0)` and is left out, so that rounding is
//! relative to the rest.

use std::f64::consts::TAU;

use super::panels::KeptRelease;
use crate::math::complex::Complex64;
use crate::math::sum::CompensatedSum;
use crate::pld::fourier::{FFT_ERROR, plan_forward};

/// Points of the lattice on either side of a node.
const SIDE: usize = 6;
const STENCIL: usize = 2 * SIDE + 1;

/// `(S!)²/(2S+1)!`.
const INTERPOLATION_ERROR: f64 = 518_400.0 / 6_227_020_800.0;

/// Upper bound of `Σ |ℓ_j(t)| / |t|` over all points but the nearest one.
const LEBESGUE: f64 = 3.5;

/// The moments `z(ω) = E_P[e^{(θ+iω)Y}]` of one release, at multiples of one frequency.
pub(super) struct Moments {
    /// `ln z(0)`, and the bound of its error.
    pub(super) ln_total: f64,
    pub(super) ln_total_error: f64,
    /// `z(ω_k)/z(0) - 1`.
    pub(super) differences: Vec<Complex64>,
    /// Bounds of their errors, without the rounding of the transform.
    pub(super) errors: Vec<f64>,
    /// Bound of the rounding of the transform at each frequency, and in the 2-norm of all.
    pub(super) point_error: f64,
    pub(super) norm_error: f64,
}

impl Moments {
    /// Computes the moments at the multiples of `2π/period` up to `count`, with a transform of
    /// `size` points.
    pub(super) fn new(
        release: &KeptRelease,
        theta: f64,
        period: f64,
        count: usize,
        size: usize,
    ) -> Option<Self> {
        let step = TAU / period;
        let panels = release.panels(theta, step * count as f64)?;
        let width = period / size as f64;
        let plan = plan_forward(size);
        let mut masses = plan.make_input_vec();
        let constants = constants();
        // Sums of the tilted masses: times the distance from the nearest point, and away from 0.
        let (mut distance, mut away) = (0.0, 0.0);
        let mut nearby = vec![0u32; size];
        for &(loss, mass) in &panels.nodes {
            let place = loss / width;
            let nearest = place.round();
            let t = place - nearest;
            distance += mass * t.abs();
            away += if nearest == 0.0 { 0.0 } else { mass };
            let first = (nearest as i64 - SIDE as i64).rem_euclid(size as i64) as usize;
            nearby[first] += 1;
            spread(&mut masses, first, mass, t, &constants);
        }
        masses[0] = 0.0;
        let mut sum = CompensatedSum::default();
        masses.iter().for_each(|mass| sum.add(*mass));
        let sum = sum.value();
        // All that was added, and the largest number of terms at one point.
        let absolute = LEBESGUE * distance + away;
        let terms = STENCIL as f64 * f64::from(nearby.into_iter().max().unwrap_or(0));
        let square: f64 = masses.iter().map(|m| m * m).sum();
        let mut transformed = plan.make_output_vec();
        plan.process(&mut masses, &mut transformed).ok()?;
        let dropped = release.dropped(theta);
        let excess = panels.excess - dropped;
        let total = 1.0 + excess;
        let a_node = panels.rounding + panels.error;
        if !(total.is_finite() && total > 0.0 && a_node.is_finite()) {
            return None;
        }
        let total_error = (theta * a_node + 1e-13 * dropped + 1e-15 * excess.abs()) / total;
        // Below this, twice a relative error of the total bounds what it does to any quotient.
        if total_error.is_nan() || total_error > 0.01 {
            return None;
        }
        let sum_error = (terms + 64.0) * f64::EPSILON * absolute;
        let levels = (size as f64).log2() + 3.0;
        let (mut differences, mut errors) = (Vec::new(), Vec::new());
        for (k, value) in transformed.iter().take(count + 1).enumerate() {
            let frequency = step * k as f64;
            let difference = Complex64::new(value.re - sum, -value.im) / total;
            let difference = if k == 0 { Complex64::default() } else { difference };
            let interpolation =
                (frequency * width).powi(STENCIL as i32) * INTERPOLATION_ERROR * distance;
            let error = 2.0 * (theta + frequency) * a_node + interpolation + sum_error;
            differences.push(difference);
            errors.push(1.02 * (error / total + (total_error + 1e-15) * difference.norm()));
        }
        Some(Self {
            ln_total: excess.ln_1p(),
            ln_total_error: 1.01 * total_error,
            differences,
            errors,
            point_error: FFT_ERROR * levels * absolute / total,
            norm_error: FFT_ERROR * levels * (square * size as f64).sqrt() / total,
        })
    }
}

/// Returns `(-1)^{2S-j}/(j! (2S-j)!)`.
fn constants() -> [f64; STENCIL] {
    let factorial = |n: usize| (1..=n).map(|i| i as f64).product::<f64>();
    std::array::from_fn(|j| {
        let sign = if j % 2 == 0 { 1.0 } else { -1.0 };
        sign / (factorial(j) * factorial(STENCIL - 1 - j))
    })
}

/// Spreads a mass at the distance `t` from the middle point.
fn spread(masses: &mut [f64], first: usize, mass: f64, t: f64, constants: &[f64; STENCIL]) {
    // The whole numbers first: exact for a tiny distance from the middle.
    let distance = |j: usize| t + (SIDE as f64 - j as f64);
    let mut weights = *constants;
    let mut product = mass;
    for (j, weight) in weights.iter_mut().enumerate() {
        *weight *= product;
        product *= distance(j);
    }
    product = 1.0;
    let mut index = first + STENCIL - 1;
    for (j, weight) in weights.iter().enumerate().rev() {
        let place = if index >= masses.len() { index - masses.len() } else { index };
        masses[place] += weight * product;
        product *= distance(j);
        index = index.wrapping_sub(1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::dominating_pairs::Direction;
    use crate::math::normal;

    #[test]
    fn stencil_keeps_waves_within_the_error_of_interpolation() {
        let constants = constants();
        for t in [-0.5, -0.21, -1e-7, 0.0, 3e-4, 0.33, 0.5] {
            // Around the point 40 of 64.
            let mut masses = vec![0.0; 64];
            spread(&mut masses, 40 - SIDE, 2.0, t, &constants);
            let others: f64 = (0..64).filter(|j| *j != 40).map(|j: usize| masses[j].abs()).sum();
            assert!(others <= 2.0 * LEBESGUE * f64::abs(t), "{t}: {others}");
            for angle in [0.0, 0.1, 0.4, 0.8] {
                let wave = |place: f64| Complex64::from_polar(1.0, angle * place);
                let sum: Complex64 = (0..64).map(|j| masses[j] * wave(j as f64 - 40.0)).sum();
                let error = f64::abs(2.0 * t) * INTERPOLATION_ERROR * f64::powi(angle, 13);
                let gap = (sum - 2.0 * wave(t)).norm();
                assert!(gap <= error + 2e-15, "{t} {angle}: {gap:e} {error:e}");
            }
        }
    }

    #[test]
    fn stencil_keeps_a_tiny_distance_from_its_point() {
        let mut masses = vec![0.0; 64];
        for t in [1e-20, -3e-17] {
            masses.fill(0.0);
            spread(&mut masses, 40 - SIDE, 2.0, t, &constants());
            let mean: f64 = masses.iter().zip(-40i32..).map(|(m, j)| m * f64::from(j)).sum();
            assert!((mean / (2.0 * t) - 1.0).abs() < 1e-13, "{t}: {mean}");
        }
    }

    #[test]
    fn moments_are_the_sums_over_fine_nodes() {
        for (q, mu, theta, direction) in [
            (1e-5, 1.5, 20.0, Direction::Remove),
            (0.1, 0.7, 3.0, Direction::Remove),
            (0.05, 1.0, 6.0, Direction::Add),
        ] {
            let end = 6.0;
            let mass = (1.0 - q) * normal::cdf(-end) + q * normal::cdf(mu - end);
            let release = KeptRelease { q, mu, direction, cut: Some((end, mass)) };
            let (period, count) = (30.0 * q, 200);
            let size = 2048;
            let moments = Moments::new(&release, theta, period, count, size).unwrap();
            let step = TAU / period;
            let fine = release.panels(theta, 3.0 * step * count as f64).unwrap();
            let total: f64 = fine.nodes.iter().map(|(_, mass)| mass).sum();
            assert!((moments.ln_total - total.ln()).abs() < 1e-12);
            for k in [1, 7, 50, 120, 200] {
                let wave = |y: f64| {
                    let half = 0.5 * step * k as f64 * y;
                    Complex64::from_polar(2.0 * half.sin(), half) * Complex64::I
                };
                let truth: Complex64 = fine.nodes.iter().map(|(y, mass)| mass * wave(*y)).sum();
                let gap = (moments.differences[k] - truth / total).norm();
                let bound = moments.errors[k] + moments.point_error;
                assert!(gap <= bound, "{q} {k}: {gap:e} {bound:e}");
                assert!(k > 120 || bound < 1e-9, "{q} {k}: {bound:e}");
            }
        }
    }
}
