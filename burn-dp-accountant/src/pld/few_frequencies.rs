//! Powers of a spectrum on a circle that is much longer than its lattice.
//!
//! The composition of many releases has few frequencies that are not negligible. A lattice much
//! shorter than the circle has its terms at these frequencies computed one by one, and all others
//! are bounded without a transform of the length of the circle. For masses `p_j` with sum 1 let
//! `g(φ) = 1 - |z(φ)|² = Σ p_i p_j (1 - cos((i-j)φ))`.
//!
//! - `|g''| <= Σ p_i p_j (i-j)² = 2σ²`, `σ²` the variance of the index. Between two angles `Δ`
//!   apart, `g` is at least the smaller of its two values there minus `σ²Δ²/4`. A short transform
//!   hence gives a `γ` with `g >= γ` from `φ_l <= π/2` to `π`.
//! - `1 - cos 2x <= 4 (1 - cos x)`, hence `g(φ) >= g(2φ)/4`. Every `φ < φ_l` is doubled into
//!   `[φ_l, 2φ_l)` by a factor below `2φ_l/φ`: `g(φ) >= γ (φ/(2φ_l))²`.
//!
//! With `|z|^n <= e^{-ng/2}`, all frequencies from `2φ_l sqrt(2c/(nγ))` on are below `e^{-c}`.

use std::f64::consts::{PI, TAU};

use super::fourier::{FFT_ERROR, GridError, fast_size};
use super::heavy_masses::{FEWEST, POWER_ERROR, TERM_ERROR, terms};
use super::powers::{LN_NEGLIGIBLE, Powers, Transform};
use crate::lattice::Lattice;
use crate::math::complex::ln_1p;

/// Minimum circle, and its minimum length in lattices, for which this is worthwhile.
const SHORTEST: usize = 1 << 16;
const LATTICES: usize = 16;

/// Longest circle: the angles of the frequencies are products of exact integers.
pub(super) const LONGEST: f64 = (1u64 << 40) as f64;

/// Maximum number of terms that are computed one by one.
const MAX_TERMS: usize = 1 << 22;

/// Length of the short transform in lattices.
const OVERSAMPLING: usize = 8;

/// Returns a short transform of the tilted lattice and the powers of its spectrum on a circle of
/// `size` points; `None` if a transform of that length costs less.
pub(super) fn powers(
    lattice: &Lattice,
    width: f64,
    theta: f64,
    size: usize,
    count: u64,
) -> Result<Option<(Transform, Powers)>, GridError> {
    let points = lattice.mass.len();
    if count < FEWEST || size <= SHORTEST.max(LATTICES * points) {
        return Ok(None);
    }
    let short = fast_size(OVERSAMPLING * points);
    let transform = Transform::new(lattice, width, theta, short)?;
    let Some(end) = end_of_spectrum(&transform, count) else { return Ok(None) };
    let frequencies = (end * size as f64 / TAU).ceil() + 1.0;
    if frequencies * points as f64 > MAX_TERMS as f64 {
        return Ok(None);
    }
    let n = count as f64;
    let indices: Vec<usize> = (0..points).filter(|&i| i != transform.top).collect();
    let mut powers = Powers {
        indices: Vec::new(),
        values: Vec::new(),
        rounding: Vec::new(),
        // Nothing comes from a transform.
        sources: Vec::new(),
        cut: LN_NEGLIGIBLE.exp(),
        size,
    };
    for k in 0..(frequencies as usize).min(size / 2) {
        let (difference, moduli) = terms(&transform, size, &indices, k);
        let logarithm = ln_1p(difference) * n;
        if logarithm.re < LN_NEGLIGIBLE {
            continue;
        }
        let value = logarithm.exp();
        let modulus = value.norm();
        let slope = n * modulus / (difference + 1.0).norm();
        powers.indices.push(k);
        powers.values.push(value);
        let rounding = POWER_ERROR * modulus * (n * difference.norm() + 1.0);
        powers.rounding.push(rounding + TERM_ERROR * slope * moduli);
    }
    Ok(Some((transform, powers)))
}

