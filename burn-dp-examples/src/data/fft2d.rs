//! The Fourier transform of images.

use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum};

/// The Fourier transform of images of one size.
#[derive(Clone)]
pub(super) struct Fft2d<T = f32> {
    size: [usize; 2],
    /// The transforms of rows and of columns.
    forward: [Arc<dyn Fft<T>>; 2],
    inverse: [Arc<dyn Fft<T>>; 2],
}

impl<T: FftNum> Fft2d<T> {
    /// Returns the transform of images of `[height, width]`, of the lines that `plan` returns.
    pub(super) fn new(
        size: [usize; 2],
        mut plan: impl FnMut(usize, FftDirection) -> Arc<dyn Fft<T>>,
    ) -> Self {
        let [height, width] = size;
        Self {
            size,
            forward: [width, height].map(|side| plan(side, FftDirection::Forward)),
            inverse: [width, height].map(|side| plan(side, FftDirection::Inverse)),
        }
    }

    pub(super) fn forward(&self, values: &mut [Complex<T>]) {
        self.process(&self.forward, values);
    }

    pub(super) fn inverse(&self, values: &mut [Complex<T>]) {
        self.process(&self.inverse, values);
        if let Some(count) = T::from_usize(values.len()) {
            let scale = T::one() / count;
            values.iter_mut().for_each(|value| *value = *value * scale);
        }
    }

    fn process(&self, [of_rows, of_columns]: &[Arc<dyn Fft<T>>; 2], values: &mut [Complex<T>]) {
        let [height, width] = self.size;
        of_rows.process(values);
        let mut columns = vec![Complex::new(T::zero(), T::zero()); values.len()];
        for (y, row) in values.chunks_exact(width).enumerate() {
            for (x, value) in row.iter().enumerate() {
                columns[x * height + y] = *value;
            }
        }
        of_columns.process(&mut columns);
        for (y, row) in values.chunks_exact_mut(width).enumerate() {
            for (x, value) in row.iter_mut().enumerate() {
                *value = columns[x * height + y];
            }
        }
    }
}
