//! The recording that a backward pass fills.
//!
//! Burn runs the backward steps on the thread that calls `backward`, so a recording belongs to one
//! thread and several devices can be driven from several threads at once.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use burn::tensor::Shape;

use crate::DpError;
use crate::ops::{LayerIds, Primitive, Slot};

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

/// What takes the records, each as soon as its layer's backward step is made: what it does not keep is
/// freed while the pass goes on.
pub(crate) trait Recorder {
    fn record(&mut self, record: RawRecord);
}

thread_local! {
    static RECORDER: RefCell<Option<Rc<RefCell<dyn Recorder>>>> = const { RefCell::new(None) };
}

/// Whether the current thread records.
pub(crate) fn is_active() -> bool {
    RECORDER.with_borrow(Option::is_some)
}

/// Hands over a record; a no-op when nothing records.
pub(crate) fn push(record: RawRecord) {
    let recorder = RECORDER.with_borrow(Clone::clone);
    if let Some(recorder) = recorder {
        recorder.borrow_mut().record(record);
    }
}

/// The scope in which the current thread records. Dropping it ends the recording.
pub(crate) struct Recording<R> {
    recorder: Rc<RefCell<R>>,
    scope: Scope,
}

/// Ends the recording of its thread when dropped.
struct Scope {
    // The scope belongs to the thread that opened it.
    _not_send: PhantomData<*const ()>,
}

impl<R: Recorder + 'static> Recording<R> {
    /// Opens the scope.
    ///
    /// # Errors
    ///
    /// Refuses when the thread already records: nested backward passes would mix their examples.
    pub(crate) fn start(recorder: R) -> Result<Self, DpError> {
        RECORDER.with_borrow_mut(|active| match active {
            Some(_) => Err(DpError::NotPerExample {
                reason: "a private backward pass was started inside another one".into(),
            }),
            None => {
                let recorder = Rc::new(RefCell::new(recorder));
                *active = Some(recorder.clone());
                Ok(Self { recorder, scope: Scope { _not_send: PhantomData } })
            }
        })
    }

    /// Ends the scope and gives the recorder back.
    pub(crate) fn finish(self) -> R {
        drop(self.scope);
        match Rc::try_unwrap(self.recorder) {
            Ok(recorder) => recorder.into_inner(),
            Err(_) => unreachable!("the scope held the only other reference"),
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        RECORDER.set(None);
    }
}
