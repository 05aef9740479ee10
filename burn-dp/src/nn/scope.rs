//! Which private layer a module traversal is in.
//!
//! [`Private`](super::Private) is transparent to paths, so a visitor cannot see it. A traversal runs on
//! one thread, so the wrapper says so there while it is visited.

use std::cell::RefCell;
use std::marker::PhantomData;

thread_local! {
    static LAYERS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// The traversal of one private layer. Dropping it ends the scope.
pub(crate) struct PrivateScope {
    // The scope belongs to the thread that opened it.
    _not_send: PhantomData<*const ()>,
}

impl PrivateScope {
    /// The traversal of a `Private<M>` begins.
    pub(crate) fn enter<M>() -> Self {
        LAYERS.with_borrow_mut(|layers| layers.push(std::any::type_name::<M>()));
        Self { _not_send: PhantomData }
    }

    /// The type inside of the innermost private layer that is being visited on this thread.
    pub(crate) fn innermost() -> Option<&'static str> {
        LAYERS.with_borrow(|layers| layers.last().copied())
    }
}

impl Drop for PrivateScope {
    fn drop(&mut self) {
        LAYERS.with_borrow_mut(Vec::pop);
    }
}
