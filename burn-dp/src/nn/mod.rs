#![doc = include_str!("guide.md")]

mod affine;
mod batch_norm;
mod conv2d;
mod embedding;
mod group_norm;
mod layer_norm;
mod linear;
mod low_rank;
mod padding;
mod parameter;
mod prelu;
mod private;
mod rms_norm;
pub(crate) mod scope;

pub use parameter::parameter;
pub(crate) use private::private_layers;
pub use private::{IntoPrivate, Private, PrivateLayer};
