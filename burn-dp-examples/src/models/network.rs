//! Networks by their names.

use burn::tensor::{Device, Int, Tensor};
use clap::ValueEnum;

use super::{
    Classifier, CnnConfig, LinearClassifierConfig, MlpConfig, NfResNetConfig, NormName,
    RecurrentConfig, ResNetConfig, ResNetDepth, Rows, Sequence, TransformerConfig, VggConfig,
    VggDepth, WideResNetConfig, Words,
};
use crate::data::{ImageShape, Inputs, WordVectors};

/// A network for a data set.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelName {
    /// Linear classifier, for features.
    Linear,
    /// Multi-layer perceptron.
    Mlp,
    /// Convolutional network.
    Cnn,
    /// Recurrent network on the rows of an image or the words of a text.
    Rnn,
    /// Long short-term memory, on rows or words.
    Lstm,
    /// One block of a transformer encoder, on rows or words.
    Transformer,
    /// Residual network of 18 layers.
    #[value(name = "resnet18")]
    ResNet18,
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
    /// Wide residual network of 16 layers.
    #[value(name = "wrn-16-1")]
    Wrn16x1,
    /// Wide residual network of 16 layers, four times as wide.
    #[value(name = "wrn-16-4")]
    Wrn16x4,
    /// Wide residual network of 40 layers, four times as wide.
    #[value(name = "wrn-40-4")]
    Wrn40x4,
    /// Wide residual network of 16 layers, with standardized weights.
    #[value(name = "wrn-16-1-ws")]
    Wrn16x1Standardized,
    /// Wide residual network of 16 layers, four times as wide, with standardized weights.
    #[value(name = "wrn-16-4-ws")]
    Wrn16x4Standardized,
    /// Wide residual network of 40 layers, four times as wide, with standardized weights.
    #[value(name = "wrn-40-4-ws")]
    Wrn40x4Standardized,
    /// Normalizer-free residual network of 26 layers.
    #[value(name = "nf-resnet-26")]
    NfResNet26,
    /// Normalizer-free residual network of 50 layers.
    #[value(name = "nf-resnet-50")]
    NfResNet50,
}

impl ModelName {
    /// Returns the network of sequences; `None` for networks that read images only.
    pub fn sequence(self) -> Option<SequenceModel> {
        match self {
            Self::Rnn => Some(SequenceModel::Rnn),
            Self::Lstm => Some(SequenceModel::Lstm),
            Self::Transformer => Some(SequenceModel::Transformer),
            _ => None,
        }
    }

    /// Returns whether the network has normalization layers.
    pub fn is_normalized(self) -> bool {
        matches!(self, Self::ResNet18 | Self::ResNet34 | Self::ResNet50 | Self::ResNet101)
    }

    /// Returns the smallest number of pixels per side of an image.
    pub fn smallest_side(self) -> usize {
        match self {
            Self::Cnn => 16,
            _ => 1,
        }
    }
}

/// A network that reads sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceModel {
    /// Recurrent network.
    Rnn,
    /// Long short-term memory.
    Lstm,
    /// One block of a transformer encoder.
    Transformer,
}

/// An action on a network whose type depends on its name.
pub trait NetworkVisitor<I: Inputs> {
    /// The result.
    type Output;

    /// Visits the network.
    fn visit<M: Classifier<Inputs = I>>(self, model: M) -> Self::Output;
}

/// Pixels per side from which a normalizer-free network halves an image before the first block.
const LARGE: usize = 64;

/// A network for images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageNetwork {
    /// Name of the network.
    pub name: ModelName,
    /// Shape of the images.
    pub shape: ImageShape,
    /// Number of classes.
    pub classes: usize,
    /// Normalization of the residual networks.
    pub norm: NormName,
}

