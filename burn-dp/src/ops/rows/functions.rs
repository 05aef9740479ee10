use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::RowOps;

/// Returns the softmax over the last axis.
pub(crate) fn row_softmax<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::row_softmax(input.into_dispatch()))
}

/// Returns values with zero mean and unit variance over the last axis.
pub(crate) fn row_normalize<const D: usize>(input: Tensor<D>, epsilon: f64) -> Tensor<D> {
    let (output, _) = Dispatch::row_normalize(input.into_dispatch(), epsilon);
    Tensor::from_dispatch(output)
}
