//! Private twins of Burn's layers.
//!
//! [`Private<M>`] wraps a Burn layer and calls the [parametric primitives](crate::ops) in its place.
//! Under an ordinary backward pass it is that layer; under a
//! [private one](crate::grads::PrivateBackward) it yields per-example information.

mod conv2d;
mod linear;
mod low_rank;
mod padding;
mod private;
pub(crate) mod scope;

pub use private::{IntoPrivate, Private, PrivateLayer};
