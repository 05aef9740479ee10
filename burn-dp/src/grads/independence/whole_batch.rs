//! A test of the assumption that loss i depends on example i alone.

use burn::module::Module;
use burn::tensor::{DType, Tensor};

use crate::grads::contribution::check_batch_size;
use crate::model::TrainableParameters;
use crate::ops::recording::{RawRecord, Recorder, Recording};
use crate::{DpError, ops};

/// Tests on one batch whether the losses are independent: the gradient of one loss must not reach the
/// rows of other examples in any private layer.
///
/// It costs one backward pass. Run it once, on a batch of two or more examples, before training.
///
/// # Shapes
///
/// - losses: `[batch_size]`, at least 2
///
/// # Privacy
///
/// What mixes examples between private layers or in the loss is found: batch statistics, attention
/// over the batch axis, contrastive terms, a normaliser of the batch. What mixes them before the first
/// private layer is not, nor what does so on other batches only.
///
/// # Errors
///
/// [`DpError::NotPerExample`] if an example reaches another one; as
/// [`PrivateBackward::run`](super::PrivateBackward::run) otherwise.
pub fn check_independence<M: Module>(losses: Tensor<1>, model: &M) -> Result<(), DpError> {
    let parameters = TrainableParameters::of(model)?;
    let [batch_size] = losses.dims();
    if batch_size < 2 {
        return Err(DpError::NotPerExample {
            reason: format!(
                "one value per example is asked for, of at least two examples, got {batch_size}; \
                 do not take the mean"
            ),
        });
    }
    if !losses.is_tracked() {
        return Err(DpError::NotPerExample {
            reason: "they do not depend on any trained parameter".into(),
        });
    }
    let probe = batch_size / 2;
    let recording = Recording::start(OutputGrads::new(losses.clone().inner()))?;
    let grads = losses.narrow(0, probe, 1).sum().backward();
    let output_grads = recording.finish().rows;
    parameters.refuse_ordinary_gradients(model, &grads)?;

    for output_grad in output_grads {
        check_batch_size(output_grad.dims()[0], batch_size)?;
        let reached = row_magnitudes(output_grad)?;
        if let Some(other) = (0..batch_size).find(|&row| row != probe && reached[row] != 0.0) {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "loss {probe} depends on example {other}; take out what mixes the examples of \
                     a batch (batch statistics, a normaliser over the batch, contrastive terms)"
                ),
            });
        }
    }
    Ok(())
}

/// Keeps the gradients of the outputs alone.
pub(crate) struct OutputGrads {
    /// A plain tensor of the backend that records.
    witness: Tensor<1>,
    /// `[batch_size, values]` for every use of a layer.
    pub(crate) rows: Vec<Tensor<2>>,
}

impl OutputGrads {
    pub(crate) fn new(witness: Tensor<1>) -> Self {
        Self { witness, rows: Vec::new() }
    }
}

impl Recorder for OutputGrads {
    fn record(&mut self, record: RawRecord) {
        self.rows.push(ops::take_rows(&self.witness, record.output_grad));
    }
}

/// Sum of the magnitudes in each row, on the host; NaN where there is one.
fn row_magnitudes(rows: Tensor<2>) -> Result<Vec<f32>, DpError> {
    let data = rows.abs().sum_dim(1).into_data().convert_dtype(DType::F32);
    data.try_into_vec::<f32>().map_err(|error| {
        DpError::state(format!("gradients cannot be read from the device: {error:?}"))
    })
}
