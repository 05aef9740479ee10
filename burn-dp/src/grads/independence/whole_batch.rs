//! The rows that the gradient of one loss reaches.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::device_read::read_f32;
use crate::grads::rows::check_batch_size;
use crate::model::TrainableParameters;
use crate::ops::recording::{RawRecord, Recorder, Recording};
use crate::{DpError, ops};

/// Tests on one batch that the gradient of one loss does not reach the rows of other examples in
/// any private layer.
///
/// # Errors
///
/// Returns [`DpError::NotPerExample`] if an example reaches another one, and the errors of
/// [`PrivateBackward::run`](crate::grads::PrivateBackward::run) if it would reject the pass.
pub(super) async fn check_reach<M: Module>(losses: Tensor<1>, model: &M) -> Result<(), DpError> {
    let parameters = TrainableParameters::of(model)?;
    let [batch_size] = losses.dims();
    if !losses.is_tracked() {
        return Err(DpError::NotPerExample {
            reason: "the losses do not depend on any trained parameter".into(),
        });
    }
    let probe = batch_size / 2;
    let recording = Recording::start(OutputGrads::new(losses.clone().inner()))?;
    let grads = losses.narrow(0, probe, 1).sum().backward();
    let recorder = recording.finish();
    parameters.refuse_ordinary_gradients(model, &grads)?;

    for output_grad in recorder?.rows {
        check_batch_size(output_grad.dims()[0], batch_size)?;
        let reached = row_magnitudes(output_grad).await?;
        if let Some(other) = (0..batch_size).find(|&row| row != probe && reached[row] != 0.0) {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "loss {probe} depends on example {other}; remove what mixes the examples of a \
                     batch (batch statistics, a normalizer over the batch, contrastive terms)"
                ),
            });
        }
    }
    Ok(())
}

/// Keeps only the gradients of the outputs.
pub(in crate::grads) struct OutputGrads {
    /// A plain tensor of the backend that records.
    witness: Tensor<1>,
    /// `[batch_size, values]` for every use of a layer.
    pub(in crate::grads) rows: Vec<Tensor<2>>,
}

impl OutputGrads {
    pub(in crate::grads) fn new(witness: Tensor<1>) -> Self {
        Self { witness, rows: Vec::new() }
    }
}

impl Recorder for OutputGrads {
    fn record(&mut self, record: RawRecord) -> Result<(), DpError> {
        let (_, rows) = ops::take_rows(&self.witness, record.output_grad);
        self.rows.push(rows);
        Ok(())
    }
}

/// Returns the sum of the magnitudes in each row, on the host; NaN if the row has a NaN.
async fn row_magnitudes(rows: Tensor<2>) -> Result<Vec<f32>, DpError> {
    read_f32(ops::row_sums(rows.abs()), "the magnitudes of the gradients").await
}
