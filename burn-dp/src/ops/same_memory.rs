//! Tensors that share one value in memory.

use burn::tensor::Tensor;

/// Returns whether two tensors are known to share one value in memory, so that they are equal and
/// need not be compared.
///
/// Flex never writes to memory that two tensors share: an in-place operation copies it first. A
/// tensor that was cloned and kept therefore has the values that the clone had, as long as both
/// share memory. With fusion, every value has a number of its own. Other backends return `false`.
pub(crate) fn is_same_memory<const D: usize>(first: &Tensor<D>, second: &Tensor<D>) -> bool {
    #[cfg(any(feature = "flex", feature = "cube"))]
    {
        use burn::backend::{BackendTensor, DispatchTensorKind};

        match [first, second].map(|tensor| tensor.clone().into_dispatch().kind) {
            #[cfg(feature = "flex")]
            [
                DispatchTensorKind::Flex(BackendTensor::Float(first)),
                DispatchTensorKind::Flex(BackendTensor::Float(second)),
            ] => {
                std::sync::Arc::ptr_eq(&first.data_arc(), &second.data_arc())
                    && first.dtype() == second.dtype()
                    && first.layout() == second.layout()
            }
            #[cfg(feature = "cube")]
            [
                DispatchTensorKind::Cube(BackendTensor::Float(first)),
                DispatchTensorKind::Cube(BackendTensor::Float(second)),
            ] => first.id == second.id,
            _ => false,
        }
    }
    #[cfg(not(any(feature = "flex", feature = "cube")))]
    {
        let _ = (first, second);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_devices::devices;

    #[test]
    fn only_a_value_that_is_shared_is_the_same_memory() {
        for device in devices() {
            let value = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
            let is_flex = format!("{:?}", device.as_dispatch()).starts_with("Flex");
            let is_fused = crate::ops::has_kernels(&device);
            assert_eq!(is_same_memory(&value, &value.clone()), is_flex || is_fused);
            let reshaped = value.clone().reshape([2, 2]).reshape([4]);
            assert_eq!(is_same_memory(&value, &reshaped), is_flex);

            let equal = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &device);
            assert!(!is_same_memory(&value, &equal));
            let halves = [value.clone().narrow(0, 0, 2), value.clone().narrow(0, 2, 2)];
            assert!(!is_same_memory(&halves[0], &halves[1]));
            // An operation that could work in place does not change the kept value.
            let kept = value.clone();
            let changed = value.mul_scalar(2.0);
            assert!(!is_same_memory(&kept, &changed));
            assert_eq!(kept.into_data().try_to_vec::<f32>().ok(), Some(vec![1.0, 2.0, 3.0, 4.0]));
        }
    }
}
