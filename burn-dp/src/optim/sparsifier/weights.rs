//! The statistics of one parameter.

/// Statistics of the current window, and the fixed values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weights {
    pub(crate) mean: Vec<f64>,
    /// Sum of squared deviations from the mean.
    pub(crate) squares: Vec<f64>,
    /// Value of each fixed weight.
    pub(crate) fixed: Vec<Option<f32>>,
    /// Sum over the window of the variance that the noise causes in one step.
    pub(crate) noise: f64,
}

impl Weights {
    pub(crate) fn new(count: usize) -> Self {
        let zeros = vec![0.0; count];
        Self { mean: zeros.clone(), squares: zeros, fixed: vec![None; count], noise: 0.0 }
    }

    /// Returns the number of fixed weights.
    pub(crate) fn fixed(&self) -> usize {
        self.fixed.iter().flatten().count()
    }

    /// Adds the values after the `step`-th step of the window (Welford's update).
    pub(crate) fn observe(&mut self, values: &[f32], step: u64, noise_std: f64) {
        self.noise += noise_std * noise_std;
        for ((&value, mean), squares) in values.iter().zip(&mut self.mean).zip(&mut self.squares) {
            let before = f64::from(value) - *mean;
            *mean += before / step as f64;
            *squares += before * (f64::from(value) - *mean);
        }
    }

    /// Fixes the weights that converged in the window, and starts the next one.
    pub(crate) fn end_window(&mut self, window: u64, factor: f64) {
        // The squares of `window` steps compared with the sum of the noise variances of the same
        // number of steps.
        let largest = factor * factor * self.noise * (window - 1) as f64 / window as f64;
        for ((mean, squares), fixed) in
            self.mean.iter_mut().zip(&mut self.squares).zip(&mut self.fixed)
        {
            if fixed.is_none() && *squares <= largest {
                *fixed = Some(*mean as f32);
            }
            (*mean, *squares) = (0.0, 0.0);
        }
        self.noise = 0.0;
    }

    /// Restores the fixed values. Returns whether any value changed.
    pub(crate) fn put(&self, values: &mut [f32]) -> bool {
        let mut changed = false;
        for (value, fixed) in values.iter_mut().zip(&self.fixed) {
            if let Some(fixed) = *fixed {
                changed |= *value != fixed;
                *value = fixed;
            }
        }
        changed
    }
}
