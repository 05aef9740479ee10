//! Networks by their names.

use burn::nn::{Lstm, Rnn};
use burn::tensor::{Device, Int, Tensor};
use burn_dp::nn::Private;
use clap::ValueEnum;

use super::{
    Cnn, CnnConfig, LinearClassifier, LinearClassifierConfig, Mlp, MlpConfig, NfResNet,
    NfResNetConfig, NormName, Recurrent, RecurrentConfig, ResNet, ResNetConfig, ResNetDepth, Rows,
    Transformer, TransformerConfig, Vgg, VggConfig, VggDepth, WideResNet, WideResNetConfig, Words,
};
use crate::any_classifier;
use crate::data::{ImageShape, WordVectors};

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

any_classifier! {
    /// Any of the networks for images.
    ImageModel(Tensor<4>) {
        /// Linear classifier.
        Linear(LinearClassifier),
        /// Multi-layer perceptron.
        Mlp(Mlp),
        /// Convolutional network.
        Cnn(Cnn),
        /// Recurrent network on rows.
        Rnn(Recurrent<Rows, Private<Rnn>>),
        /// Long short-term memory on rows.
        Lstm(Recurrent<Rows, Private<Lstm>>),
        /// Transformer on rows.
        Transformer(Transformer<Rows>),
        /// Residual network.
        ResNet(ResNet),
        /// VGG network.
        Vgg(Vgg),
        /// Wide residual network.
        WideResNet(WideResNet),
        /// Normalizer-free residual network.
        NfResNet(NfResNet),
    }
}

any_classifier! {
    /// Any of the networks for texts.
    TextModel(Tensor<2, Int>) {
        /// Recurrent network.
        Rnn(Recurrent<Words, Private<Rnn>>),
        /// Long short-term memory.
        Lstm(Recurrent<Words, Private<Lstm>>),
        /// Transformer.
        Transformer(Transformer<Words>),
    }
}

/// Minimum number of pixels per side for which a normalizer-free network halves an image before the
/// first block.
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
    /// Normalization of the residual networks. VGG networks have frozen batch normalization, or
    /// none.
    pub norm: NormName,
}

