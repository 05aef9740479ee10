//! Fixes weights whose changes are only noise.

mod state;
mod weights;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use burn::module::{Module, ParamId};
use burn::tensor::{DType, Device, Tensor};

use crate::DpError;
use crate::device_read::read_f32;
use crate::error::positive;
use crate::model::{TrainableParameters, for_each_trained, map_parameters};
use weights::Weights;

/// Fixes weights that have converged: over a window of steps, they deviate from their average by no
/// more than the noise explains, so the average is as good as the weights.
///
/// After each window, a weight whose standard deviation in it was at most `factor` times the
/// deviation that the noise causes in one step is set to its average over the window and stays
/// fixed. The deviation in one step is computed as for plain SGD: the learning rate of the
/// parameter times the noise of its clipping group. With momentum or adaptive rates a weight moves
/// differently, and the factor must compensate for it.
///
/// It runs within [`DpOptimizer::step`](crate::optim::DpOptimizer::step), and within the steps of
/// Burn's learner with `PrivateTrainingConfig::with_sparsifier`. The copies of a tied parameter are
/// one parameter. Checkpoints contain the fixed values and the statistics of the current window,
/// and a restored run continues with them. It costs 20 bytes of host memory for each trained
/// weight, and every step reads the weights to the host.
///
/// # Privacy
///
/// Post-processing of noisy models: it costs nothing. Gradients of fixed weights are still clipped
/// and noised with the rest; clipping thresholds for only the active weights, which the paper also
/// suggests, are not implemented.
///
/// # Example
///
/// ```
/// # use burn::optim::SgdConfig;
/// # use burn_dp::{DpError, optim::{PrivacyPlanConfig, Sparsifier}};
/// # fn main() -> Result<(), DpError> {
/// let plan = PrivacyPlanConfig::new(60_000, 600.0)
///     .with_steps(2_000)
///     .with_noise_multiplier(1.0)
///     .init()?;
/// let optim = plan.optimizer(SgdConfig::new().init());
/// let optim = optim.with_sparsifier(Sparsifier::new(100, 2.0)?)?;
/// assert_eq!(optim.sparsifier().map(Sparsifier::fixed), Some(0));
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// Nguyen et al., Batch clipping and adaptive layerwise clipping for differential private
/// stochastic gradient descent, 2023, section 3.4.
#[derive(Clone, Debug, PartialEq)]
pub struct Sparsifier {
    window: u64,
    factor: f64,
    /// Number of steps of the current window.
    steps: u64,
    /// By the path of the parameter; for a tied parameter, by its first path.
    weights: BTreeMap<String, Weights>,
}

impl Sparsifier {
    /// Creates a sparsifier with windows of `window` steps.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `window` is less than 2, or if `factor` is not
    /// positive and finite.
    pub fn new(window: u64, factor: f64) -> Result<Self, DpError> {
        if window < 2 {
            return Err(DpError::invalid("window", format!("must be at least 2, got {window}")));
        }
        positive("factor", factor)?;
        Ok(Self { window, factor, steps: 0, weights: BTreeMap::new() })
    }

    /// Returns the number of fixed weights.
    pub fn fixed(&self) -> usize {
        self.weights.values().map(Weights::fixed).sum()
    }

    /// Returns the model after a step with the fixed weights at their values.
    ///
    /// # Arguments
    ///
    /// - `noise_std`: standard deviation that the noise causes in each weight of a parameter in one
    ///   step
    pub(super) async fn apply<M: Module>(
        &mut self,
        model: M,
        noise_std: impl Fn(ParamId, &str) -> Result<f64, DpError>,
    ) -> Result<M, (M, DpError)> {
        let mut known = match noise_of_parameters(&model, noise_std) {
            Ok(known) => known,
            Err(error) => return Err((model, error)),
        };
        let mut read = match values(&model).await {
            Ok(read) => read,
            Err(error) => return Err((model, error)),
        };
        self.steps += 1;
        let end = self.steps == self.window;
        let model = map_parameters(model, |_, parameter| {
            // Further copies of a parameter are skipped.
            let (path, noise_std) = known.remove(&parameter.id)?;
            let (mut values, device) = read.remove(&parameter.id)?;
            let changed = self.fix(path, noise_std, &mut values, end);
            changed.then(|| Tensor::from_data(values.as_slice(), (&device, DType::F32)))
        });
        if end {
            self.steps = 0;
        }
        Ok(model)
    }

    /// Fixes the converged values of a parameter. Returns whether any value changed.
    fn fix(&mut self, path: String, noise_std: f64, values: &mut [f32], end: bool) -> bool {
        let weights = self.weights.entry(path).or_insert_with(|| Weights::new(values.len()));
        weights.observe(values, self.steps, noise_std);
        if end {
            weights.end_window(self.window, self.factor);
        }
        weights.put(values)
    }
}

impl fmt::Display for Sparsifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "weights that deviate by at most {} times the noise of a step over {} steps are fixed \
             at their average",
            self.factor, self.window
        )
    }
}

