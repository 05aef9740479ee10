//! Positions of a batch as rows.

use burn::tensor::Tensor;

/// Merges the positions of all examples: `[batch_size · positions, features]`.
pub(super) fn flat(tensor: Tensor<3>) -> Tensor<2> {
    let [batch_size, positions, features] = tensor.dims();
    tensor.reshape([batch_size * positions, features])
}

/// Turns the rows of every unit into positions of one example.
pub(super) fn regrouped(tensor: &Tensor<3>, group_size: usize) -> Tensor<3> {
    let [rows, positions, features] = tensor.dims();
    tensor.clone().reshape([rows / group_size, positions * group_size, features])
}
