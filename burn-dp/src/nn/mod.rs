//! Private twins of Burn's layers.
//!
//! [`Private<M>`] wraps a Burn layer and calls the [parametric primitives](crate::ops) in its place.
//! Under an ordinary backward pass it is that layer; under a
//! [private one](crate::grads::PrivateBackward) it yields per-example information. [`LAYERS`] lists what
//! can be wrapped, with its options and the test that compares it with the loop over examples.
//!
//! A layer that is used several times in one forward pass, and the copies of one unit, are summed before
//! the norm.

mod activation;
mod affine;
mod attention;
mod batch_norm;
mod conv;
mod conv_transpose;
mod deform_conv2d;
mod embedding;
mod group_norm;
mod layer_norm;
mod layers;
mod linear;
mod normalization;
mod padding;
mod parameter;
mod prelu;
mod private;
mod recurrent;
mod rms_norm;
mod swiglu;
mod transformer;

pub use attention::{CrossAttentionCache, MhaCache, MhaInput, PrivateCrossAttention};
pub use layers::{LAYERS, LayerSupport, NormRule, layer_table};
pub use parameter::parameter;
pub use private::{IntoPrivate, Private, PrivateLayer};
pub use transformer::{
    TransformerDecoderAutoregressiveCache, TransformerDecoderInput,
    TransformerDecoderLayerAutoregressiveCache, TransformerEncoderAutoregressiveCache,
    TransformerEncoderInput, TransformerEncoderLayerAutoregressiveCache,
};
