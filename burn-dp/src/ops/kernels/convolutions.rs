//! The gradients of the weight of a small convolution for each example.

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

use super::kernel_ops::KernelOps;
use super::layout::gradients_shape;
use crate::ops::{Patches, has_kernels};

/// Returns the gradients of the weight of a small convolution for each example, by a kernel of the
/// device that adds all pixels without patches, if it has one and the matrix of a group is so small
/// that a product of matrices would be mostly padding.
///
/// # Shapes
///
/// - image, pixels: `[batch_size, channels, …]`, on a device without autodiff
/// - output: `[batch_size, groups, rows, columns]`
pub(in crate::ops) fn small_convolution_gradients<const D: usize>(
    image: &Tensor<D>,
    pixels: &Tensor<D>,
    patches: &Patches,
) -> Option<Tensor<4>> {
    /// Number of values of the gradient in a group.
    const MAX_VALUES: usize = 1 << 10;
    /// Number of values in a row of the kernel, which are in registers.
    const MAX_WIDTH: usize = 8;
    let shape = gradients_shape(&image.shape(), &pixels.shape(), patches);
    let values = [image.shape(), pixels.shape()].map(|shape| shape.num_elements());
    let fits = image.dtype() == DType::F32
        && pixels.dtype() == DType::F32
        && shape[2] * shape[3] <= MAX_VALUES
        && patches.kernel_size[2] <= MAX_WIDTH
        // Places are counted in 32 bits.
        && values.into_iter().chain([shape.num_elements()]).all(|values| values < 1 << 31)
        && shape.num_elements() > 0;
    if !has_kernels(&image.device()) || !fits {
        return None;
    }
    let five_axes = |tensor: &Tensor<D>| {
        let mut shape = [1; 5];
        shape[..2].copy_from_slice(&tensor.dims()[..2]);
        shape[5 - (D - 2)..].copy_from_slice(&tensor.dims()[2..]);
        tensor.clone().reshape::<5, _>(shape).into_dispatch()
    };
    let (image, pixels) = (five_axes(image), five_axes(pixels));
    let gradients = Dispatch::native_small_convolution_gradients(image, pixels, patches.clone());
    Some(Tensor::from_dispatch(gradients))
}
