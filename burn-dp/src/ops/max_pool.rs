//! Max pooling by Burn's operations.

use burn::backend::{Backend, tensor::FloatTensor};
use burn::tensor::IntDType;

/// The windows of max pooling: height and width of each.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// On both sides.
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

/// See [`LayerOps::window_maxima`](super::LayerOps::window_maxima).
pub(super) fn maxima<B: Backend>(input: FloatTensor<B>, windows: Windows) -> FloatTensor<B> {
    let Windows { kernel, stride, padding, dilation } = windows;
    B::max_pool2d(input, kernel, stride, padding, dilation, false)
}

/// See [`LayerOps::window_maxima_input_gradient`](super::LayerOps::window_maxima_input_gradient).
pub(super) fn input_gradient<B: Backend>(
    input: FloatTensor<B>,
    grad: FloatTensor<B>,
    windows: Windows,
) -> FloatTensor<B> {
    let Windows { kernel, stride, padding, dilation } = windows;
    let dtype = IntDType::I64;
    let (x, ceil) = (input.clone(), false);
    let indices =
        B::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil, dtype).indices;
    B::max_pool2d_with_indices_backward(
        input, kernel, stride, padding, dilation, ceil, grad, indices,
    )
    .x_grad
}
