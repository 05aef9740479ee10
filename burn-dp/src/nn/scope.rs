//! Detection of private layers during a walk through a model.
//!
//! [`Private`](super::Private) is not part of a path, so a visitor cannot detect it. A walk runs on
//! one thread, so the wrapper counts its depth in a thread-local variable while it is visited.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The visit of one private layer. Dropping the scope ends the visit.
pub(crate) struct PrivateScope {
    // The scope belongs to the thread that opened it.
    _not_send: PhantomData<*const ()>,
}

impl PrivateScope {
    /// Starts the visit of a private layer.
    pub(crate) fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self { _not_send: PhantomData }
    }

    /// Returns whether this thread visits a private layer.
    pub(crate) fn is_open() -> bool {
        DEPTH.with(|depth| depth.get() > 0)
    }
}

impl Drop for PrivateScope {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}
