//! Which private layer a module traversal is in.
//!
//! [`Private`](super::Private) is transparent to paths, so a visitor cannot see it. A traversal
//! runs on one thread, so the wrapper says so there while it is visited.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The traversal of one private layer. Dropping it ends the scope.
pub(crate) struct PrivateScope {
    // The scope belongs to the thread that opened it.
    _not_send: PhantomData<*const ()>,
}

impl PrivateScope {
    /// The traversal of a private layer begins.
    pub(crate) fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self { _not_send: PhantomData }
    }

    /// Whether a private layer is being visited on this thread.
    pub(crate) fn is_open() -> bool {
        DEPTH.with(|depth| depth.get() > 0)
    }
}

impl Drop for PrivateScope {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}
