//! Layers of Burn and their private versions behind one interface, so that a network is written
//! once.

use burn::module::{Module, ModuleDisplay};
use burn::nn::activation::Activation;
use burn::nn::attention::{self, MultiHeadAttention};
use burn::nn::conv::Conv2d;
use burn::nn::pool::MaxPool2d;
use burn::nn::{GroupNorm, Gru, LayerNorm, Linear, Lstm, Rnn};
use burn::tensor::{Bool, Tensor};
use burn_dp::nn::{self as private, IntoPrivate, Private};

/// A layer `L` of Burn, or its private version.
pub(super) trait Layer<L>: Module + ModuleDisplay {
    /// Converts a layer of Burn.
    fn of(layer: L) -> Self;
}

impl<L: Module + ModuleDisplay> Layer<L> for L {
    fn of(layer: L) -> Self {
        layer
    }
}

impl<L: IntoPrivate + ModuleDisplay> Layer<L> for Private<L> {
    fn of(layer: L) -> Self {
        layer.private()
    }
}

/// A layer that maps a tensor to a tensor of the same rank.
pub(super) trait Forward<const D: usize> {
    /// Returns the output; recurrent layers return the states of all positions.
    fn apply(&self, input: Tensor<D>) -> Tensor<D>;
}

/// Self-attention.
pub(super) trait Attend {
    /// Returns the output for `[batch_size, length, width]`; `mask` marks the pairs of positions
    /// that are excluded.
    fn attend(&self, input: Tensor<3>, mask: Option<Tensor<3, Bool>>) -> Tensor<3>;
}

macro_rules! forward {
    ($($layer:ty, $rank:literal: $this:ident, $input:ident => $output:expr;)*) => {$(
        impl Forward<$rank> for $layer {
            fn apply(&self, $input: Tensor<$rank>) -> Tensor<$rank> {
                let $this = self;
                $output
            }
        }

        impl Forward<$rank> for Private<$layer> {
            fn apply(&self, $input: Tensor<$rank>) -> Tensor<$rank> {
                let $this = self;
                $output
            }
        }
    )*};
}

forward! {
    Activation, 2: layer, input => layer.forward(input);
    Activation, 4: layer, input => layer.forward(input);
    Linear, 2: layer, input => layer.forward(input);
    Linear, 3: layer, input => layer.forward(input);
    MaxPool2d, 4: layer, input => layer.forward(input);
    Conv2d, 4: layer, input => layer.forward(input);
    GroupNorm, 4: layer, input => layer.forward(input);
    LayerNorm, 3: layer, input => layer.forward(input);
    Rnn, 3: layer, input => layer.forward(input, None).0;
    Gru, 3: layer, input => layer.forward(input, None);
    Lstm, 3: layer, input => layer.forward(input, None).0;
}

macro_rules! attend {
    ($($layer:ty, $input:ty;)*) => {$(
        impl Attend for $layer {
            fn attend(&self, input: Tensor<3>, mask: Option<Tensor<3, Bool>>) -> Tensor<3> {
                let input = <$input>::self_attn(input);
                let input = match mask {
                    Some(mask) => input.mask_attn(mask),
                    None => input,
                };
                self.forward(input).context
            }
        }
    )*};
}

attend! {
    MultiHeadAttention, attention::MhaInput;
    Private<MultiHeadAttention>, private::MhaInput;
}
