//! The gates of recurrent layers: one pass over memory for all gates of one position.

mod activation;
mod by_example;
mod gru;
mod lstm;
mod product;

pub(super) use activation::{gate, gate_backward};
pub(super) use by_example::by_example;
pub(super) use gru::{gru, gru_backward};
pub(super) use lstm::{lstm, lstm_backward};
pub(super) use product::{pack, product};

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::TensorData;

use super::tasks::TASK_VALUES;

/// Number of examples per core. The parts depend only on the batch size, so that results do not
/// depend on the number of cores; with fewer examples, the products with the weights are slower.
pub(super) const EXAMPLES_APART: usize = 64;

/// Returns the number of rows in one task.
fn rows_of_task(row: usize) -> usize {
    TASK_VALUES.div_ceil(row.max(1))
}

/// Creates `[rows, columns]` from its values.
fn matrix(values: Vec<f32>, columns: usize) -> FloatTensor<Flex> {
    let rows = values.len() / columns;
    FloatTensor::<Flex>::from_data(TensorData::new(values, [rows, columns]))
}

/// Returns whether a matrix has as many rows as a state, and this number of columns.
fn fits(matrix: &FloatTensor<Flex>, state: &FloatTensor<Flex>, columns: usize) -> bool {
    let [rows, _] = state.shape().dims();
    matrix.shape().dims() == [rows, columns]
}

/// Returns the columns of a matrix that is not empty.
fn columns(matrix: &FloatTensor<Flex>) -> Option<usize> {
    let [rows, columns] = matrix.shape().dims();
    (rows * columns > 0).then_some(columns)
}
