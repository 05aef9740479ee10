//! Private twins of Burn's layers.
//!
//! [`Private<M>`] wraps a Burn layer and calls the [parametric primitives](crate::ops) in its place.
//! Under an ordinary backward pass it is that layer; under a
//! [private one](crate::grads::PrivateBackward) it yields per-example information.
//!
//! | layers | options | rule |
//! |---|---|---|
//! | `Linear` | bias, layout, any rank | outer products over positions: ghost norm or instantiated |
//! | `Embedding`, also as tied output layer | | sums over equal indices, never instantiated |
//! | `Conv1d`, `Conv2d`, `Conv3d` | bias, stride, padding, dilation, groups | the linear rule on patches |
//! | `ConvTranspose1d`, `2d`, `3d` | the same, and output padding | the same, with input and gradient exchanged |
//! | `DeformConv2d` | the same, offset groups, mask | the linear rule on samples |
//! | `LayerNorm`, `RmsNorm`, `GroupNorm`, `InstanceNorm` | bias, affine | scale and shift |
//! | `BatchNorm` with stored statistics | | scale and shift |
//! | `PRelu` | parameters | scale of the negative part |
//! | `Param<Tensor<D>>`, [`parameter()`] | | one copy for each example |
//!
//! A layer that is used several times in one forward pass, and the copies of one unit, are summed before
//! the norm.

mod affine;
mod batch_norm;
mod conv;
mod conv_transpose;
mod deform_conv2d;
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
