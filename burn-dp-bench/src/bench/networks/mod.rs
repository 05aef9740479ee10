//! The networks of the benchmarks.
//!
//! A network is written once for layers of Burn and for their private versions, so that an ordinary
//! step of stock Burn layers can be compared with steps of private layers. The networks that only
//! exist with private layers come from `burn-dp-examples`.

mod block;
mod cnn;
mod layer;
mod mlp;
mod recurrent;
mod resnet;
mod sizes;
mod vgg;

use burn::nn::activation::Activation;
use burn::nn::attention::MultiHeadAttention;
use burn::nn::conv::Conv2d;
use burn::nn::pool::MaxPool2d;
use burn::nn::{GroupNorm, Gru, GruConfig, LayerNorm, Linear, Lstm, LstmConfig, Rnn, RnnConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::Private;
use burn_dp_examples::any_classifier;
use burn_dp_examples::data::{CLASSES, ImageBatcher, ImageShape};
use burn_dp_examples::models::{ImageModel, ImageNetwork, ModelName, NormName};
use clap::ValueEnum;

use block::{BlockShape, Blocks};
use cnn::Cnn;
use layer::{Attend, Forward, Layer};
use mlp::Mlp;
use recurrent::Recurrent;
use resnet::ResNet18;
pub use sizes::{InputName, Sizes};
use vgg::Vgg11;

/// A network to train.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Multi-layer perceptron.
    Mlp,
    /// Convolutional network.
    Cnn,
    /// Recurrent network on the rows of an image, or on embeddings.
    Rnn,
    /// Gated recurrent unit, on rows.
    Gru,
    /// Long short-term memory, on rows.
    Lstm,
    /// Small transformer on rows: one encoder block, 28 positions, width 64.
    Transformer,
    /// One encoder block on 64 embeddings: width 200, 8 heads, 512 hidden units.
    TransformerBlock,
    /// One block of GPT-2 on 256 embeddings: width 768, 12 heads, 3072 hidden units, causal.
    Gpt2Block,
    /// ResNet-18 with the 7 × 7 stem of ImageNet.
    #[value(name = "resnet18")]
    ResNet18,
    /// ResNet-18 for small images: a 3 × 3 stem and 16 groups of normalization.
    #[value(name = "resnet18-cifar")]
    ResNet18Cifar,
    /// Residual network of 34 layers.
    #[value(name = "resnet34")]
    ResNet34,
    /// Residual network of 50 layers.
    #[value(name = "resnet50")]
    ResNet50,
    /// Residual network of 101 layers.
    #[value(name = "resnet101")]
    ResNet101,
    /// VGG network of 11 layers.
    #[value(name = "vgg11")]
    Vgg11,
    /// VGG network of 16 layers.
    #[value(name = "vgg16")]
    Vgg16,
    /// VGG network of 19 layers.
    #[value(name = "vgg19")]
    Vgg19,
}

/// Pixels per side of images, unless another size is requested.
const IMAGE_SIZE: usize = 32;

/// Units of a recurrent layer.
const UNITS: usize = 128;

impl Network {
    /// Returns whether the network also exists with stock layers of Burn.
    pub(super) fn has_stock_layers(self) -> bool {
        self == Self::Vgg11 || self.of_examples().is_none()
    }

    /// Returns the number of classes.
    pub(super) fn classes(self) -> usize {
        match self {
            Self::TransformerBlock | Self::Gpt2Block => 2,
            _ => CLASSES,
        }
    }

    /// Returns the number of examples in a step that the comparison with other frameworks takes by
    /// default.
    pub(super) fn batch(self) -> usize {
        match self {
            Self::Gpt2Block => 8,
            _ if self.reads_photographs() => 32,
            _ => 128,
        }
    }

    fn reads_photographs(self) -> bool {
        use Network::{Cnn, Gpt2Block, Gru, Lstm, Mlp, Rnn, Transformer, TransformerBlock};
        let others = [Mlp, Cnn, Rnn, Gru, Lstm, Transformer, TransformerBlock, Gpt2Block];
        !others.contains(&self)
    }

    fn is_recurrent(self) -> bool {
        matches!(self, Self::Rnn | Self::Gru | Self::Lstm)
    }

