//! Native kernels of Flex: one pass over memory, on all cores.
//!
//! One file per kernel, a plain function that can be used and tested alone. It returns `None` for
//! tensors that it does not handle; the caller falls back to Burn's operations, which are also the
//! oracle of its tests.

mod indexed_norms;
mod patches;
mod row_norms;
mod tasks;

use burn::backend::{
    Flex,
    tensor::{FloatTensor, IntTensor},
};

use crate::ops::{ParametricOps, Patches, RecurrentOps};

impl ParametricOps for Flex {
    fn native_patches(input: FloatTensor<Self>, patches: Patches) -> Option<FloatTensor<Self>> {
        patches::patches(input, &patches)
    }

    fn native_row_squared_norms(rows: FloatTensor<Self>) -> Option<FloatTensor<Self>> {
        row_norms::row_squared_norms(rows)
    }

    fn native_indexed_squared_norms(
        ids: IntTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        indexed_norms::indexed_squared_norms(ids, rows)
    }
}

impl RecurrentOps for Flex {}

/// A tensor of arbitrary values.
#[cfg(test)]
fn ramp<const D: usize>(shape: [usize; D]) -> burn::tensor::Tensor<D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin()).collect();
    let data = burn::tensor::TensorData::new(values, shape);
    burn::tensor::Tensor::from_data(data, &burn::tensor::Device::flex())
}
