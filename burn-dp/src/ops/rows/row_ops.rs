use burn::backend::{Backend, backend_extension, tensor::FloatTensor};

use super::by_operations;

/// Softmax and normalization of a backend, over the last axis.
///
/// An implementation detail that is public because Burn's dispatch needs it to be.
#[doc(hidden)]
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Autodiff,
    Fusion: cfg(feature = "fusion"),
    Remote: cfg(feature = "remote"),
)]
pub trait RowOps: Backend {
    /// Returns the softmax over the last axis.
    #[fusion(default)]
    fn row_softmax(input: FloatTensor<Self>) -> FloatTensor<Self> {
        by_operations::softmax::<Self>(input)
    }

    /// Returns the gradient of the input of [`row_softmax`](Self::row_softmax) from its output and
    /// the gradient of its output.
    #[fusion(default)]
    fn row_softmax_input_gradient(
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        by_operations::softmax_input_gradient::<Self>(output, grad)
    }

    /// Returns values with zero mean and unit variance over the last axis, and their scale factors:
    /// `1 / √(variance + epsilon)`, whose last axis has length one. The second output has no
    /// gradient.
    #[fusion(default)]
    fn row_normalize(
        input: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        by_operations::normalize::<Self>(input, epsilon)
    }

    /// Returns the gradient of the input of [`row_normalize`](Self::row_normalize) from its outputs
    /// and the gradient of the first one.
    #[fusion(default)]
    fn row_normalize_input_gradient(
        output: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        by_operations::normalize_input_gradient::<Self>(output, scale, grad)
    }
}
