#![doc = include_str!("guide.md")]

mod activation;
mod affine;
mod attention;
mod backend;
mod batch_norm;
mod conv;
mod conv_transpose;
mod deform_conv2d;
mod dropout;
mod embedding;
mod group_norm;
mod layer_norm;
mod layers;
mod linear;
mod low_rank;
mod max_pool2d;
mod normalization;
mod padding;
mod parameter;
mod prelu;
mod private;
mod random_crop;
mod recurrent;
mod rms_norm;
pub(crate) mod scope;
mod standardized;
mod swiglu;
mod transformer;
mod unit_scope;
mod weight;

pub use attention::{CrossAttentionCache, MhaCache, MhaInput, PrivateCrossAttention};
pub(crate) use layers::RANDOM_LAYERS;
pub use layers::{LAYERS, LayerSupport, NormRule, layer_table};
pub(crate) use low_rank::ADAPTED_LAYERS;
pub use parameter::parameter;
pub use private::{IntoPrivate, Private, PrivateLayer};
pub use random_crop::RandomCrop;
pub use standardized::StandardizedConv2d;
pub use transformer::{
    TransformerDecoderAutoregressiveCache, TransformerDecoderInput,
    TransformerDecoderLayerAutoregressiveCache, TransformerEncoderAutoregressiveCache,
    TransformerEncoderInput, TransformerEncoderLayerAutoregressiveCache,
};
pub(crate) use unit_scope::{UnitScope, Units, refuse_unkeyed, unkeyed_randomness};