impl ImageNetwork {
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> ImageModel {
        let ImageShape { channels, height, width } = self.shape;
        let (image, classes) = ([channels, height, width], self.classes);
        let resnet = |depth| {
            let config = ResNetConfig::new(depth, classes).with_channels(channels);
            ImageModel::ResNet(config.with_norm(self.norm).init(device))
        };
        let vgg = |depth| {
            let norm = match self.norm {
                NormName::FrozenBatch => NormName::FrozenBatch,
                _ => NormName::None,
            };
            let config = VggConfig::new(depth, image, classes).with_norm(norm);
            ImageModel::Vgg(config.init(device))
        };
        let wide = |depth, factor, standardized| {
            let config = WideResNetConfig::new(depth, factor, classes).with_channels(channels);
            ImageModel::WideResNet(config.with_standardized(standardized).init(device))
        };
        let nf_resnet = |blocks| {
            let config = NfResNetConfig::new(blocks, classes).with_channels(channels);
            let is_small = height.min(width) < LARGE;
            ImageModel::NfResNet(config.with_small_stem(is_small).init(device))
        };
        let rows = Rows { width: channels * width };
        match self.name {
            ModelName::Linear => {
                let config = LinearClassifierConfig::new(self.shape.values());
                ImageModel::Linear(config.with_classes(classes).init(device))
            }
            ModelName::Mlp => {
                let config = MlpConfig::new().with_pixels(self.shape.values());
                ImageModel::Mlp(config.with_classes(classes).init(device))
            }
            ModelName::Cnn => {
                let config = CnnConfig::new().with_image(image).with_classes(classes);
                ImageModel::Cnn(config.init(device))
            }
            ModelName::Rnn => ImageModel::Rnn(RecurrentConfig::new(classes).rnn(rows, device)),
            ModelName::Lstm => ImageModel::Lstm(RecurrentConfig::new(classes).lstm(rows, device)),
            ModelName::Transformer => {
                let config = TransformerConfig::new(classes, height);
                ImageModel::Transformer(config.init(rows, device))
            }
            ModelName::ResNet18 => resnet(ResNetDepth::D18),
            ModelName::ResNet34 => resnet(ResNetDepth::D34),
            ModelName::ResNet50 => resnet(ResNetDepth::D50),
            ModelName::ResNet101 => resnet(ResNetDepth::D101),
            ModelName::Vgg11 => vgg(VggDepth::D11),
            ModelName::Vgg16 => vgg(VggDepth::D16),
            ModelName::Vgg19 => vgg(VggDepth::D19),
            ModelName::Wrn16x1 => wide(16, 1, false),
            ModelName::Wrn16x4 => wide(16, 4, false),
            ModelName::Wrn40x4 => wide(40, 4, false),
            ModelName::Wrn16x1Standardized => wide(16, 1, true),
            ModelName::Wrn16x4Standardized => wide(16, 4, true),
            ModelName::Wrn40x4Standardized => wide(40, 4, true),
            ModelName::NfResNet26 => nf_resnet([2, 2, 2, 2]),
            ModelName::NfResNet50 => nf_resnet([3, 4, 6, 3]),
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
    /// Initializes the network.
    pub fn init(&self, device: &Device) -> TextModel {
        let words = match self.vectors {
            Some(vectors) => Words::frozen(vectors, device),
            None => Words::trained(self.vocabulary, WORD_WIDTH, device),
        };
        let classes = self.classes;
        match self.name {
            SequenceModel::Rnn => TextModel::Rnn(RecurrentConfig::new(classes).rnn(words, device)),
            SequenceModel::Lstm => {
                TextModel::Lstm(RecurrentConfig::new(classes).lstm(words, device))
            }
            SequenceModel::Transformer => {
                let config = TransformerConfig::new(classes, self.length);
                TextModel::Transformer(config.init(words, device))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::module::Module;
    use burn_dp::model::TrainableParameters;

    use super::*;
    use crate::data::{Encoder, ImageBatcher, TextBatcher};
    use crate::models::Classifier;

    /// Scores a few made-up items.
    fn scores<E: Encoder, M: Classifier<Inputs = E::Inputs>>(encoder: &E, model: &M) -> [usize; 2] {
        let batch = encoder.batch(encoder.made_up(2, 3), &Device::flex());
        model.forward(batch.inputs).dims()
    }

    #[test]
    fn every_network_scores_images_of_28_and_32_pixels() {
        for &name in ModelName::value_variants() {
            for encoder in [ImageBatcher::MNIST, ImageBatcher::CIFAR10] {
                // The deepest networks are tested at a small width in their own files.
                if matches!(name, ModelName::ResNet101 | ModelName::Vgg16 | ModelName::Vgg19) {
                    continue;
                }
                let norm = NormName::Group;
                let network = ImageNetwork { name, shape: encoder.shape, classes: 3, norm };
                let model = network.init(&Device::flex());
                assert_eq!(scores(&encoder, &model), [2, 3], "{name:?}");
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
            assert_eq!(scores(&encoder, &network.init(&Device::flex())), [2, 3], "{name:?}");
        }
    }

    #[test]
    fn parameters_keep_the_paths_of_the_network() {
        let device = Device::flex().autodiff();
        let (shape, norm) = (ImageBatcher::MNIST.shape, NormName::Group);
        let network = ImageNetwork { name: ModelName::Cnn, shape, classes: 3, norm };
        let ImageModel::Cnn(cnn) = network.init(&device) else { panic!("not a CNN") };
        let paths = |parameters: TrainableParameters| -> Vec<String> {
            parameters.iter().map(|parameter| parameter.path.clone()).collect()
        };
        let expected = paths(TrainableParameters::of(&cnn).unwrap());
        let any = ImageModel::Cnn(cnn.clone());
        assert_eq!(paths(TrainableParameters::of(&any).unwrap()), expected);
        // A record of the one is a record of the other.
        let images = Tensor::<4>::ones([2, 1, 28, 28], &device);
        let loaded = network.init(&device).load_record(cnn.clone().into_record());
        let scores = cnn.forward(images.clone()).into_data();
        loaded.forward(images).into_data().assert_eq(&scores, true);
    }
}
