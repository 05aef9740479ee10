//! The recording that a backward pass fills.
//!
//! Burn runs the backward steps on the thread that calls `backward`, so a recording belongs to one
//! thread and several devices can be driven from several threads at once.

use std::cell::RefCell;
use std::marker::PhantomData;

use burn::tensor::{DType, Tensor};

use super::contribution::{Layer, LayerTensors};
use super::row_scale::RowScale;
use crate::DpError;
use crate::ops::{self, LayerIds, LayerRule, Slot};

/// What one call of a primitive left behind, still as a primitive of its backend.
pub(crate) struct RawRecord {
    pub(crate) layer: LayerIds,
    pub(crate) rule: LayerRule,
    /// Whether the weight requires a gradient.
    pub(crate) weight: bool,
    /// Whether the bias requires a gradient.
    pub(crate) bias: bool,
    /// The layer's input; absent when only the bias is trained.
    pub(crate) input: Option<Slot>,
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
        self.finish_scaled(witness, &mut RowScale::none())
    }

    /// The same with the rows of the output gradients multiplied by the factors of `scale`, which
    /// learns their magnitudes.
    pub(super) fn finish_scaled(self, witness: &Tensor<1>, scale: &mut RowScale) -> Vec<Layer> {
        let records = RECORDS.with_borrow_mut(Option::take).unwrap_or_default();
        records.into_iter().map(|record| record.lift(witness, scale)).collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDS.with_borrow_mut(|records| *records = None);
    }
}

/// Norms and sums are in single precision, whatever the precision of the model.
fn single<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.dtype() == DType::F32 { tensor } else { tensor.cast(DType::F32) }
}

impl RawRecord {
    fn lift(self, witness: &Tensor<1>, scale: &mut RowScale) -> Layer {
        let tensors = match self.rule {
            LayerRule::Linear => LayerTensors::Linear {
                input: self.input.map(|slot| single(ops::take::<3>(witness, slot))),
                output_grad: scale.apply(single(ops::take::<3>(witness, self.output_grad))),
            },
            LayerRule::Conv2d { weight, options } => LayerTensors::Conv2d {
                weight,
                options,
                input: self.input.map(|slot| single(ops::take::<4>(witness, slot))),
                output_grad: scale.apply(single(ops::take::<4>(witness, self.output_grad))),
            },
        };
        Layer { ids: self.layer, weight: self.weight, bias: self.bias, tensors }
    }
}
