//! Transformer layers: compositions of attention, linear layers and layer norms.

mod decoder;
mod encoder;
mod feed_forward;

pub use decoder::{
    TransformerDecoderAutoregressiveCache, TransformerDecoderInput,
    TransformerDecoderLayerAutoregressiveCache,
};
pub use encoder::{
    TransformerEncoderAutoregressiveCache, TransformerEncoderInput,
    TransformerEncoderLayerAutoregressiveCache,
};