impl ImageNetwork {
    /// Creates the network and passes it to the visitor.
    pub fn visit<V: NetworkVisitor<Tensor<4>>>(&self, device: &Device, visitor: V) -> V::Output {
        let ImageShape { channels, height, width } = self.shape;
        let (image, classes) = ([channels, height, width], self.classes);
        let resnet = |depth| {
            let config = ResNetConfig::new(depth, classes).with_channels(channels);
            config.with_norm(self.norm).init(device)
        };
        let vgg = |depth| VggConfig::new(depth, image, classes).init(device);
        let wide = |depth, factor, standardized| {
            let config = WideResNetConfig::new(depth, factor, classes).with_channels(channels);
            config.with_standardized(standardized).init(device)
        };
        let nf_resnet = |blocks| {
            let config = NfResNetConfig::new(blocks, classes).with_channels(channels);
            config.with_small_stem(height.min(width) < LARGE).init(device)
        };
        let rows = Rows { width: channels * width };
        match self.name {
            ModelName::Linear => {
                let config = LinearClassifierConfig::new(self.shape.values());
                visitor.visit(config.with_classes(classes).init(device))
            }
            ModelName::Mlp => {
                let config = MlpConfig::new().with_pixels(self.shape.values());
                visitor.visit(config.with_classes(classes).init(device))
            }
            ModelName::Cnn => {
                let config = CnnConfig::new().with_image(image).with_classes(classes);
                visitor.visit(config.init(device))
            }
            ModelName::Rnn => sequence(SequenceModel::Rnn, rows, height, classes, device, visitor),
            ModelName::Lstm => {
                sequence(SequenceModel::Lstm, rows, height, classes, device, visitor)
            }
            ModelName::Transformer => {
                sequence(SequenceModel::Transformer, rows, height, classes, device, visitor)
            }
            ModelName::ResNet18 => visitor.visit(resnet(ResNetDepth::D18)),
            ModelName::ResNet34 => visitor.visit(resnet(ResNetDepth::D34)),
            ModelName::ResNet50 => visitor.visit(resnet(ResNetDepth::D50)),
            ModelName::ResNet101 => visitor.visit(resnet(ResNetDepth::D101)),
            ModelName::Vgg11 => visitor.visit(vgg(VggDepth::D11)),
            ModelName::Vgg16 => visitor.visit(vgg(VggDepth::D16)),
            ModelName::Vgg19 => visitor.visit(vgg(VggDepth::D19)),
            ModelName::Wrn16x1 => visitor.visit(wide(16, 1, false)),
            ModelName::Wrn16x4 => visitor.visit(wide(16, 4, false)),
            ModelName::Wrn40x4 => visitor.visit(wide(40, 4, false)),
            ModelName::Wrn16x1Standardized => visitor.visit(wide(16, 1, true)),
            ModelName::Wrn16x4Standardized => visitor.visit(wide(16, 4, true)),
            ModelName::Wrn40x4Standardized => visitor.visit(wide(40, 4, true)),
            ModelName::NfResNet26 => visitor.visit(nf_resnet([2, 2, 2, 2])),
            ModelName::NfResNet50 => visitor.visit(nf_resnet([3, 4, 6, 3])),
        }
    }
}

/// A network for texts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextNetwork<'a> {
    /// Name of the network.
    pub name: SequenceModel,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Number of words of a text.
    pub length: usize,
    /// Number of classes.
    pub classes: usize,
    /// Public word vectors; without them, vectors are trained from scratch.
    pub vectors: Option<&'a WordVectors>,
}

/// Length of word vectors that are trained from scratch.
const WORD_WIDTH: usize = 64;

impl TextNetwork<'_> {
    /// Creates the network and passes it to the visitor.
    pub fn visit<V: NetworkVisitor<Tensor<2, Int>>>(
        &self,
        device: &Device,
        visitor: V,
    ) -> V::Output {
        let words = match self.vectors {
            Some(vectors) => Words::frozen(vectors, device),
            None => Words::trained(self.vocabulary, WORD_WIDTH, device),
        };
        sequence(self.name, words, self.length, self.classes, device, visitor)
    }
}

fn sequence<S: Sequence, V: NetworkVisitor<S::Inputs>>(
    name: SequenceModel,
    inputs: S,
    length: usize,
    classes: usize,
    device: &Device,
    visitor: V,
) -> V::Output {
    match name {
        SequenceModel::Rnn => visitor.visit(RecurrentConfig::new(classes).rnn(inputs, device)),
        SequenceModel::Lstm => visitor.visit(RecurrentConfig::new(classes).lstm(inputs, device)),
        SequenceModel::Transformer => {
            visitor.visit(TransformerConfig::new(classes, length).init(inputs, device))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::data::{Encoder, ImageBatcher, TextBatcher};

    /// Scores a few made-up items.
    struct Score<E: Encoder>(E);

    impl<E: Encoder> NetworkVisitor<E::Inputs> for Score<E> {
        type Output = [usize; 2];

        fn visit<M: Classifier<Inputs = E::Inputs>>(self, model: M) -> [usize; 2] {
            let batch = self.0.batch(self.0.made_up(2, 3), &Device::flex());
            model.forward(batch.inputs).dims()
        }
    }

    #[test]
    fn every_network_scores_images_of_28_and_32_pixels() {
        for &name in ModelName::value_variants() {
            for encoder in [ImageBatcher::MNIST, ImageBatcher::CIFAR10] {
                // The deepest are tested at a small width in their own files.
                if matches!(name, ModelName::ResNet101 | ModelName::Vgg16 | ModelName::Vgg19) {
                    continue;
                }
                let norm = NormName::Group;
                let network = ImageNetwork { name, shape: encoder.shape, classes: 3, norm };
                assert_eq!(network.visit(&Device::flex(), Score(encoder)), [2, 3], "{name:?}");
            }
        }
    }

    #[test]
    fn the_networks_of_sequences_score_texts() {
        let encoder = TextBatcher { length: 6, vocabulary: 11 };
        let names = ModelName::value_variants().iter().filter_map(|name| name.sequence());
        let names: Vec<_> = names.collect();
        assert_eq!(names.len(), 3);
        for name in names {
            let network =
                TextNetwork { name, vocabulary: 11, length: 6, classes: 3, vectors: None };
            assert_eq!(network.visit(&Device::flex(), Score(encoder)), [2, 3], "{name:?}");
        }
    }
}
