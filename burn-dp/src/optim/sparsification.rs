//! Weights that do nothing but follow the noise.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor, TensorData};

use super::DpOptimizer;
use crate::DpError;
use crate::clipping::positive;

/// Fixes weights that have converged: over a window of steps they hover around an average with no
/// more deviation than the noise makes, so their average is as good as they are.
///
/// After each window, a weight whose standard deviation in it was at most `factor` times the deviation
/// that the noise gives it in one step is set to its average of the window, and stays there.
///
/// # Privacy
///
/// Post-processing of noisy models: it costs nothing. Gradients of fixed weights are still clipped and
/// noised with the rest.
///
/// # Example
///
/// ```no_run
/// # use burn_dp::{DpError, optim::{DpOptimizer, Sparsifier}};
/// # use burn::module::Module;
/// # fn train<M: Module>(mut model: M, optim: &DpOptimizer, lr: f64) -> Result<(), DpError> {
/// let mut sparsifier = Sparsifier::new(100, 2.0)?;
/// # loop {
/// // after each `optim.step(lr, ..)` with plain SGD
/// model = sparsifier.apply(model, optim, lr)?;
/// # }
/// # }
/// ```
///
/// # References
///
/// Nguyen et al., Batch clipping and adaptive layerwise clipping for differential private stochastic
/// gradient descent, 2023, section 3.4.
#[derive(Clone, Debug)]
pub struct Sparsifier {
    window: u64,
    factor: f64,
    steps: u64,
    weights: BTreeMap<String, Weights>,
}

/// What is known of the values of one parameter.
#[derive(Clone, Debug)]
struct Weights {
    mean: Vec<f64>,
    /// Sum of squared deviations from the mean.
    squares: Vec<f64>,
    /// Value of each fixed weight.
    fixed: Vec<Option<f32>>,
    /// Sum over the window of the variance that the noise gives in one step.
    noise: f64,
}

impl Sparsifier {
    /// Looks at `window` steps at a time.
    ///
    /// # Errors
    ///
    /// Refuses a window of less than two steps, and a factor that is not positive and finite.
    pub fn new(window: u64, factor: f64) -> Result<Self, DpError> {
        if window < 2 {
            return Err(DpError::invalid("window", format!("must be at least 2, got {window}")));
        }
        positive("factor", factor)?;
        Ok(Self { window, factor, steps: 0, weights: BTreeMap::new() })
    }

    /// Takes the model after a step with plain SGD at learning rate `lr`, and gives it back with the
    /// fixed weights at their values.
    ///
    /// # Errors
    ///
    /// When no step was made yet, and for a parameter that belongs to no clipping group.
    pub fn apply<M: Module>(
        &mut self,
        model: M,
        optim: &DpOptimizer,
        lr: f64,
    ) -> Result<M, DpError> {
        self.apply_with(model, |path| Ok(lr * optim.gradient_noise_std(path)?))
    }

    /// The same with the standard deviation that the noise gives a weight in one step.
    fn apply_with<M: Module>(
        &mut self,
        model: M,
        noise_std: impl Fn(&str) -> Result<f64, DpError>,
    ) -> Result<M, DpError> {
        self.steps += 1;
        let end = self.steps == self.window;
        let mut apply = Apply { sparsifier: self, noise_std, end, path: Vec::new(), error: None };
        let model = model.map(&mut apply);
        let error = apply.error;
        if end {
            self.steps = 0;
        }
        error.map_or(Ok(model), Err)
    }

    /// Number of weights that are fixed.
    pub fn fixed(&self) -> usize {
        self.weights.values().map(|weights| weights.fixed.iter().flatten().count()).sum()
    }
}

impl Weights {
    fn new(count: usize) -> Self {
        let zeros = vec![0.0; count];
        Self { mean: zeros.clone(), squares: zeros, fixed: vec![None; count], noise: 0.0 }
    }

    /// Adds the values after the `step`-th step of the window (Welford's update).
    fn observe(&mut self, values: &[f32], step: u64, noise_std: f64) {
        self.noise += noise_std * noise_std;
        for ((&value, mean), squares) in values.iter().zip(&mut self.mean).zip(&mut self.squares) {
            let before = f64::from(value) - *mean;
            *mean += before / step as f64;
            *squares += before * (f64::from(value) - *mean);
        }
    }

