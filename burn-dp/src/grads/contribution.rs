//! From the record of a layer to one contribution per parameter.

use burn::module::ParamId;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor};

use super::rules::{ConvBias, ConvWeight, ExampleRule, LinearBias, LinearWeight};
use crate::DpError;
use crate::ops::LayerIds;

/// One use of a layer in the recorded pass.
pub(crate) struct Layer {
    pub(crate) ids: LayerIds,
    pub(crate) weight: bool,
    pub(crate) bias: bool,
    pub(crate) tensors: LayerTensors,
}

/// Input and output gradient of a layer, per kind of layer.
pub(crate) enum LayerTensors {
    Linear {
        input: Option<Tensor<3>>,
        output_grad: Tensor<3>,
    },
    Conv2d {
        weight: [usize; 4],
        options: ConvOptions<2>,
        input: Option<Tensor<4>>,
        output_grad: Tensor<4>,
    },
}

impl Layer {
    /// Number of rows on the batch axis.
    pub(crate) fn batch_size(&self) -> usize {
        match &self.tensors {
            LayerTensors::Linear { output_grad, .. } => output_grad.dims()[0],
            LayerTensors::Conv2d { output_grad, .. } => output_grad.dims()[0],
        }
    }

    /// Refuses a layer whose batch axis is not that of the losses.
    pub(crate) fn check_batch_size(&self, batch_size: usize) -> Result<(), DpError> {
        if self.batch_size() == batch_size {
            return Ok(());
        }
        Err(DpError::NotPerExample {
            reason: "a private layer saw another number of examples on axis 0 than there are \
                     losses; return one loss per example (`[batch_size]`, not their mean) and keep \
                     the examples on axis 0 of every private layer"
                .into(),
        })
    }

    /// Largest magnitude in each row of the output gradient, on the host; NaN where there is one.
    pub(crate) fn row_magnitudes(&self) -> Result<Vec<f32>, DpError> {
        let batch_size = self.batch_size();
        let rows: Tensor<2> = match &self.tensors {
            LayerTensors::Linear { output_grad, .. } => {
                output_grad.clone().reshape([batch_size as isize, -1])
            }
            LayerTensors::Conv2d { output_grad, .. } => {
                output_grad.clone().reshape([batch_size as isize, -1])
            }
        };
        let data = rows.abs().sum_dim(1).into_data().convert_dtype(DType::F32);
        data.try_into_vec::<f32>().map_err(|error| {
            DpError::state(format!("gradients cannot be read from the device: {error:?}"))
        })
    }

    /// Splits the record into the contributions to its trained parameters.
    pub(crate) fn into_contributions(self) -> Vec<(ParamId, ExampleRule)> {
        let mut contributions = Vec::with_capacity(2);
        let bias = self.bias.then_some(self.ids.bias).flatten();
        match self.tensors {
            LayerTensors::Linear { input, output_grad } => {
                if let Some(id) = bias {
                    let rule = LinearBias { output_grad: output_grad.clone() };
                    contributions.push((id, ExampleRule::LinearBias(rule)));
                }
                if let (true, Some(input)) = (self.weight, input) {
                    let rule = LinearWeight { input, output_grad };
                    contributions.push((self.ids.weight, ExampleRule::LinearWeight(rule)));
                }
            }
            LayerTensors::Conv2d { weight, options, input, output_grad } => {
                if let Some(id) = bias {
                    let rule = ConvBias { output_grad: output_grad.clone() };
                    contributions.push((id, ExampleRule::ConvBias(rule)));
                }
                if let (true, Some(input)) = (self.weight, input) {
                    let rule = ConvWeight { input, output_grad, weight, options };
                    contributions.push((self.ids.weight, ExampleRule::ConvWeight(rule)));
                }
            }
        }
        contributions
    }
}
