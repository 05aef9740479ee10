//! The spectrum of a composition times the spectra of the two weights of δ.

use rustfft::num_complex::Complex64;

use super::powers::Powers;
use super::rotation::{BLOCK, Rotation};

/// One frequency: the spectrum times the spectra of `e^{-θu}` and of `e^{-(θ+1)u}`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frequency {
    pub(super) index: usize,
    pub(super) above: Complex64,
    pub(super) above_shifted: Complex64,
}

/// Multiplies the spectrum by the spectra of the two weights, and returns a bound on the rounding
/// of the scaled δ with them.
pub(super) fn weigh(
    product: &Powers,
    width: f64,
    theta: f64,
    size: usize,
) -> (Vec<Frequency>, f64) {
    let length = size as f64;
    let (fall, fall_shifted) = ((-theta * width).exp(), (-(theta + 1.0) * width).exp());
    let (rise, rise_shifted) = (-(-theta * width).exp_m1(), -(-(theta + 1.0) * width).exp_m1());
    let half = width.exp_m1();
    // Half the angle, for 1 - cos φ = 2 sin² (φ/2).
    let rotation = Rotation::new(1, 2 * size);
    let mut error = 0.0;
    let mut squares = vec![0.0; product.sources.len()];
    let mut sums = vec![0.0; product.sources.len()];
    let mut frequencies = Vec::with_capacity(product.indices.len());
    let mut base = (usize::MAX, Complex64::default());
    for (i, &k) in product.indices.iter().enumerate() {
        let block = k / BLOCK;
        if block != base.0 {
            base = (block, rotation.base(block));
        }
        let turn = base.1 * rotation.table[k % BLOCK];
        let (sin, cos) = (2.0 * turn.re * turn.im, 1.0 - 2.0 * turn.im * turn.im);
        let versed = 2.0 * turn.im * turn.im;
        // ρ/(1 - ρ) for ρ = e^{-θh + iφ}.
        let series = |fall: f64, rise: f64| {
            let rho = Complex64::new(fall * cos, fall * sin);
            rho / Complex64::new(rise + fall * versed, -fall * sin)
        };
        let (weight, shifted) = (series(fall, rise), series(fall_shifted, rise_shifted));
        // Each frequency except the ends stands for two.
        let multiplicity = if k == 0 || 2 * k == size { 1.0 } else { 2.0 };
        let scale = multiplicity / length;
        let value = product.values[i] * scale;
        // The largest modulus at any point of a cell.
        let largest = (weight - shifted).norm() + half * shifted.norm();
        let both = weight.norm() + shifted.norm();
        error += scale * largest * product.rounding[i];
        error += 32.0 * f64::EPSILON * value.norm() * both;
        for (part, source) in product.sources.iter().enumerate() {
            squares[part] += multiplicity * (source.slopes[i] * largest).powi(2);
            sums[part] += scale * source.slopes[i] * largest;
        }
        frequencies.push(Frequency {
            index: k,
            above: value * weight,
            above_shifted: value * shifted,
        });
    }
    for (part, source) in product.sources.iter().enumerate() {
        let together = source.norm_error * (squares[part] / length).sqrt();
        error += together.min(source.point_error * sums[part]) + source.constant_error * sums[part];
    }
    // The omitted frequencies, at the largest weight.
    error += product.cut / rise;
    // Rounding of the additions within a block.
    let magnitude: f64 = frequencies.iter().map(|f| f.above.norm() + f.above_shifted.norm()).sum();
    (frequencies, error + f64::EPSILON * (BLOCK + 4) as f64 * magnitude)
}