/// Returns the angle above which `|z|^n` is negligible; `None` if the transform does not prove it.
fn end_of_spectrum(transform: &Transform, count: u64) -> Option<f64> {
    let size = transform.size as f64;
    let (mut mean, mut square) = (0.0, 0.0);
    for (i, mass) in transform.tilted.iter().enumerate() {
        let distance = i as f64 - transform.top as f64;
        mean += mass * distance;
        square += mass * distance * distance;
    }
    // Rounding is far below the last term.
    let variance = (square - mean * mean).max(0.0) + 1e-9 * square;
    let between = variance * (PI / size).powi(2);
    let rounding = 8.0 * (transform.point_error + transform.constant_error) + 8.0 * FFT_ERROR;
    let mut smallest = f64::INFINITY;
    let mut best: Option<f64> = None;
    for (l, difference) in transform.differences.iter().enumerate().skip(1).rev() {
        smallest = smallest.min(-2.0 * difference.re - difference.norm_sqr());
        let bound = smallest - between - rounding;
        if bound.is_nan() || bound <= 0.0 {
            break;
        }
        // One more than needed, for the rounding of the sum of the masses.
        let needed = 2.0 * (1.0 - LN_NEGLIGIBLE) / (count as f64 * bound);
        let angle = TAU * l as f64 / size;
        let end = 2.0 * angle * needed.sqrt();
        if 4 * l <= transform.size && needed <= 1.0 && best.is_none_or(|known| end < known) {
            best = Some(end);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lattice::MASS_ERROR;

    /// A bell of 200 cells, and a rare large loss.
    fn lattice(rare: f64) -> Lattice {
        let mut mass: Vec<f64> =
            (0..200).map(|i| (-0.5 * ((f64::from(i) - 60.0) / 9.0).powi(2)).exp()).collect();
        let total: f64 = mass.iter().sum();
        mass.iter_mut().for_each(|m| *m *= (1.0 - rare) / total);
        mass[199] += rare;
        Lattice { offset: 0.0, first: -60, mass, error: MASS_ERROR }
    }

    #[test]
    fn values_are_those_of_the_long_transform_and_nothing_else_matters() {
        let size = 1 << 17;
        for (rare, theta, count) in [(0.0, 3.0, 300_000), (1e-6, 1.0, 1_000_000)] {
            let (lattice, width) = (lattice(rare), 1e-4);
            let (short, few) = powers(&lattice, width, theta, size, count).unwrap().unwrap();
            let long = Transform::new(&lattice, width, theta, size).unwrap();
            let all = long.powers(count, None);
            assert_eq!(short.origin, long.origin);
            assert!((short.normalizer - long.normalizer).abs() < 1e-15);
            // Every frequency that the long transform keeps is among the few.
            assert_eq!(few.indices, all.indices);
            assert!(few.indices.len() > 10 && few.indices.len() < 200);
            let source = &all.sources[0];
            for i in 0..few.indices.len() {
                let bound = few.rounding[i]
                    + all.rounding[i]
                    + source.slopes[i] * (source.point_error + source.constant_error);
                let gap = (few.values[i] - all.values[i]).norm();
                assert!(gap <= bound, "{i}: {gap:e} {bound:e}");
            }
        }
    }

    #[test]
    fn the_end_of_the_spectrum_is_beyond_every_frequency_that_matters() {
        for (rare, count) in [(0.0, 1000u64), (1e-4, 20_000), (1e-9, 5_000_000)] {
            let lattice = lattice(rare);
            let short = Transform::new(&lattice, 1e-4, 1.0, fast_size(1600)).unwrap();
            let end = end_of_spectrum(&short, count).unwrap();
            let long = Transform::new(&lattice, 1e-4, 1.0, 1 << 16).unwrap();
            let last = long.powers(count, None).indices.last().copied().unwrap();
            let last = TAU * last as f64 / f64::from(1 << 16);
            assert!(last < end && end < 8.0 * last, "{rare} {count}: {last} {end}");
        }
    }

    #[test]
    fn short_circles_and_few_releases_are_left_to_the_transform() {
        let lattice = lattice(0.0);
        for (size, count) in [(1 << 16, 1_000_000), (1 << 20, 63)] {
            assert!(powers(&lattice, 1e-4, 1.0, size, count).unwrap().is_none());
        }
    }
}
