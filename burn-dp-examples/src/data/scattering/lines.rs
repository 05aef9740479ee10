//! Fourier transforms and averages of lines, as products with matrices.

use std::f64::consts::PI;

use burn::tensor::{DType, Device, Tensor, TensorData};
use num_complex::Complex;

/// Bandwidth of the finest wavelet, in pixels.
pub(super) const SIGMA: f64 = 0.8;
/// Copies of a wavelet on each side of the image: the transform is periodic.
pub(super) const PERIODS: i32 = 2;

/// What becomes of the values along one axis.
///
/// A complex line of `n` values is a line of `n` real parts followed by `n` imaginary parts.
#[derive(Clone)]
pub(super) struct Lines {
    /// From values to frequencies: `[2 * values, 2 * frequencies]`.
    pub(super) forward: Tensor<2>,
    /// From frequencies to values at resolutions that are lower by 0, 1, 2, … octaves:
    /// `[2 * frequencies, 2 * values]`.
    pub(super) inverse: Vec<Tensor<2>>,
    /// From real values to their averages at the places of the output: `[values, places]`.
    pub(super) average: Tensor<2>,
}

/// One side of the images.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) length: usize,
    /// Pixels before the first one.
    pub(super) margin: usize,
    /// Pixels with the ones before and after.
    pub(super) padded: usize,
    /// Of the averages, in pixels.
    sigma: f64,
}

impl Side {
    pub(super) fn new(length: usize, scales: usize) -> Self {
        let block = 1_usize << scales;
        let padded = (length / block + 2) * block;
        let sigma = SIGMA * 2f64.powi(scales as i32 - 1);
        Self { length, margin: (padded - length) / 2, padded, sigma }
    }

    /// Returns the number of averages without the margins.
    pub(super) fn places(self, scales: usize) -> usize {
        (self.padded >> scales) - 2
    }

    /// Returns what becomes of a line of moduli at a scale.
    pub(super) fn lines(self, scale: usize, scales: usize, device: &Device) -> Lines {
        let count = self.padded >> scale;
        let forward = matrix(count, count, |from, to| wave(-1.0, from * to, count));
        let inverse = |octaves: usize| {
            let share = 1.0 / count as f64;
            let value = |from, to| wave(1.0, (from * to) << octaves, count) * share;
            complex(&matrix(count, count >> octaves, value), device)
        };
        Lines {
            forward: complex(&forward, device),
            inverse: (0..scales - scale).map(inverse).collect(),
            average: real(&self.averages(scale, scales), device),
        }
    }

    /// Returns what becomes of a line of pixels: it is reflected first, the border pixels not
    /// repeated.
    pub(super) fn reflected(self, scales: usize, device: &Device) -> Lines {
        let last = self.length as isize - 1;
        let source = |at: usize| {
            let at = at as isize - self.margin as isize;
            (last - (last - at.abs()).abs()) as usize
        };
        let of_pixels = |matrix: &[Vec<Complex<f64>>]| {
            let mut sums = vec![vec![Complex::default(); matrix[0].len()]; self.length];
            for (at, row) in matrix.iter().enumerate() {
                let sums = sums[source(at)].iter_mut();
                sums.zip(row).for_each(|(sum, value)| *sum += value);
            }
            sums
        };
        let count = self.padded;
        let forward = matrix(count, count, |from, to| wave(-1.0, from * to, count));
        Lines {
            forward: complex(&of_pixels(&forward), device),
            inverse: Vec::new(),
            average: real(&of_pixels(&self.averages(0, scales)), device),
        }
    }

    /// Returns the averages of values at a scale, without the margins.
    fn averages(self, scale: usize, scales: usize) -> Vec<Vec<Complex<f64>>> {
        let count = self.padded >> scale;
        let window = |x: f64| (-x * x / (2.0 * self.sigma * self.sigma)).exp();
        let window = |at: usize| {
            let periods = (-PERIODS..=PERIODS).map(|i| f64::from(i) * self.padded as f64);
            let sum: f64 = periods.map(|period| window(at as f64 + period)).sum();
            sum / ((2.0 * PI).sqrt() * self.sigma)
        };
        let response = |frequency: usize| {
            (0..self.padded).map(|x| wave(-1.0, frequency * x, self.padded) * window(x)).sum()
        };
        let responses: Vec<Complex<f64>> = kept(self.padded, scale).map(response).collect();
        let average = |from: usize, place: usize| {
            let to = (place + 1) << (scales - scale);
            // A multiple of the length more, so that it is not negative.
            let waves = (0..count).map(|k| wave(1.0, k * (to + count - from), count));
            waves.zip(&responses).map(|(wave, response)| wave * response.re).sum::<Complex<f64>>()
                / count as f64
        };
        matrix(count, self.places(scales), average)
    }
}

/// Returns a wave of unit modulus: the exponential of `sign` · 2πi · `turns` / `count`.
pub(super) fn wave(sign: f64, turns: usize, count: usize) -> Complex<f64> {
    Complex::from_polar(1.0, sign * 2.0 * PI * (turns % count) as f64 / count as f64)
}

/// Returns the rows of a matrix.
pub(super) fn matrix(
    rows: usize,
    columns: usize,
    value: impl Fn(usize, usize) -> Complex<f64>,
) -> Vec<Vec<Complex<f64>>> {
    (0..rows).map(|row| (0..columns).map(|column| value(row, column)).collect()).collect()
}

/// Returns a complex matrix for lines whose imaginary parts follow their real parts.
fn complex(matrix: &[Vec<Complex<f64>>], device: &Device) -> Tensor<2> {
    let parts = [|value: &Complex<f64>| *value, |value: &Complex<f64>| value * Complex::I];
    let rows = parts.iter().flat_map(|part| matrix.iter().map(move |row| row.iter().map(part)));
    let values = rows.flat_map(|row| {
        row.clone().map(|value| value.re).chain(row.map(|value| value.im)).collect::<Vec<_>>()
    });
    constant(values.collect(), [2 * matrix.len(), 2 * matrix[0].len()], device)
}

/// Returns the real parts of a matrix.
fn real(matrix: &[Vec<Complex<f64>>], device: &Device) -> Tensor<2> {
    let values = matrix.iter().flatten().map(|value| value.re);
    constant(values.collect(), [matrix.len(), matrix[0].len()], device)
}

/// Returns values in single precision.
pub(super) fn constant<const D: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (device, DType::F32))
}

/// Returns the frequencies of values of which every 2^`scale`-th is taken: the low ones.
pub(super) fn kept(side: usize, scale: usize) -> impl Iterator<Item = usize> + Clone {
    let positive = side >> (scale + 1);
    let negative = side - (side >> scale);
    (0..side >> scale).map(move |at| if at < positive { at } else { negative + at })
}
