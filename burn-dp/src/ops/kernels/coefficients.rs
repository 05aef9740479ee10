//! Clipping coefficients from the norms of parameters.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::kernel_ops::KernelOps;
use super::layout::{ClippingWords, DeviceClipping};

/// Returns the squared norms of the clipping groups, `[groups, units]`, and the coefficients,
/// `[1, units]` or one row for each group, on a device that `has_kernels` names. The norms of units
/// that are left out are infinite, and their coefficients are zero.
///
/// - table: squared norms and magnitudes of the parameters, `[any, units]`
pub(crate) fn coefficients(table: Tensor<2>, clipping: &DeviceClipping) -> [Tensor<2>; 2] {
    let (table, clipping) = (table.into_dispatch(), ClippingWords::from(clipping));
    let (norms, coefficients) = Dispatch::native_coefficients(table, clipping);
    [Tensor::from_dispatch(norms), Tensor::from_dispatch(coefficients)]
}
