//! The recording that a backward pass fills.
//!
//! Burn runs the backward steps on the thread that calls `backward`, so a recording belongs to one
//! thread and several devices can be driven from several threads at once.

use std::cell::RefCell;
use std::marker::PhantomData;

use burn::tensor::{Shape, Tensor};

use super::contribution::Layer;
use crate::DpError;
use crate::ops::{self, LayerIds, Primitive, Slot};

/// What one call of a primitive left behind, still as primitives of its backend, in the
/// [layout](Primitive::layout) of its rule.
pub(crate) struct RawRecord {
    pub(crate) layer: LayerIds,
    pub(crate) primitive: Primitive,
    /// Shape of the weight, if it requires a gradient.
    pub(crate) weight: Option<Shape>,
    /// Whether the bias requires a gradient.
    pub(crate) bias: bool,
    /// What the forward pass kept; nothing when only the bias is trained.
    pub(crate) kept: Vec<Slot>,
    /// The indices that it kept.
    pub(crate) ids: Option<Slot>,
    pub(crate) output_grad: Slot,
}

thread_local! {
    static RECORDS: RefCell<Option<Vec<RawRecord>>> = const { RefCell::new(None) };
}

/// Whether the current thread records.
pub(crate) fn is_active() -> bool {
    RECORDS.with_borrow(Option::is_some)
}

/// Adds a record; a no-op when nothing records.
pub(crate) fn push(record: RawRecord) {
    RECORDS.with_borrow_mut(|records| {
        if let Some(records) = records {
            records.push(record);
        }
    });
}

/// The scope in which the current thread records. Dropping it ends the recording.
pub(crate) struct Recording {
    // The scope belongs to the thread that opened it.
    _not_send: PhantomData<*const ()>,
}

impl Recording {
    /// Opens the scope.
    ///
    /// # Errors
    ///
    /// Refuses when the thread already records: nested backward passes would mix their examples.
    pub(crate) fn start() -> Result<Self, DpError> {
        RECORDS.with_borrow_mut(|records| match records {
            Some(_) => Err(DpError::NotPerExample {
                reason: "a private backward pass was started inside another one".into(),
            }),
            None => {
                *records = Some(Vec::new());
                Ok(Self { _not_send: PhantomData })
            }
        })
    }

    /// Ends the scope and lifts the records to Burn's tensors; `witness` is a plain tensor of the
    /// backend that recorded.
    pub(crate) fn finish(self, witness: &Tensor<1>) -> Vec<Layer> {
        self.take().into_iter().map(|record| Layer::lift(record, witness)).collect()
    }

    /// Ends the scope and returns the gradients of the outputs alone, as rows: `[batch_size, values]`.
    pub(crate) fn finish_output_grads(self, witness: &Tensor<1>) -> Vec<Tensor<2>> {
        let records = self.take().into_iter();
        records.map(|record| ops::take_rows(witness, record.output_grad)).collect()
    }

    fn take(self) -> Vec<RawRecord> {
        RECORDS.with_borrow_mut(Option::take).unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDS.with_borrow_mut(|records| *records = None);
    }
}
