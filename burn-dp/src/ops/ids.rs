//! Indices of rows, which private data can put outside of the weight.

use burn::backend::DispatchDevice;
use burn::tensor::{Bool, DType, Device, Int, Tensor};

/// Returns indices below `rows`, and where others were replaced; `None` if all of them are known to
/// be below.
///
/// Which row a backend reads for another index differs: some panic, some read a neighbor.
pub(crate) fn bounded(
    ids: Tensor<2, Int>,
    rows: usize,
) -> (Tensor<2, Int>, Option<Tensor<2, Bool>>) {
    if is_host(&ids.device()) && first_outside(&ids, rows).is_none() {
        return (ids, None);
    }
    let last = rows.saturating_sub(1) as i64;
    let outside = ids.clone().lower_elem(0).bool_or(ids.clone().greater_elem(last));
    (ids.clamp(0, last), Some(outside))
}

/// Returns the first index that is negative or not below `rows`.
pub(crate) fn first_outside(ids: &Tensor<2, Int>, rows: usize) -> Option<i64> {
    let data = ids.to_data().convert_dtype(DType::I64);
    let ids = data.as_slice::<i64>().unwrap_or_default();
    ids.iter().copied().find(|&id| usize::try_from(id).map_or(true, |id| id >= rows))
}

/// Whether the values are in the memory of the host: reading them costs no synchronization.
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