    /// Returns the name of a network of `burn-dp-examples`.
    fn of_examples(self) -> Option<ModelName> {
        match self {
            Self::Transformer => Some(ModelName::Transformer),
            Self::ResNet18 => Some(ModelName::ResNet18),
            Self::ResNet34 => Some(ModelName::ResNet34),
            Self::ResNet50 => Some(ModelName::ResNet50),
            Self::ResNet101 => Some(ModelName::ResNet101),
            Self::Vgg11 => Some(ModelName::Vgg11),
            Self::Vgg16 => Some(ModelName::Vgg16),
            Self::Vgg19 => Some(ModelName::Vgg19),
            _ => None,
        }
    }

    /// Returns the conversion of made-up items into inputs of this network.
    pub(super) fn encoder(self, sizes: Sizes) -> ImageBatcher {
        if self.reads_photographs() {
            return ImageBatcher::photographs(sizes.image_size.unwrap_or(IMAGE_SIZE));
        }
        match self.block(sizes) {
            Some((length, block)) => embeddings(length, block.width),
            None => match sizes.inputs {
                Some(InputName::Cifar10) => ImageBatcher::CIFAR10,
                Some(InputName::Imdb) if self.is_recurrent() => embeddings(64, 200),
                _ => ImageBatcher::MNIST,
            },
        }
    }

    /// Returns the number of positions and the shape of a network of transformer blocks.
    fn block(self, sizes: Sizes) -> Option<(usize, BlockShape)> {
        let is_gpt2 = self == Self::Gpt2Block;
        let (length, width, heads, feed_forward) = match self {
            Self::TransformerBlock => (64, 200, 8, 512),
            Self::Gpt2Block => (256, 768, 12, 3072),
            _ => return None,
        };
        let shape = BlockShape {
            depth: sizes.depth.unwrap_or(1),
            width: sizes.width.unwrap_or(width),
            heads,
            feed_forward: sizes.width.map_or(feed_forward, |own| own * feed_forward / width),
            is_gpt2,
            classes: self.classes(),
        };
        Some((sizes.length.unwrap_or(length), shape))
    }

    /// Initializes the network with private layers.
    pub(super) fn private(self, sizes: Sizes, device: &Device) -> AnyNetwork {
        match self.of_examples() {
            Some(name) => {
                let shape = self.encoder(sizes).shape;
                let (classes, frozen) = (self.classes(), sizes.frozen_batch_norm);
                let norm = if frozen { NormName::FrozenBatch } else { NormName::Group };
                ImageNetwork { name, shape, classes, norm }.init(device).into()
            }
            None => self.init::<
                Private<Linear>,
                Private<Conv2d>,
                Private<GroupNorm>,
                Private<LayerNorm>,
                Private<MultiHeadAttention>,
                Private<Rnn>,
                Private<Gru>,
                Private<Lstm>,
                Private<Activation>,
                Private<MaxPool2d>,
            >(sizes, device),
        }
    }

    /// Initializes the network with stock layers of Burn. Networks without them
    /// ([`has_stock_layers`](Self::has_stock_layers)) have private layers.
    pub(super) fn stock(self, sizes: Sizes, device: &Device) -> AnyNetwork {
        if !self.has_stock_layers() {
            return self.private(sizes, device);
        }
        self.init::<
            Linear,
            Conv2d,
            GroupNorm,
            LayerNorm,
            MultiHeadAttention,
            Rnn,
            Gru,
            Lstm,
            Activation,
            MaxPool2d,
        >(sizes, device)
    }

