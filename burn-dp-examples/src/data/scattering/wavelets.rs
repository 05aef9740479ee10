//! Morlet wavelets.

use std::f64::consts::PI;

use num_complex::Complex;

use super::lines::{PERIODS, kept, matrix, wave};

/// Returns a Morlet wavelet `[height, width]` in frequencies: a wave in a Gaussian window, with
/// mean zero. It is symmetric up to conjugation, so its transform is real.
pub(super) fn morlet(
    [height, width]: [usize; 2],
    sigma: f64,
    angle: f64,
    frequency: f64,
    slant: f64,
) -> Vec<f64> {
    let mut wave_packet = gabor([height, width], sigma, angle, frequency, slant);
    let window = gabor([height, width], sigma, angle, 0.0, slant);
    let ratio = wave_packet.iter().sum::<Complex<f64>>() / window.iter().sum::<Complex<f64>>();
    wave_packet.iter_mut().zip(&window).for_each(|(wave, window)| *wave -= ratio * window);
    // Of rows, then of columns.
    let waves = |side| matrix(side, side, |from, to| wave(-1.0, from * to, side));
    let (of_rows, of_columns) = (waves(width), waves(height));
    let rows = wave_packet.chunks_exact(width).map(|row| {
        let frequency =
            |k: usize| row.iter().zip(&of_rows[k]).map(|(value, wave)| value * wave).sum();
        (0..width).map(frequency).collect()
    });
    let rows: Vec<Vec<Complex<f64>>> = rows.collect();
    let value = |row: usize, column: usize| {
        rows.iter().zip(&of_columns[row]).map(|(row, wave)| (row[column] * wave).re).sum()
    };
    (0..height * width).map(|at| value(at / width, at % width)).collect()
}

/// Returns a Gaussian window times a wave, repeated with the period of the image.
fn gabor(
    size: [usize; 2],
    sigma: f64,
    angle: f64,
    frequency: f64,
    slant: f64,
) -> Vec<Complex<f64>> {
    let (sin, cos) = angle.sin_cos();
    let window = |x: f64, y: f64| {
        let (along, across) = (x * cos + y * sin, y * cos - x * sin);
        let squared = along * along + slant * slant * across * across;
        Complex::from_polar((-squared / (2.0 * sigma * sigma)).exp(), frequency * along)
    };
    let value = |row: usize, column: usize| {
        let periods = (-PERIODS..=PERIODS).flat_map(|i| (-PERIODS..=PERIODS).map(move |j| (i, j)));
        let sum: Complex<f64> = periods
            .map(|(i, j)| {
                let at = |at: usize, period: i32, side| at as f64 + f64::from(period) * side as f64;
                window(at(row, i, size[0]), at(column, j, size[1]))
            })
            .sum();
        sum * slant / (2.0 * PI * sigma * sigma)
    };
    (0..size[0]).flat_map(|row| (0..size[1]).map(move |column| value(row, column))).collect()
}

/// Returns a filter `[height, width]` for values at a scale, as `[width, 2 * height]`.
pub(super) fn cropped(filter: &[f64], [height, width]: [usize; 2], scale: usize) -> Vec<f64> {
    let columns = kept(width, scale).flat_map(|column| {
        let values = kept(height, scale).map(move |row| filter[row * width + column]);
        values.clone().chain(values)
    });
    columns.collect()
}
