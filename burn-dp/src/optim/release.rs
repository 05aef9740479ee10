//! From the clipped sum to the gradients that the optimizer of Burn sees.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, DataError, Tensor, TensorData};

use crate::DpError;
use crate::clipping::{ClippedSum, StepNoise, Thresholds};
use crate::grads::FirstCopies;
use crate::noise::{GaussianMechanism, NoiseStep};

/// A release that has been checked and may begin.
pub(super) struct Release {
    /// Group of each trained parameter, in the order in which the model visits them.
    groups: Vec<usize>,
    /// Mechanism of each group.
    mechanisms: Vec<GaussianMechanism>,
    /// Mechanism of the counts, if there are any.
    counts: Option<GaussianMechanism>,
    /// Standard deviations, which the noise is bound to: other noise on the same sum in a step that is
    /// made again must be independent.
    stds: Vec<f64>,
}

impl Release {
    /// The mechanisms that the noise of a step needs.
    ///
    /// # Errors
    ///
    /// Refuses a model with a trained parameter that belongs to no group.
    pub(super) fn new<M: Module>(
        model: &M,
        thresholds: &Thresholds,
        noise: &StepNoise,
        expected_batch_size: f64,
    ) -> Result<Self, DpError> {
        let mechanism = |std: f64| GaussianMechanism::new(std, 1.0 / expected_batch_size);
        Ok(Self {
            groups: thresholds.groups().of_model(model)?,
            mechanisms: noise
                .group_stds
                .iter()
                .map(|&std| mechanism(std))
                .collect::<Result<_, _>>()?,
            counts: noise.count_std.map(mechanism).transpose()?,
            stds: noise.group_stds.iter().copied().chain(noise.count_std).collect(),
        })
    }

    /// Adds noise to the counts: the noisy fraction of units at or below each threshold.
    pub(super) fn counts(
        &self,
        balances: &[f64],
        noise: Option<NoiseStep>,
    ) -> Result<Vec<f64>, DpError> {
        let (Some(mechanism), Some(noise)) = (self.counts, noise) else { return Ok(Vec::new()) };
        let content = [bytemuck::cast_slice(balances), bytemuck::cast_slice(&self.stds)];
        let mut noise = noise.bound_to(content);
        (0u32..)
            .zip(balances)
            .map(|(position, &balance)| {
                Ok(mechanism.release_scalar(noise.stream(position)?, balance)? + 0.5)
            })
            .collect()
    }

    /// Adds noise to every trained parameter of `model`, whether or not the batch contributed to it,
    /// and divides by the expected batch size.
    ///
    /// # Privacy
    ///
    /// The parameters that get noise are those that require gradients, in the order in which the model
    /// visits them, each once however many copies the model holds: a parameter that no example reached
    /// is released as noise, so which parameters moved says nothing. The noise is added in double
    /// precision on the host; the cast to the precision of the parameter is post-processing.
    pub(super) fn gradients<M: Module>(
        &self,
        model: &M,
        sum: ClippedSum,
        noise: NoiseStep,
    ) -> Result<GradientsParams, DpError> {
        let mut read = Read { sum, sums: Vec::new(), first: FirstCopies::default() };
        model.visit(&mut read);
        let mut sums = read.sums;
        // In place: a copy would cost as much as the digest.
        let mut values = Vec::with_capacity(sums.len());
        for sums in &mut sums {
            values.push(sums.as_mut_slice::<f32>().map_err(unreadable)?);
        }
        let content = values.iter().map(|values| &**values);
        let mut noise = noise.bound_to(content.chain([bytemuck::cast_slice(&self.stds)]));
        let parameters = (0u32..).zip(values.into_iter().zip(&self.groups));
        let parameters = parameters.map(|(position, (values, &group))| {
            Ok((self.mechanisms[group], noise.stream(position)?, values))
        });
        GaussianMechanism::release_all(parameters.collect::<Result<_, DpError>>()?)?;
        let mut write = Write {
            released: sums.into_iter(),
            first: FirstCopies::default(),
            grads: GradientsParams::new(),
        };
        model.visit(&mut write);
        Ok(write.grads)
    }
}

/// Brings the sums to the host, zeros where no example contributed.
struct Read {
    sum: ClippedSum,
    sums: Vec<TensorData>,
    first: FirstCopies,
}

impl ModuleVisitor for Read {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.first.is_new(param) {
            self.sums.push(match self.sum.sums.remove(&param.id) {
                Some(sum) => sum.into_data().convert_dtype(DType::F32),
                None => TensorData::zeros::<f32, _>(param.base().shape()),
            });
        }
    }
}

fn unreadable(error: DataError) -> DpError {
    DpError::state(format!("a clipped sum is unreadable: {error:?}"))
}

/// Makes gradients of what was released.
struct Write {
    released: std::vec::IntoIter<TensorData>,
    first: FirstCopies,
    grads: GradientsParams,
}

impl ModuleVisitor for Write {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        if !self.first.is_new(param) {
            return;
        }
        if let Some(values) = self.released.next() {
            let device = tensor.device().inner();
            let (bytes, _, dtype) = values.into_parts();
            let data = TensorData::from_bytes(bytes, tensor.shape(), dtype);
            let grad = Tensor::<D>::from_data(data, (&device, tensor.dtype()));
            self.grads.register(param.id, grad);
        }
    }
}
