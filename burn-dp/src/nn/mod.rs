//! Private twins of Burn's layers.
//!
//! [`Private<M>`] wraps a Burn layer and calls the [parametric primitives](crate::ops) in its place.
//! Under an ordinary backward pass it is that layer; under a
//! [private one](crate::grads::PrivateBackward) it yields per-example information.

mod affine;
mod batch_norm;
mod conv2d;
mod embedding;
mod group_norm;
mod layer_norm;
mod linear;
mod padding;
mod parameter;
mod prelu;
mod private;
mod rms_norm;

pub use parameter::parameter;
pub use private::{IntoPrivate, Private, PrivateLayer};
