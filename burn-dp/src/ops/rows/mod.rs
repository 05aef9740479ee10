//! Softmax and normalization over the last axis: one pass over memory each, with hand-written
//! backward steps that keep only the output.

mod autodiff;
mod by_operations;
mod functions;
mod row_ops;

pub(super) use by_operations::{
    normalize, normalize_input_gradient, softmax, softmax_input_gradient,
};
pub(crate) use functions::{row_normalize, row_softmax};
pub use row_ops::RowOps;