    fn init<L, C, G, N, A, R, U, M, F, P>(self, sizes: Sizes, device: &Device) -> AnyNetwork
    where
        L: Layer<Linear> + Forward<2> + Forward<3>,
        C: Layer<Conv2d> + Forward<4>,
        G: Layer<GroupNorm> + Forward<4>,
        N: Layer<LayerNorm> + Forward<3>,
        A: Layer<MultiHeadAttention> + Attend,
        R: Layer<Rnn> + Forward<3>,
        U: Layer<Gru> + Forward<3>,
        M: Layer<Lstm> + Forward<3>,
        F: Layer<Activation> + Forward<2> + Forward<4>,
        P: Layer<MaxPool2d> + Forward<4>,
        AnyNetwork: From<Blocks<A, N, L>>
            + From<Cnn<C, L, F, P>>
            + From<Recurrent<R, L>>
            + From<Recurrent<U, L>>
            + From<Recurrent<M, L>>
            + From<ResNet18<C, G, L>>
            + From<Vgg11<C, L, P>>
            + From<Mlp<L, F>>,
    {
        let classes = self.classes();
        let shape = self.encoder(sizes).shape;
        let (d_input, height) = (shape.channels * shape.width, shape.height);
        if let Some((_, block)) = self.block(sizes) {
            return Blocks::<A, N, L>::new(block, device).into();
        }
        let units = sizes.width.unwrap_or(UNITS);
        match self {
            Self::Cnn => Cnn::<C, L, F, P>::new(shape, classes, device).into(),
            Self::Rnn => {
                let cell = R::of(RnnConfig::new(d_input, units, true).init(device));
                Recurrent::<R, L>::new(cell, units, classes, device).into()
            }
            Self::Gru => {
                let cell = U::of(GruConfig::new(d_input, units, true).init(device));
                Recurrent::<U, L>::new(cell, units, classes, device).into()
            }
            Self::Lstm => {
                let cell = M::of(LstmConfig::new(d_input, units, true).init(device));
                Recurrent::<M, L>::new(cell, units, classes, device).into()
            }
            Self::ResNet18Cifar => {
                let width = sizes.width.unwrap_or(64);
                ResNet18::<C, G, L>::new(width, classes, device).into()
            }
            Self::Vgg11 => Vgg11::<C, L, P>::new(height, classes, device).into(),
            _ => {
                let hidden = match (sizes.width, sizes.depth) {
                    (None, None) => vec![128, 256],
                    (width, depth) => vec![width.unwrap_or(UNITS); depth.unwrap_or(2)],
                };
                let ends = (vec![d_input * height], vec![classes]);
                Mlp::<L, F>::new(&[ends.0, hidden, ends.1].concat(), device).into()
            }
        }
    }
}

/// Returns the conversion of made-up items into sequences of this length and width.
fn embeddings(length: usize, width: usize) -> ImageBatcher {
    let shape = ImageShape { channels: 1, height: length, width };
    ImageBatcher { shape, ..ImageBatcher::MNIST }
}

