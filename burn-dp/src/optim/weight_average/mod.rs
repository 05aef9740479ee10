//! Averaged weights, for evaluation.

mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use burn::module::{Module, ParamId};
use burn::tensor::{DType, FloatDType, Tensor};

use crate::DpError;
use crate::model::{for_each_trained, map_parameters};

/// An exponential moving average of the weights over the steps of a training.
///
/// The noise of a private step moves the weights back and forth; their average moves less, and is
/// usually the better model. It is for evaluation; the training continues from the weights
/// themselves.
///
/// After each step, `average ← decay · average + (1 − decay) · weights`, starting with the weights
/// after the first step. Early on, while the weights still move fast, the decay is smaller:
/// `min(decay, (1 + n) / (10 + n))` for the n-th step after the first, or the decay of the [bias
/// correction](Self::with_bias_correction).
///
/// Only trainable parameters are averaged, the copies of a tied parameter once, in single precision
/// if the weights have half precision. Frozen parameters, integers and buffers of the model do not
/// change.
///
/// Pass it to [`DpOptimizer::with_weight_average`](crate::optim::DpOptimizer::with_weight_average)
/// or, with Burn's `SupervisedTraining`, to `PrivateTrainingConfig::with_weight_average`; then it
/// is updated after every step and saved in the checkpoints. It also averages any other Burn model,
/// private or not: [`update`](Self::update), [`averaged`](Self::averaged).
///
/// # Privacy
///
/// Post-processing of noisy models: it costs nothing.
///
/// # Example
///
/// ```
/// # use burn::{nn::LinearConfig, module::Module, tensor::Device};
/// # use burn_dp::{DpError, optim::WeightAverage};
/// # fn main() -> Result<(), DpError> {
/// # let device = Device::flex().autodiff();
/// # let model = LinearConfig::new(3, 1).init(&device);
/// let mut average = WeightAverage::new(0.9999)?;
/// // After each step:
/// average.update(&model)?;
/// // To evaluate:
/// let averaged = average.averaged(model.clone())?.valid();
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// De, Berrada, Hayes, Smith, Balle, Unlocking high-accuracy differentially private image
/// classification through scale, 2022 (parameter averaging).
#[derive(Clone, Debug)]
pub struct WeightAverage {
    decay: f64,
    bias_correction: bool,
    /// By the path of the parameter; for a tied parameter, by its first path.
    averages: BTreeMap<String, Average>,
}

/// The average of one parameter.
#[derive(Clone, Debug)]
struct Average {
    /// Number of averaged steps.
    steps: u64,
    /// Flat, without autodiff; in double precision if the weights have it, otherwise in single
    /// precision.
    values: Tensor<1>,
}

impl WeightAverage {
    /// Creates an average with this decay per step, for example 0.9999. About `1 / (1 − decay)`
    /// steps contribute to it.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `decay` is outside [0, 1).
    pub fn new(decay: f64) -> Result<Self, DpError> {
        if !(0.0..1.0).contains(&decay) {
            return Err(DpError::invalid(
                "decay",
                format!("must be at least 0 and less than 1, got {decay}"),
            ));
        }
        Ok(Self { decay, bias_correction: false, averages: BTreeMap::new() })
    }

    /// Weights all steps only by their age from the first one on, instead of a warm-up: after `n`
    /// steps the average is `Σᵢ decay^(n−i) · weightsᵢ` over the sum of these coefficients. While
    /// `n` is small against `1 / (1 − decay)`, this is close to the mean of all steps.
    pub fn with_bias_correction(self) -> Self {
        Self { bias_correction: true, ..self }
    }

    /// Returns the decay.
    pub fn decay(&self) -> f64 {
        self.decay
    }

    /// Returns the number of averaged steps: the maximum over all parameters.
    pub fn steps(&self) -> u64 {
        self.averages.values().map(|average| average.steps).max().unwrap_or(0)
    }

