//! Tensors that share one value in memory.

use burn::tensor::Tensor;

/// Returns whether two tensors are known to share one value in memory, so that they are equal and
/// need not be compared.
///
/// Flex never writes to memory that two tensors share: an in-place operation copies it first. A
/// tensor that was cloned and kept therefore has the values that the clone had, as long as both
/// share memory. Other backends return `false`.
pub(crate) fn is_same_memory<const D: usize>(first: &Tensor<D>, second: &Tensor<D>) -> bool {
    #[cfg(feature = "flex")]
    {
        use std::sync::Arc;

        use burn::backend::{BackendTensor, DispatchTensorKind::Flex};

        let kinds = [first, second].map(|tensor| tensor.clone().into_dispatch().kind);
        if let [Flex(BackendTensor::Float(first)), Flex(BackendTensor::Float(second))] = kinds {
            return Arc::ptr_eq(&first.data_arc(), &second.data_arc())
                && first.dtype() == second.dtype()
                && first.layout() == second.layout();
        }
    }
    let _ = (first, second);
    false
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
            assert_eq!(is_same_memory(&value, &value.clone()), is_flex);
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
