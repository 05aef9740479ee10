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

/// The record of one call of a primitive: tensors of its backend, in the layout that the
/// [primitive](Primitive) defines.
pub(crate) struct RawRecord {
    pub(crate) layer: LayerIds,
    pub(crate) primitive: Primitive,
    /// Shape of the weight, if it requires a gradient.
    pub(crate) weight: Option<Shape>,
    /// Whether the bias requires a gradient.
    pub(crate) bias: bool,
    /// The tensors that the forward pass kept; none if only the bias is trained.
    pub(crate) kept: Vec<Slot>,
    /// The indices that the forward pass kept.
    pub(crate) ids: Option<Slot>,
    pub(crate) output_grad: Slot,
}

/// Receives the records of a backward pass, each as soon as the backward step of its layer has run.
/// Tensors that a recorder does not keep are freed during the pass.
pub(crate) trait Recorder {
    /// Takes a record.
    ///
    /// # Errors
    ///
    /// Returns why the pass cannot be used. The recorder then receives no further records.
    fn record(&mut self, record: RawRecord) -> Result<(), DpError>;
}

/// A recorder and its first error.
struct Guarded<R: ?Sized> {
    refused: Option<DpError>,
    recorder: R,
}

/// The recorder of a thread.
type Active = Rc<RefCell<Guarded<dyn Recorder>>>;

thread_local! {
    static RECORDER: RefCell<Option<Active>> = const { RefCell::new(None) };
}

/// Returns whether the current thread records.
pub(crate) fn is_active() -> bool {
    RECORDER.with_borrow(Option::is_some)
}

/// Passes on a record; does nothing if the thread does not record.
pub(crate) fn push(record: RawRecord) {
    let Some(active) = RECORDER.with_borrow(Clone::clone) else {
        return;
    };
    let mut active = active.borrow_mut();
    if active.refused.is_none() {
        active.refused = active.recorder.record(record).err();
    }
}

/// The scope in which the current thread records. Dropping it ends the recording.
pub(crate) struct Recording<R> {
    recorder: Rc<RefCell<Guarded<R>>>,
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
    /// Returns [`DpError::InvalidState`] if the thread already records: nested backward passes
    /// would mix their examples.
    pub(crate) fn start(recorder: R) -> Result<Self, DpError> {
        RECORDER.with_borrow_mut(|active| match active {
            Some(_) => Err(DpError::state(
                "a private backward pass was started inside another one; end the outer one first",
            )),
            None => {
                let recorder = Rc::new(RefCell::new(Guarded { refused: None, recorder }));
                *active = Some(recorder.clone());
                Ok(Self { recorder, scope: Scope { _not_send: PhantomData } })
            }
        })
    }

    /// Ends the scope and returns the recorder.
    ///
    /// # Errors
    ///
    /// Returns the first error of the recorder.
    pub(crate) fn finish(self) -> Result<R, DpError> {
        drop(self.scope);
        let Ok(guarded) = Rc::try_unwrap(self.recorder) else {
            unreachable!("the scope held the only other reference");
        };
        let Guarded { refused, recorder } = guarded.into_inner();
        refused.map_or(Ok(recorder), Err)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        RECORDER.set(None);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::module::ParamId;

    use super::*;

    /// Accepts a number of records and rejects the next one.
    struct Accepts(usize);

    impl Recorder for Accepts {
        fn record(&mut self, _: RawRecord) -> Result<(), DpError> {
            let left = self.0.checked_sub(1).ok_or_else(|| DpError::state("one too many"))?;
            self.0 = left;
            Ok(())
        }
    }

    fn record() -> RawRecord {
        RawRecord {
            layer: LayerIds { weight: ParamId::new(), bias: None },
            primitive: Primitive::Repeat,
            weight: None,
            bias: false,
            kept: vec![],
            ids: None,
            output_grad: Slot::new(()),
        }
    }

    #[test]
    fn a_recording_returns_its_recorder_or_the_first_error() {
        for (records, accepted) in [(2, true), (3, false), (5, false)] {
            let recording = Recording::start(Accepts(2)).unwrap();
            (0..records).for_each(|_| push(record()));
            assert_eq!(recording.finish().is_ok(), accepted);
            assert!(!is_active());
        }
    }

    #[test]
    fn a_recording_inside_another_one_is_refused() {
        let outer = Recording::start(Accepts(1)).unwrap();
        assert!(Recording::start(Accepts(1)).is_err());
        push(record());
        assert_eq!(outer.finish().unwrap().0, 0);
    }
}
