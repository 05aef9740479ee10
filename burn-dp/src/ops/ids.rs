//! Row indices, which private data can place outside the weight.

use burn::backend::DispatchDevice;
use burn::tensor::{Bool, DType, Device, Int, Tensor};

use crate::DpError;
use crate::device_read::{blocking, read};

/// Returns indices below `rows`, and the positions where others were replaced; `None` if all of
/// them are known to be below.
///
/// Backends differ in what they do for another index: some panic, some read a neighboring row.
pub(crate) fn bounded(
    ids: Tensor<2, Int>,
    rows: usize,
) -> (Tensor<2, Int>, Option<Tensor<2, Bool>>) {
    if is_host(&ids.device()) && matches!(first_outside(&ids, rows), Ok(None)) {
        return (ids, None);
    }
    let last = rows.saturating_sub(1) as i64;
    let outside = ids.clone().lower_elem(0).bool_or(ids.clone().greater_elem(last));
    (ids.clamp(0, last), Some(outside))
}

/// Returns the first index that is negative or not below `rows`; none on a GPU in a browser,
/// because a pass cannot wait for it.
///
/// # Errors
///
/// Returns [`DpError::Device`] if the indices cannot be read.
pub(crate) fn first_outside(ids: &Tensor<2, Int>, rows: usize) -> Result<Option<i64>, DpError> {
    if cfg!(target_family = "wasm") && !is_host(&ids.device()) {
        return Ok(None);
    }
    let data = blocking(read(ids.clone(), "indices"), "DpOptimizer::backward_async")?;
    let data = data.convert_dtype(DType::I64);
    let ids = data.as_slice::<i64>().unwrap_or_default();
    Ok(ids.iter().copied().find(|&id| usize::try_from(id).map_or(true, |id| id >= rows)))
}

/// Returns the indices in the type that the device counts with. In eight or sixteen bits, the index
/// of an example's row among the rows of all examples would wrap around to a row of another
/// example.
pub(crate) fn widened(ids: Tensor<2, Int>) -> Tensor<2, Int> {
    let counting = Tensor::<1, Int>::zeros([1], &ids.device()).dtype();
    ids.cast(counting)
}

/// Returns whether the values are in host memory, so that reading them needs no synchronization.
fn is_host(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        #[cfg(feature = "flex")]
        DispatchDevice::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchDevice::NdArray(_) => true,
        #[allow(unreachable_patterns)] // with a CPU backend alone
        _ => false,
    }
}
