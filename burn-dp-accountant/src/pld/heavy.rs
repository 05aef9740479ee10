//! Powers of a spectrum whose heaviest masses are transformed one by one.
//!
//! The rounding of the fast transform is relative to the sum of all masses but the largest. Few
//! releases of a rarely sampled mechanism have nearly all of their mass in a few hundred cells around
//! loss 0, whereas δ is decided by masses that are smaller by many orders of magnitude. In
//! `z - 1 = Σ m_j (e^{iφj} - 1)` a heavy mass near the origin hardly counts at the frequencies that
//! matter, which are few: there the terms of the heaviest masses are computed one by one, each with a small
//! relative error, and only the rest is left to the fast transform.

use rustfft::num_complex::Complex64;

use super::compose::{FFT_ERROR, plan_forward};
use super::powers::{Powers, Source, Transform};
use super::rotation::Sum;
use crate::math::complex::ln_1p;

/// Terms that may be computed one by one.
const MAX_TERMS: usize = 1 << 20;

/// Fewest repetitions: the modulus of what is raised to this power is then above 1/4.
const FEWEST: u64 = 64;

/// Relative error of `e^{iα} - 1 = 2 sin(α/2) (-sin(α/2) + i cos(α/2))` times a mass, in the sum: the
/// angle is a product of exact integers and of π/n to 3 units of roundoff; sine and cosine add one
/// or two each; the sum is compensated.
const TERM_ERROR: f64 = 8.0 * f64::EPSILON;

/// Absolute error of `n ln(1 + d)` and of its exponential, over `n |d|`, and beside it, relative to the
/// power: real part and angle of `ln(1 + d)` are known to a few units of `|d|/|1 + d| <= 4 |d|`.
const POWER_ERROR: f64 = 16.0 * f64::EPSILON;

impl Transform {
    /// `z^n` at the frequencies of `powers` with less rounding, or `powers` itself where the heaviest
    /// masses are not nearly all.
    pub(super) fn sharpened(&self, powers: Powers, count: u64) -> Powers {
        let kept = powers.indices.len().max(1);
        let budget = (MAX_TERMS / kept).min(self.tilted.len() / 4);
        if count < FEWEST || budget == 0 {
            return powers;
        }
        let mut order: Vec<usize> = (0..self.tilted.len()).filter(|&i| i != self.top).collect();
        let by_mass = |a: &usize, b: &usize| self.tilted[*b].total_cmp(&self.tilted[*a]);
        order.select_nth_unstable_by(budget - 1, by_mass);
        let (heavy, light) = order.split_at(budget);
        let mass = |indices: &[usize]| {
            let mut sum = Sum::default();
            indices.iter().for_each(|&i| sum.add(self.tilted[i]));
            sum.value()
        };
        let sum = mass(light);
        if sum > 0.1 * mass(heavy) {
            return powers;
        }
        let forward = plan_forward(self.size);
        let mut input = forward.make_input_vec();
        for &i in light {
            input[self.distance(i).rem_euclid(self.size as i64) as usize] += self.tilted[i];
        }
        let norm = input.iter().map(|m| m * m).sum::<f64>().sqrt();
        let mut rest = forward.make_output_vec();
        if forward.process(&mut input, &mut rest).is_err() {
            return powers;
        }
        let levels = (self.size as f64).log2() + 3.0;
        let n = count as f64;
        let mut values = Vec::with_capacity(kept);
        let mut slopes = Vec::with_capacity(kept);
        let mut rounding = Vec::with_capacity(kept);
        for &k in &powers.indices {
            let (direct, size) = self.terms(heavy, k);
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
        let source = Source {
            slopes,
            norm_error: FFT_ERROR * levels * norm,
            point_error: FFT_ERROR * levels * sum,
            constant_error: 4.0 * f64::EPSILON * sum,
        };
        Powers { values, rounding, sources: vec![source], ..powers }
    }

    /// Cells from the largest mass.
    fn distance(&self, i: usize) -> i64 {
        i as i64 - self.top as i64
    }

    /// `Σ m_j (e^{-iφj} - 1)` over these masses at frequency `k`, and the sum of the moduli.
    fn terms(&self, indices: &[usize], k: usize) -> (Complex64, f64) {
        let size = self.size as i128;
        let (mut re, mut im, mut moduli) = (Sum::default(), Sum::default(), 0.0);
        for &i in indices {
            let turns = (i128::from(self.distance(i)) * k as i128).rem_euclid(size);
            // The representative around 0: the sine keeps its relative accuracy.
            let turns = if 2 * turns > size { turns - size } else { turns };
            let half = -std::f64::consts::PI * turns as f64 / self.size as f64;
            let (sin, cos) = half.sin_cos();
            let chord = 2.0 * sin * self.tilted[i];
            re.add(-chord * sin);
            im.add(chord * cos);
            moduli += chord.abs();
        }
        (Complex64::new(re.value(), im.value()), moduli)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pld::lattice::Lattice;

    /// A bulk of 40 cells around 0 and a rare large loss.
    fn lattice() -> Lattice {
        let mut mass: Vec<f64> = (0..4000).map(|i| if i < 40 { 0.025 } else { 0.0 }).collect();
        mass[0] -= 1e-7;
        mass[3999] = 1e-7;
        Lattice { offset: 0.0, first: -20, mass }
    }

    #[test]
    fn both_ways_agree_within_their_bounds_and_the_direct_one_is_narrower() {
        let (count, size) = (5000, 1 << 14);
        let transform = Transform::new(&lattice(), 1e-3, 2.0, size).unwrap();
        let fast = transform.powers(count, None);
        let bounds = |p: &Powers| -> Vec<f64> {
            let own = p.rounding.iter().zip(&p.sources[0].slopes);
            own.map(|(r, s)| r + s * (p.sources[0].point_error + p.sources[0].constant_error))
                .collect()
        };
        let (fast_values, fast_bounds) = (fast.values.clone(), bounds(&fast));
        let sharp = transform.sharpened(fast, count);
        let sharp_bounds = bounds(&sharp);
        for i in 0..fast_values.len() {
            let gap = (fast_values[i] - sharp.values[i]).norm();
            assert!(gap <= fast_bounds[i] + sharp_bounds[i], "{i}: {gap:e}");
        }
        let total = |bounds: &[f64]| bounds.iter().sum::<f64>();
        let (sharp, fast) = (total(&sharp_bounds), total(&fast_bounds));
        assert!(sharp < 0.1 * fast, "{sharp:e} {fast:e}");
    }
}