    /// Returns the share of the weights in the average after a step that follows `steps` others.
    fn share(&self, steps: u64) -> f64 {
        let steps = steps as f64;
        match self.bias_correction {
            // (1 - d) / (1 - d^(n + 1)), which is 1 / (n + 1) as d tends to 1.
            true => (1.0 - self.decay) / -(self.decay.ln() * (steps + 1.0)).exp_m1(),
            false => 1.0 - self.decay.min((1.0 + steps) / (10.0 + steps)),
        }
    }

    /// Adds the weights after a step.
    ///
    /// The average of a parameter that is no longer trained is dropped; the average of a parameter
    /// that is trained from now on starts here.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::OtherModel`] if the size of a parameter changed.
    pub fn update<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        let weights = weights(model);
        let wrong = weights.iter().find(|(path, weights)| {
            let average = self.averages.get(*path);
            average.is_some_and(|average| average.values.dims() != weights.dims())
        });
        if let Some((path, weights)) = wrong {
            return Err(self.other_size(path, weights.dims()[0]));
        }
        let mut before = std::mem::take(&mut self.averages);
        for (path, weights) in weights {
            let average = match before.remove(&path) {
                Some(Average { steps, values }) => {
                    let values = values.to_device(&weights.device());
                    let change = (weights - values.clone()).mul_scalar(self.share(steps));
                    Average { steps: steps + 1, values: values + change }
                }
                None => Average { steps: 1, values: weights },
            };
            self.averages.insert(path, average);
        }
        Ok(())
    }

    /// Returns the model with the averaged weights, the same in every copy of a tied parameter.
    /// Before the first step this is the model itself.
    ///
    /// Call it on the model in training mode, and [`valid`](Module::valid) afterwards.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::OtherModel`] if an averaged parameter is missing or has another
    /// size.
    pub fn averaged<M: Module>(&self, model: M) -> Result<M, DpError> {
        let mut missing: BTreeSet<&String> = self.averages.keys().collect();
        // Paths of the averages by the identity of the parameter: copies get the same values.
        let mut paths: HashMap<ParamId, String> = HashMap::new();
        let mut error = None;
        let model = map_parameters(model, |path, parameter| {
            if missing.remove(&path.to_string()) {
                paths.insert(parameter.id, path.to_string());
            }
            let path = paths.get(&parameter.id)?;
            let average = self.averages.get(path)?;
            let count = parameter.value.shape().num_elements();
            if count != average.values.dims()[0] {
                error = Some(self.other_size(path, count));
                return None;
            }
            Some(average.values.clone())
        });
        match (error, missing.first()) {
            (Some(error), _) => Err(error),
            (None, Some(path)) => Err(DpError::OtherModel {
                path: (*path).clone(),
                reason: "it was averaged, but the model does not have it; give the model that was \
                         trained"
                    .into(),
            }),
            (None, None) => Ok(model),
        }
    }

    fn other_size(&self, path: &str, found: usize) -> DpError {
        let expected = self.averages.get(path).map_or(0, |average| average.values.dims()[0]);
        DpError::OtherModel {
            path: path.to_string(),
            reason: format!(
                "it has {found} values and was averaged with {expected}; give the model that was \
                 trained"
            ),
        }
    }
}

impl fmt::Display for WeightAverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = if self.bias_correction { "bias correction" } else { "warm-up" };
        write!(f, "exponential moving average of the weights, decay {}, {start}", self.decay)
    }
}

/// Returns the trained weights by path, at least in single precision.
fn weights<M: Module>(model: &M) -> BTreeMap<String, Tensor<1>> {
    let mut weights = BTreeMap::new();
    for_each_trained(model, |path, parameter| {
        let values = parameter.value.flat();
        let values = match values.dtype() {
            DType::F32 | DType::F64 => values,
            _ => values.cast(FloatDType::F32),
        };
        weights.insert(path.to_string(), values);
    });
    weights
}