any_classifier! {
    /// Any of the networks, of private layers or of stock layers.
    AnyNetwork(Tensor<4>) {
        /// A network of `burn-dp-examples`.
        Example(ImageModel),
        /// Multi-layer perceptron.
        Mlp(Mlp<Private<Linear>, Private<Activation>>),
        /// Convolutional network.
        Cnn(Cnn<Private<Conv2d>, Private<Linear>, Private<Activation>, Private<MaxPool2d>>),
        /// Recurrent network.
        Rnn(Recurrent<Private<Rnn>, Private<Linear>>),
        /// Gated recurrent unit.
        Gru(Recurrent<Private<Gru>, Private<Linear>>),
        /// Long short-term memory.
        Lstm(Recurrent<Private<Lstm>, Private<Linear>>),
        /// Transformer blocks.
        Blocks(Blocks<Private<MultiHeadAttention>, Private<LayerNorm>, Private<Linear>>),
        /// Residual network of 18 layers.
        ResNet18(ResNet18<Private<Conv2d>, Private<GroupNorm>, Private<Linear>>),
        /// VGG network of 11 layers.
        Vgg11(Vgg11<Private<Conv2d>, Private<Linear>, Private<MaxPool2d>>),
        /// Multi-layer perceptron of stock layers.
        StockMlp(Mlp<Linear, Activation>),
        /// Convolutional network of stock layers.
        StockCnn(Cnn<Conv2d, Linear, Activation, MaxPool2d>),
        /// Recurrent network of stock layers.
        StockRnn(Recurrent<Rnn, Linear>),
        /// Gated recurrent unit of stock layers.
        StockGru(Recurrent<Gru, Linear>),
        /// Long short-term memory of stock layers.
        StockLstm(Recurrent<Lstm, Linear>),
        /// Transformer blocks of stock layers.
        StockBlocks(Blocks<MultiHeadAttention, LayerNorm, Linear>),
        /// Residual network of stock layers.
        StockResNet18(ResNet18<Conv2d, GroupNorm, Linear>),
        /// VGG network of stock layers.
        StockVgg11(Vgg11<Conv2d, Linear, MaxPool2d>),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataloader::batcher::Batcher;
    use burn::module::Module;
    use burn_dp_examples::data::Encoder;
    use burn_dp_examples::models::Classifier;

    use super::*;

    fn with_stock_layers() -> impl Iterator<Item = Network> {
        Network::value_variants().iter().copied().filter(|network| network.has_stock_layers())
    }

    /// Small, so that the test is quick.
    fn small(network: Network) -> Sizes {
        let width = match network {
            Network::TransformerBlock | Network::Gpt2Block => Some(24),
            Network::ResNet18Cifar => Some(4),
            _ => None,
        };
        Sizes { image_size: Some(16), width, length: Some(5), ..Sizes::default() }
    }

    #[test]
    fn stock_and_private_layers_make_the_same_network() {
        let device = Device::flex();
        for network in with_stock_layers() {
            let (sizes, encoder) = (small(network), network.encoder(small(network)));
            let inputs = encoder.batch(encoder.made_up(2, 2), &device).inputs;
            let scores = |model: &AnyNetwork| -> Vec<f32> {
                model.forward(inputs.clone()).into_data().try_into_vec().unwrap()
            };
            let private = network.private(sizes, &device);
            let stock = network.stock(sizes, &device).load_record(private.clone().into_record());
            let (expected, found) = (scores(&private), scores(&stock));
            assert_eq!(found.len(), 2 * network.classes(), "{network:?}");
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
            assert!(found.iter().zip(&expected).all(close), "{network:?}: {found:?} {expected:?}");
        }
    }

    #[test]
    fn networks_have_the_parameters_of_the_peers() {
        // The sums of `p.numel()` over the parameters in bench_torch.py, where GRU and the others
        // have two biases per gate, as in Burn.
        let expected = [
            (Network::Mlp, 136_074),
            (Network::Cnn, 20 * 26 + 50 * 501 + 801 * 128 + 129 * 10),
            (Network::Rnn, 29 * 128 + 129 * 128 + 1_290),
            (Network::Gru, 3 * (29 * 128 + 129 * 128) + 1_290),
            (Network::Lstm, 4 * (29 * 128 + 129 * 128) + 1_290),
            (Network::TransformerBlock, 4 * 201 * 200 + 201 * 512 + 513 * 200 + 800 + 402),
            (Network::Gpt2Block, 7_087_872 + 2 * 768 + 769 * 2),
            (Network::ResNet18Cifar, 11_172_170),
            (Network::Vgg11, 9_750_922),
        ];
        assert_eq!(expected.map(|(network, _)| network).len(), with_stock_layers().count());
        for (network, count) in expected {
            let found = network.stock(Sizes::default(), &Device::flex()).num_params();
            assert_eq!(found, count, "{network:?}");
        }
    }

    #[test]
    fn inputs_change_the_first_layer() {
        let device = Device::flex();
        for (network, inputs, count) in [
            (Network::Mlp, InputName::Cifar10, 136_074 + (3_072 - 784) * 128),
            (Network::Cnn, InputName::Cifar10, 20 * 76 + 50 * 501 + 1_251 * 128 + 1_290),
            (Network::Rnn, InputName::Cifar10, 97 * 128 + 129 * 128 + 1_290),
            (Network::Lstm, InputName::Imdb, 4 * (201 * 128 + 129 * 128) + 1_290),
            // Not a network of sequences.
            (Network::Mlp, InputName::Imdb, 136_074),
        ] {
            let sizes = Sizes { inputs: Some(inputs), ..Sizes::default() };
            let (model, encoder) = (network.private(sizes, &device), network.encoder(sizes));
            assert_eq!(model.num_params(), count, "{network:?} {inputs:?}");
            let scores = model.forward(encoder.batch(encoder.made_up(2, 2), &device).inputs);
            assert_eq!(scores.dims(), [2, network.classes()], "{network:?} {inputs:?}");
        }
    }

    #[test]
    fn width_and_depth_change_the_network() {
        let count = |network: Network, width, depth| {
            let sizes = Sizes { width, depth, ..Sizes::default() };
            network.private(sizes, &Device::flex()).num_params()
        };
        let mlp = 785 * 8 + 2 * (9 * 8) + 9 * 10;
        assert_eq!(count(Network::Mlp, Some(8), Some(3)), mlp);
        let one = count(Network::TransformerBlock, Some(16), None);
        let two = count(Network::TransformerBlock, Some(16), Some(2));
        // All but the 17 * 2 values of the last layer twice.
        assert_eq!(two, 2 * one - 34);
    }
}
