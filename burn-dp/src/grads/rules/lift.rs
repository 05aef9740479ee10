use burn::module::ParamId;
use burn::tensor::Tensor;

use super::Contribution;
use super::record::Record;
use super::{conv, embedding, linear, parameter, scale};
use crate::DpError;
use crate::ops::Primitive;
use crate::ops::recording::RawRecord;

/// One use of a layer in the recorded pass.
pub(in crate::grads) struct Layer {
    /// Length of the batch axis.
    pub(in crate::grads) batch_size: usize,
    /// The contributions to the trained parameters.
    pub(in crate::grads) contributions: Vec<(ParamId, Contribution)>,
}

/// Lifts a record to Burn's tensors, on the backend of `witness`, and to the contributions of its
/// rule.
///
/// # Errors
///
/// Returns an error if the layer received an index that is not a row of its weight.
pub(in crate::grads) fn lift(record: RawRecord, witness: &Tensor<1>) -> Result<Layer, DpError> {
    let (primitive, mut record) = Record::new(record, witness);
    match primitive {
        Primitive::Linear => linear::lift(&mut record),
        Primitive::TransposedLinear => linear::lift_transposed(&mut record),
        Primitive::Embedding => embedding::lift(&mut record)?,
        Primitive::Scale { negative, .. } => scale::lift(&mut record, negative),
        Primitive::Repeat => parameter::lift(&mut record),
        Primitive::Unkeyed => drop(record.output_grad::<2>()),
        Primitive::Convolution { convolution, .. } => conv::lift(&mut record, convolution),
        Primitive::StandardizedConvolution { convolution, epsilon } => {
            conv::standardized::lift(&mut record, convolution, epsilon);
        }
        Primitive::DeformConv2d(options) => conv::deformable::lift(&mut record, options),
    }
    Ok(Layer { batch_size: record.batch_size, contributions: record.contributions })
}