/// Returns the values of each trained parameter, and their device.
async fn values<M: Module>(model: &M) -> Result<HashMap<ParamId, (Vec<f32>, Device)>, DpError> {
    let mut tensors = Vec::new();
    for_each_trained(model, |path, parameter| {
        tensors.push((parameter.id, path.to_string(), parameter.value.flat()));
    });
    let mut values = HashMap::new();
    for (id, path, tensor) in tensors {
        let device = tensor.device();
        let read = read_f32(tensor, &format!("the values of `{path}`")).await?;
        values.insert(id, (read, device));
    }
    Ok(values)
}

/// Returns path and noise of each trained parameter.
fn noise_of_parameters<M: Module>(
    model: &M,
    noise_std: impl Fn(ParamId, &str) -> Result<f64, DpError>,
) -> Result<HashMap<ParamId, (String, f64)>, DpError> {
    let parameters = TrainableParameters::of_units(model)?;
    let known = parameters.iter().map(|info| {
        let std = noise_std(info.id, &info.path)?;
        Ok((info.id, (info.path.clone(), std)))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::TensorData;

    use super::*;
    use crate::device_read::wait;
    use crate::optim::PrivacyPlanConfig;
    use crate::sampling::Sampler;
    use crate::updates::UnitUpdate;

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

    fn after(sparsifier: &mut Sparsifier, model: Linear, noise_std: f64) -> Linear {
        let applied = wait(sparsifier.apply(model, |_, _| Ok(noise_std)));
        applied.map_err(|(_, error)| error).unwrap()
    }

    #[test]
    fn converged_weights_are_fixed_at_their_average_and_moving_ones_are_not() {
        let mut sparsifier = Sparsifier::new(4, 1.5).unwrap();
        // The first varies around 1 by the noise, the second moves away, the third is constant.
        let mut seen = Vec::new();
        for step in 0..6u8 {
            let sign = if step % 2 == 0 { 1.0 } else { -1.0 };
            let model = model([1.0 + 0.01 * sign, f32::from(step), 7.0]);
            let after = after(&mut sparsifier, model, 0.01);
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
    fn a_weight_is_fixed_if_its_variance_is_at_most_the_one_of_the_noise() {
        // Five steps, a factor of 1.5 and noise of variance 2 a step: 1.5² · 10 · 4/5 = 18.
        let mut weights = Weights::new(2);
        weights.noise = 10.0;
        weights.squares = vec![17.9, 18.1];
        weights.end_window(5, 1.5);
        assert_eq!(weights.fixed, [Some(0.0), None]);
        // The fixed one is put back, and only that is a change.
        let mut values = [3.0, 4.0];
        assert!(weights.put(&mut values) && !weights.put(&mut values));
        assert_eq!(values, [0.0, 4.0]);
    }

    #[test]
    fn the_noise_of_a_weight_is_the_noise_of_its_gradient_times_the_rate() {
        let plan = PrivacyPlanConfig::new(10, 2.0).with_steps(3).with_noise_multiplier(3.0);
        let optim = plan.init().unwrap().optimizer(SgdConfig::new().init());
        let mut optim = optim.with_sparsifier(Sparsifier::new(5, 1.0).unwrap()).unwrap();
        let mut model = model([1.0, 2.0, 3.0]);
        for step in 0..2 {
            let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
            let zero = |_: Linear, _: usize| Ok(UnitUpdate::zero());
            optim.unit_updates(&model, &draw, zero).unwrap();
            model = optim.step(0.1, model, draw).unwrap();
        }
        // A multiplier of 3 over a batch of 2.
        assert!((optim.gradient_noise_std("weight").unwrap() / 1.5 - 1.0).abs() < 1e-6);
        let noise = optim.sparsifier().unwrap().weights["weight"].noise;
        assert!((noise / (2.0 * 0.15f64.powi(2)) - 1.0).abs() < 1e-6, "{noise}");
    }

    #[test]
    fn without_noise_only_constant_weights_are_fixed() {
        let mut sparsifier = Sparsifier::new(2, 1.0).unwrap();
        for step in 0..2u8 {
            let _ = after(&mut sparsifier, model([0.0, 1e-6 * f32::from(step), 7.0]), 0.0);
        }
        assert_eq!(sparsifier.fixed(), 2);
        assert!(Sparsifier::new(1, 1.0).is_err());
        assert!(Sparsifier::new(5, f64::NAN).is_err());
    }

    #[test]
    fn a_parameter_without_noise_is_refused_and_the_model_is_returned() {
        let mut sparsifier = Sparsifier::new(2, 1.0).unwrap();
        let refused = sparsifier.apply(model([1.0, 2.0, 3.0]), |_, path| {
            Err(DpError::state(format!("no group for {path}")))
        });
        let (model, error) = wait(refused).unwrap_err();
        assert_eq!(values(&model), [1.0, 2.0, 3.0]);
        assert!(error.to_string().contains("no group for weight"), "{error}");
        assert_eq!(sparsifier, Sparsifier::new(2, 1.0).unwrap());
    }
}
