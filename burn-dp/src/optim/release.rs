//! From the clipped sum to the gradients that the optimizer of Burn sees.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, TensorData};

use crate::DpError;
use crate::clipping::ClippedSum;
use crate::grads::FirstCopies;
use crate::noise::{GaussianMechanism, NoiseStep};

/// Adds noise to every trained parameter of `model`, whether or not the batch contributed to it, and
/// divides by the expected batch size.
///
/// # Privacy
///
/// The parameters that get noise are those that require gradients, in the order in which the model
/// visits them, each once however many copies of it the model holds: a parameter that no example reached is released as noise, so which parameters moved
/// says nothing. The noise is added in double precision on the host; the cast to the precision of the
/// parameter is post-processing.
pub(super) fn release<M: Module>(
    model: &M,
    sum: ClippedSum,
    mechanism: GaussianMechanism,
    noise: NoiseStep,
) -> Result<GradientsParams, DpError> {
    let mut read = Read { sum, sums: Vec::new(), first: FirstCopies::default(), error: None };
    model.visit(&mut read);
    if let Some(error) = read.error {
        return Err(error);
    }
    let mut sums = read.sums;
    let mut noise = noise.bound_to(sums.iter().map(Vec::as_slice));
    for (position, sums) in (0u32..).zip(&mut sums) {
        mechanism.release(noise.stream(position)?, sums)?;
    }
    let mut write = Write {
        released: sums.into_iter(),
        first: FirstCopies::default(),
        grads: GradientsParams::new(),
    };
    model.visit(&mut write);
    Ok(write.grads)
}

/// Brings the sums to the host, zeros where no example contributed.
struct Read {
    sum: ClippedSum,
    sums: Vec<Vec<f32>>,
    first: FirstCopies,
    error: Option<DpError>,
}

impl ModuleVisitor for Read {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        if self.error.is_some() || !self.first.is_new(param) {
            return;
        }
        let values = match self.sum.sums.remove(&param.id) {
            Some(sum) => sum.into_data().convert_dtype(DType::F32).try_into_vec::<f32>(),
            None => Ok(vec![0.0; tensor.shape().num_elements()]),
        };
        match values {
            Ok(values) => self.sums.push(values),
            Err(error) => {
                self.error =
                    Some(DpError::state(format!("a clipped sum is unreadable: {error:?}")));
            }
        }
    }
}

/// Makes gradients of what was released.
struct Write {
    released: std::vec::IntoIter<Vec<f32>>,
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
            let data = TensorData::new(values, tensor.shape());
            let grad = Tensor::<D>::from_data(data, (&device, tensor.dtype()));
            self.grads.register(param.id, grad);
        }
    }
}
