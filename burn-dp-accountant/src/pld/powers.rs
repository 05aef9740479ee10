//! Powers of the spectrum of a tilted lattice, at the frequencies that are not negligible.

use rustfft::num_complex::Complex64;

use super::fourier::{FFT_ERROR, GridError, plan_forward};
use super::rotation::BLOCK;
use crate::lattice::{Lattice, ln_moment};
use crate::math::sum::CompensatedSum;

/// Logarithm of the share of the composition below which a frequency is omitted.
pub(super) const LN_NEGLIGIBLE: f64 = -80.0;

/// The transform `z - 1` of one tilted lattice: without its largest mass, rotated so that this mass
/// has index 0, minus the value at frequency 0.
pub(super) struct Transform {
    pub(super) normalizer: f64,
    pub(super) origin: i64,
    pub(super) differences: Vec<Complex64>,
    pub(super) size: usize,
    /// The tilted masses, and the index of the largest mass.
    pub(super) tilted: Vec<f64>,
    pub(super) top: usize,
    /// Bounds of the rounding: in the 2-norm, scaled to the masses; at each frequency (the twiddle
    /// factors have modulus 1, so that the error of a level is relative to the sum of the masses);
    /// and of the value at frequency 0, which is subtracted from all others.
    pub(super) norm_error: f64,
    pub(super) point_error: f64,
    pub(super) constant_error: f64,
}

impl Transform {
    /// Tilts, rotates and transforms the lattice.
    pub(super) fn new(
        lattice: &Lattice,
        width: f64,
        theta: f64,
        size: usize,
    ) -> Result<Self, GridError> {
        let normalizer = ln_moment(lattice, width, theta);
        if !normalizer.is_finite() {
            return Err(GridError::Overflow);
        }
        let loss = |i: usize| lattice.offset + (lattice.first + i as i64) as f64 * width;
        let tilted: Vec<f64> = lattice
            .mass
            .iter()
            .enumerate()
            .map(|(i, m)| if *m > 0.0 { m * (theta * loss(i) - normalizer).exp() } else { 0.0 })
            .collect();
        let top = (0..tilted.len()).fold(0, |t, i| if tilted[i] > tilted[t] { i } else { t });
        let forward = plan_forward(size);
        let mut input = forward.make_input_vec();
        let mut index = (-(top as i64)).rem_euclid(size as i64) as usize;
        let mut sum = CompensatedSum::default();
        for (i, &mass) in tilted.iter().enumerate() {
            if i != top {
                input[index] += mass;
                sum.add(mass);
            }
            index += 1;
            if index == size {
                index = 0;
            }
        }
        let sum = sum.value();
        // The deviation of the total from 1 by the rounding of the moment.
        let excess = (tilted[top] - 1.0) + sum;
        let norm = input.iter().map(|m| m * m).sum::<f64>().sqrt();
        let mut differences = forward.make_output_vec();
        forward.process(&mut input, &mut differences).map_err(|_| GridError::Overflow)?;
        for value in &mut differences {
            value.re -= sum;
        }
        if let Some(first) = differences.first_mut() {
            *first = Complex64::default();
        }
        let levels = (size as f64).log2() + 3.0;
        Ok(Self {
            normalizer: normalizer + excess.ln_1p(),
            origin: lattice.first + top as i64,
            differences,
            size,
            tilted,
            top,
            norm_error: FFT_ERROR * levels * norm,
            point_error: FFT_ERROR * levels * sum,
            constant_error: 4.0 * f64::EPSILON * sum,
        })
    }

    /// Returns `z^n` at the frequencies that are not negligible, among the frequencies of `before`.
    pub(super) fn powers(&self, count: u64, before: Option<&Powers>) -> Powers {
        let n = count as f64;
        let negligible = (2.0 * LN_NEGLIGIBLE / n).exp();
        let matters = |k: &usize| {
            let d = self.differences[*k];
            n <= 2.0 || (d + 1.0).norm_sqr() >= negligible
        };
        let indices: Vec<usize> = match before {
            Some(before) => before.indices.iter().copied().filter(matters).collect(),
            None => (0..self.differences.len()).filter(matters).collect(),
        };
        let mut values = vec![Complex64::default(); indices.len()];
        let mut slopes = vec![0.0; indices.len()];
        for ((chunk, values), slopes) in
            indices.chunks(BLOCK).zip(values.chunks_mut(BLOCK)).zip(slopes.chunks_mut(BLOCK))
        {
            let (mut re, mut im) = ([0.0f64; BLOCK], [0.0f64; BLOCK]);
            for (j, &k) in chunk.iter().enumerate() {
                (re[j], im[j]) = (self.differences[k].re, self.differences[k].im);
            }
            let (power_re, power_im) = power_minus_one(re, im, count);
            for (j, value) in values.iter_mut().enumerate() {
                *value = Complex64::new(1.0 + power_re[j], power_im[j]);
                let square = (1.0 + re[j]) * (1.0 + re[j]) + im[j] * im[j];
                // n |z|^{n-1}
                slopes[j] = n * if square > 0.0 {
                    (value.norm_sqr() / square).sqrt()
                } else {
                    f64::from(u8::from(count == 1))
                };
            }
        }
        // Rounding of the power: each of the b squarings adds 16 u |d_k|, which each later squaring
        // doubles (all moduli are at most 1), and |d_k| <= min(2, 2^k |d|).
        let levels = 2.0 * (64 - count.leading_zeros()) as f64;
        let rounding = indices
            .iter()
            .map(|&k| 8.0 * f64::EPSILON * levels * (n * self.differences[k].norm() + 1.0))
            .collect();
        let cut = if indices.len() < self.differences.len() { LN_NEGLIGIBLE.exp() } else { 0.0 };
        Powers {
            indices,
            values,
            rounding,
            sources: vec![RoundingEffect {
                slopes,
                norm_error: self.norm_error,
                point_error: self.point_error,
                constant_error: self.constant_error,
            }],
            cut: cut + before.map_or(0.0, |b| b.cut),
            size: self.size,
        }
    }
}

