//! Powers of a spectrum whose heaviest masses are transformed one by one.
//!
//! The rounding of the fast transform is relative to the sum of all masses except the largest. A
//! few releases of a rarely sampled mechanism have nearly all of their mass in a few hundred cells
//! around loss 0, whereas masses that are smaller by many orders of magnitude determine δ. In `z -
//! 1 = Σ m_j (e^{iφj} - 1)` a heavy mass near the origin contributes little at the few frequencies
//! that are not negligible. There the terms of the heaviest masses are computed one by one, each
//! with a small relative error; the fast transform computes the rest.

use rustfft::num_complex::Complex64;

use super::fourier::{FFT_ERROR, plan_forward};
use super::powers::{Powers, RoundingEffect, Transform};
use crate::math::complex::ln_1p;
use crate::math::sum::CompensatedSum;

/// Maximum number of terms that are computed one by one.
const MAX_TERMS: usize = 1 << 20;

/// Minimum number of repetitions: the modulus of the base is then above 1/4.
pub(super) const FEWEST: u64 = 64;

/// Relative error of `e^{iα} - 1 = 2 sin(α/2) (-sin(α/2) + i cos(α/2))` times a mass, in the sum:
/// the angle is a product of exact integers and of π/n with 3 units of roundoff; sine and cosine
/// add one or two each; the sum is compensated.
pub(super) const TERM_ERROR: f64 = 8.0 * f64::EPSILON;

/// Absolute error of `n ln(1 + d)` over `n |d|`, and relative error of its exponential: the error
/// of the real part and the angle of `ln(1 + d)` is a few units of `|d|/|1 + d| <= 4 |d|`.
pub(super) const POWER_ERROR: f64 = 16.0 * f64::EPSILON;

/// Returns `z^n` at the frequencies of `powers` with less rounding, or `powers` itself if the
/// heaviest masses are not nearly all of the mass.
pub(super) fn with_less_rounding(transform: &Transform, powers: Powers, count: u64) -> Powers {
    let kept = powers.indices.len().max(1);
    let budget = (MAX_TERMS / kept).min(transform.tilted.len() / 4);
    if count < FEWEST || budget == 0 {
        return powers;
    }
    let mut order: Vec<usize> =
        (0..transform.tilted.len()).filter(|&i| i != transform.top).collect();
    let by_mass = |a: &usize, b: &usize| transform.tilted[*b].total_cmp(&transform.tilted[*a]);
    order.select_nth_unstable_by(budget - 1, by_mass);
    let (heavy, light) = order.split_at(budget);
    let mass = |indices: &[usize]| {
        let mut sum = CompensatedSum::default();
        indices.iter().for_each(|&i| sum.add(transform.tilted[i]));
        sum.value()
    };
    let sum = mass(light);
    if sum > 0.1 * mass(heavy) {
        return powers;
    }
    let forward = plan_forward(transform.size);
    let mut input = forward.make_input_vec();
    for &i in light {
        input[distance(transform, i).rem_euclid(transform.size as i64) as usize] +=
            transform.tilted[i];
    }
    let norm = input.iter().map(|m| m * m).sum::<f64>().sqrt();
    let mut rest = forward.make_output_vec();
    if forward.process(&mut input, &mut rest).is_err() {
        return powers;
    }
    let levels = (transform.size as f64).log2() + 3.0;
    let n = count as f64;
    let mut values = Vec::with_capacity(kept);
    let mut slopes = Vec::with_capacity(kept);
    let mut rounding = Vec::with_capacity(kept);
    for &k in &powers.indices {
        let (direct, size) = terms(transform, transform.size, heavy, k);
        let mut difference = direct;
        if k > 0 {
            difference += rest[k] - sum;
        }
        let value = (ln_1p(difference) * n).exp();
        let modulus = value.norm();
        let slope = n * modulus / (difference + 1.0).norm();
        values.push(value);
        slopes.push(slope);
        rounding.push(
            POWER_ERROR * modulus * (n * difference.norm() + 1.0) + TERM_ERROR * slope * size,
        );
    }
    let source = RoundingEffect {
        slopes,
        norm_error: FFT_ERROR * levels * norm,
        point_error: FFT_ERROR * levels * sum,
        constant_error: 4.0 * f64::EPSILON * sum,
    };
    Powers { values, rounding, sources: vec![source], ..powers }
}

/// Returns the distance of a cell from the largest mass.
fn distance(transform: &Transform, i: usize) -> i64 {
    i as i64 - transform.top as i64
}

/// Returns `Σ m_j (e^{-iφj} - 1)` over these masses at frequency `k` of a circle of `size` points,
/// and the sum of the moduli.
pub(super) fn terms(
    transform: &Transform,
    size: usize,
    indices: &[usize],
    k: usize,
) -> (Complex64, f64) {
    let length = size as f64;
    // A distance times a frequency is far below 2^63.
    let size = size as i64;
    let (mut re, mut im, mut moduli) = (CompensatedSum::default(), CompensatedSum::default(), 0.0);
    for &i in indices {
        let turns = (distance(transform, i) * k as i64).rem_euclid(size);
        // The representative around 0: the sine keeps its relative accuracy.
        let turns = if 2 * turns > size { turns - size } else { turns };
        let half = -std::f64::consts::PI * turns as f64 / length;
        let (sin, cos) = half.sin_cos();
        let chord = 2.0 * sin * transform.tilted[i];
        re.add(-chord * sin);
        im.add(chord * cos);
        moduli += chord.abs();
    }
    (Complex64::new(re.value(), im.value()), moduli)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lattice::{Lattice, MASS_ERROR};

    /// A bulk of 40 cells around 0 and a rare large loss.
    fn lattice() -> Lattice {
        let mut mass: Vec<f64> = (0..4000).map(|i| if i < 40 { 0.025 } else { 0.0 }).collect();
        mass[0] -= 1e-7;
        mass[3999] = 1e-7;
        Lattice { offset: 0.0, first: -20, mass, error: MASS_ERROR }
    }

    #[test]
    fn direct_terms_agree_within_narrower_bounds() {
        let (count, size) = (5000, 1 << 14);
        let transform = Transform::new(&lattice(), 1e-3, 2.0, size).unwrap();
        let fast = transform.powers(count, None);
        let bounds = |p: &Powers| -> Vec<f64> {
            let own = p.rounding.iter().zip(&p.sources[0].slopes);
            own.map(|(r, s)| r + s * (p.sources[0].point_error + p.sources[0].constant_error))
                .collect()
        };
        let (fast_values, fast_bounds) = (fast.values.clone(), bounds(&fast));
        let direct = with_less_rounding(&transform, fast, count);
        let direct_bounds = bounds(&direct);
        for i in 0..fast_values.len() {
            let gap = (fast_values[i] - direct.values[i]).norm();
            assert!(gap <= fast_bounds[i] + direct_bounds[i], "{i}: {gap:e}");
        }
        let total = |bounds: &[f64]| bounds.iter().sum::<f64>();
        let (direct, fast) = (total(&direct_bounds), total(&fast_bounds));
        assert!(direct < 0.1 * fast, "{direct:e} {fast:e}");
    }
}
