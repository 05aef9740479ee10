//! From the clipped sum to the gradients that the optimizer of Burn sees.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, TensorData};

use crate::DpError;
use crate::clipping::ClippedSum;
use crate::noise::{GaussianMechanism, NoiseStep};

/// Adds noise to every trained parameter of `model`, whether or not the batch contributed to it, and
/// divides by the expected batch size.
///
/// # Privacy
///
/// The parameters that get noise are those that require gradients, in the order in which the model
/// visits them: a parameter that no example reached is released as noise, so which parameters moved
/// says nothing. The noise is added in double precision on the host; the cast to the precision of the
/// parameter is post-processing.
pub(super) fn release<M: Module>(
    model: &M,
    sum: ClippedSum,
    mechanism: GaussianMechanism,
    noise: NoiseStep,
) -> Result<GradientsParams, DpError> {
    let mut release =
        Release { sum, mechanism, noise, position: 0, grads: GradientsParams::new(), error: None };
    model.visit(&mut release);
    match release.error {
        Some(error) => Err(error),
        None => Ok(release.grads),
    }
}

struct Release {
    sum: ClippedSum,
    mechanism: GaussianMechanism,
    noise: NoiseStep,
    position: u32,
    grads: GradientsParams,
    error: Option<DpError>,
}

impl Release {
    fn noisy_values<const D: usize>(
        &mut self,
        param: &Tensor<D>,
        sum: Option<Tensor<1>>,
    ) -> Result<Vec<f32>, DpError> {
        let stream = self.noise.stream(self.position)?;
        self.position += 1;
        let mut values =
            match sum {
                Some(sum) => sum.into_data().convert_dtype(DType::F32).into_vec::<f32>().map_err(
                    |error| DpError::state(format!("a clipped sum is unreadable: {error:?}")),
                )?,
                None => vec![0.0; param.shape().num_elements()],
            };
        self.mechanism.release(stream, &mut values)?;
        Ok(values)
    }
}

impl ModuleVisitor for Release {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        if !tensor.is_require_grad() || self.error.is_some() {
            return;
        }
        let sum = self.sum.sums.remove(&param.id);
        match self.noisy_values(&tensor, sum) {
            Ok(values) => {
                let device = tensor.device().inner();
                let data = TensorData::new(values, tensor.shape());
                let grad = Tensor::<D>::from_data(data, (&device, tensor.dtype()));
                self.grads.register(param.id, grad);
            }
            Err(error) => self.error = Some(error),
        }
    }
}