    /// Fixes what hovered in the window, and begins the next one.
    fn end_window(&mut self, window: u64, factor: f64) {
        // The squares of `window` steps against the sum of the noise variances of as many.
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
}

struct Apply<'a, F> {
    sparsifier: &'a mut Sparsifier,
    noise_std: F,
    end: bool,
    path: Vec<String>,
    error: Option<DpError>,
}

impl<F: Fn(&str) -> Result<f64, DpError>> Apply<'_, F> {
    /// The values with the fixed ones in place; nothing if they stay as they are.
    fn values(&mut self, values: &mut [f32]) -> Result<bool, DpError> {
        let path = self.path.join(".");
        let noise_std = (self.noise_std)(&path)?;
        let Sparsifier { window, factor, steps, weights } = &mut *self.sparsifier;
        let weights = weights.entry(path).or_insert_with(|| Weights::new(values.len()));
        weights.observe(values, *steps, noise_std);
        if self.end {
            weights.end_window(*window, *factor);
        }
        let mut changed = false;
        for (value, fixed) in values.iter_mut().zip(&weights.fixed) {
            if let Some(fixed) = *fixed {
                changed |= *value != fixed;
                *value = fixed;
            }
        }
        Ok(changed)
    }
}

impl<F: Fn(&str) -> Result<f64, DpError>> ModuleMapper for Apply<'_, F> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let tensor = param.base();
        if self.error.is_some() || !tensor.is_require_grad() {
            return param;
        }
        let (shape, device, dtype) = (tensor.shape(), tensor.device(), tensor.dtype());
        let data = tensor.into_data().convert_dtype(DType::F32).try_into_vec::<f32>();
        let Ok(mut values) = data else {
            self.error = Some(DpError::state("a parameter cannot be read from the device"));
            return param;
        };
        match self.values(&mut values) {
            Ok(false) => param,
            Ok(true) => param.map(|_| {
                let data = TensorData::new(values, shape);
                Tensor::from_data(data, (&device, dtype)).require_grad()
            }),
            Err(error) => {
                self.error = Some(error);
                param
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    fn model(values: [f32; 3]) -> Linear {
        let device = Device::flex().autodiff();
        let mut layer = LinearConfig::new(3, 1).with_bias(false).init(&device);
        let data = TensorData::new(values.to_vec(), [3, 1]);
        layer.weight = layer.weight.map(|_| Tensor::from_data(data, &device).require_grad());
        layer
    }

    fn values(model: &Linear) -> Vec<f32> {
        model.weight.val().into_data().try_into_vec().unwrap()
    }

    #[test]
    fn weights_that_hover_are_fixed_at_their_average_and_those_that_move_are_not() {
        let mut sparsifier = Sparsifier::new(4, 1.5).unwrap();
        // The first hovers around 1 by the noise, the second walks away, the third never moves.
        let mut seen = Vec::new();
        for step in 0..6u8 {
            let sign = if step % 2 == 0 { 1.0 } else { -1.0 };
            let model = model([1.0 + 0.01 * sign, f32::from(step), 7.0]);
            let after = sparsifier.apply_with(model, |_| Ok(0.01)).unwrap();
            assert!(after.weight.is_require_grad());
            seen.push(values(&after));
        }
        assert_eq!(seen[2], [1.01, 2.0, 7.0]);
        for (step, seen) in seen.iter().enumerate().skip(3) {
            assert!((seen[0] - 1.0).abs() < 1e-6, "{seen:?}");
            assert_eq!(seen[1..], [step as f32, 7.0]);
        }
        assert_eq!(sparsifier.fixed(), 2);
    }

    #[test]
    fn without_noise_to_compare_with_only_what_stands_still_is_fixed() {
        let mut sparsifier = Sparsifier::new(2, 1.0).unwrap();
        for step in 0..2u8 {
            let model = model([0.0, 1e-6 * f32::from(step), 7.0]);
            let _ = sparsifier.apply_with(model, |_| Ok(0.0)).unwrap();
        }
        assert_eq!(sparsifier.fixed(), 2);
        assert!(Sparsifier::new(1, 1.0).is_err());
        assert!(Sparsifier::new(5, f64::NAN).is_err());
        let refused = sparsifier.apply_with(model([0.0; 3]), |path| {
            Err(DpError::state(format!("no group for {path}")))
        });
        assert!(refused.unwrap_err().to_string().contains("no group for weight"));
    }
}
