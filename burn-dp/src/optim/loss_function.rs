//! The identity of a function of losses.

use std::any::TypeId;
use std::panic::Location;

use burn::tensor::FloatDType;

/// A function of losses, as far as it can be told from others, and what it is computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossFunction {
    type_id: TypeId,
    /// Where it is given to the library: functions behind pointers can have one type.
    caller: &'static Location<'static>,
    /// The [source](crate::sampling::LogicalBatch::source) of the batches.
    source: usize,
    /// Number of rows of a unit.
    rows: usize,
    precision: Option<FloatDType>,
}

impl LossFunction {
    /// Returns the function whose type is `F`.
    #[track_caller]
    pub(crate) fn of<F>() -> Self {
        let (type_id, caller) = (typeid::of::<F>(), Location::caller());
        Self { type_id, caller, source: 0, rows: 1, precision: None }
    }

    /// Returns the function on batches of this source, with this number of rows of a unit and in
    /// this precision.
    pub(crate) fn on(self, source: usize, rows: usize, precision: Option<FloatDType>) -> Self {
        Self { source, rows, precision, ..self }
    }
}