/// Returns `(1 + d)^n - 1` by binary powering, without adding the 1: `(1+a)(1+b) - 1 = a + b + ab`.
fn power_minus_one(
    mut re: [f64; BLOCK],
    mut im: [f64; BLOCK],
    count: u64,
) -> ([f64; BLOCK], [f64; BLOCK]) {
    let (mut out_re, mut out_im) = ([0.0f64; BLOCK], [0.0f64; BLOCK]);
    let mut n = count;
    loop {
        if n & 1 == 1 {
            for j in 0..BLOCK {
                let (a, b, c, d) = (out_re[j], out_im[j], re[j], im[j]);
                out_re[j] = a + c + (a * c - b * d);
                out_im[j] = b + d + (a * d + b * c);
            }
        }
        n >>= 1;
        if n == 0 {
            return (out_re, out_im);
        }
        for j in 0..BLOCK {
            let (a, b) = (re[j], im[j]);
            re[j] = 2.0 * a + (a * a - b * b);
            im[j] = 2.0 * b + 2.0 * (a * b);
        }
    }
}

/// A spectrum at the frequencies that are not negligible, with the bounds of its rounding.
pub(super) struct Powers {
    pub(super) indices: Vec<usize>,
    pub(super) values: Vec<Complex64>,
    /// Rounding of the powers.
    pub(super) rounding: Vec<f64>,
    pub(super) sources: Vec<RoundingEffect>,
    /// Bound of each omitted frequency.
    pub(super) cut: f64,
    pub(super) size: usize,
}

/// The effect of the rounding of one part's transform on a spectrum: derivatives, and the bounds of
/// [`Transform`].
#[derive(Clone)]
pub(super) struct RoundingEffect {
    pub(super) slopes: Vec<f64>,
    pub(super) norm_error: f64,
    pub(super) point_error: f64,
    pub(super) constant_error: f64,
}

impl Powers {
    /// Returns the product with a part at a subset of these frequencies.
    pub(super) fn times(mut self, other: &Self) -> Self {
        let kept: Vec<usize> =
            other.indices.iter().filter_map(|k| self.indices.binary_search(k).ok()).collect();
        let pick = |values: &[f64]| kept.iter().map(|&i| values[i]).collect::<Vec<f64>>();
        let values = kept.iter().zip(&other.values).map(|(&i, v)| self.values[i] * v).collect();
        let rounding =
            kept.iter().zip(&other.rounding).map(|(&i, r)| self.rounding[i] + r).collect();
        // The other factor is at most 1.
        let mut sources: Vec<_> = self
            .sources
            .drain(..)
            .map(|s| RoundingEffect { slopes: pick(&s.slopes), ..s })
            .collect();
        sources.extend(other.sources.iter().cloned());
        Self {
            indices: other.indices.clone(),
            values,
            rounding,
            sources,
            cut: other.cut,
            size: self.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powering_agrees_with_the_exponential() {
        let (mut re, mut im) = ([0.0; BLOCK], [0.0; BLOCK]);
        for j in 0..BLOCK {
            (re[j], im[j]) = (-1e-6 * j as f64, 1e-4 * (j as f64 - 30.0));
        }
        let n = 12_345;
        let (power_re, power_im) = power_minus_one(re, im, n);
        for j in 0..BLOCK {
            let logarithm = crate::math::complex::ln_1p(Complex64::new(re[j], im[j]));
            let truth = (logarithm * n as f64).exp();
            let got = Complex64::new(1.0 + power_re[j], power_im[j]);
            assert!((got - truth).norm() < 1e-12, "{j}: {got} {truth}");
        }
    }
}
