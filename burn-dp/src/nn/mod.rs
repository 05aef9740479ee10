#![doc = include_str!("guide.md")]

mod activation;
mod affine;
mod attention;
mod backend;
mod batch_norm;
mod conv;
mod conv_transpose;
mod deform_conv2d;
mod embedding;
mod group_norm;
mod layer_norm;
mod layers;
mod linear;
mod low_rank;
mod matrix_product;
mod normalization;
mod padding;
mod parameter;
mod prelu;
mod private;
mod recurrent;
mod rms_norm;
pub(crate) mod scope;
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
