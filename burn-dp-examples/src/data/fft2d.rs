//! The Fourier transform of images.

use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

/// The Fourier transform of images of one size.
#[derive(Clone)]
pub(super) struct Fft2d<T = f32> {
    size: [usize; 2],
    /// Of rows and of columns.
    forward: [Arc<dyn Fft<T>>; 2],
    inverse: [Arc<dyn Fft<T>>; 2],
}

impl<T: rustfft::FftNum> Fft2d<T> {
    pub(super) fn new(size: [usize; 2], planner: &mut FftPlanner<T>) -> Self {
        let [height, width] = size;
        Self {
            size,
            forward: [width, height].map(|side| planner.plan_fft_forward(side)),
            inverse: [width, height].map(|side| planner.plan_fft_inverse(side)),
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
