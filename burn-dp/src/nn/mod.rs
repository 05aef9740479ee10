//! Private twins of Burn's layers.
//!
//! [`Private<M>`] wraps a Burn layer and calls the [parametric primitives](crate::ops) in its place.
//! Under an ordinary backward pass it is that layer; under a
//! [private one](crate::grads::PrivateBackward) it yields per-example information.

mod activation;
mod attention;
mod conv2d;
mod linear;
mod padding;
mod private;
mod recurrent;
mod swiglu;
mod transformer;

pub use attention::{CrossAttentionCache, MhaCache, MhaInput, PrivateCrossAttention};
pub use private::{IntoPrivate, Private, PrivateLayer};
