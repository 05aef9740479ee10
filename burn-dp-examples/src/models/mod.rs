//! The networks of the fast-clipping paper, wide and normalizer-free residual networks.
//!
//! The small networks are [`Mlp`], [`Cnn`], [`Recurrent`] and [`Transformer`], the deep networks
//! for images [`ResNet`], [`Vgg`], [`WideResNet`] and [`NfResNet`]; [`LinearClassifier`] is for
//! features.
//! [`ImageNetwork`] and [`TextNetwork`] create one by its [name](ModelName), as an [`ImageModel`]
//! or a [`TextModel`].
//!
//! # References
//!
//! J. Lee, D. Kifer: Scaling up differentially private deep learning with fast per-example gradient
//! clipping, 2021, sections 6.1 and 6.5.

mod any;
mod augmented;
mod bn_lenet5;
mod cnn;
mod convnet;
mod convolution;
mod linear;
mod mlp;
mod network;
mod next_token;
mod nf_resnet;
mod norm;
mod recurrent;
mod resnet;
mod sequence;
mod transformer;
mod vgg;
mod wide_resnet;

pub use augmented::Augmented;
pub use bn_lenet5::{BnLeNet5, BnLeNet5Config};
pub use cnn::{Cnn, CnnConfig};
pub use convnet::{ConvNet, ConvNetConfig};
pub use convolution::Convolution;
pub use linear::{LinearClassifier, LinearClassifierConfig};
pub use mlp::{Mlp, MlpConfig};
pub use network::{ImageModel, ImageNetwork, ModelName, SequenceModel, TextModel, TextNetwork};
pub use next_token::{NextToken, NextTokenConfig, WindowBatch};
pub use nf_resnet::{NfBlock, NfResNet, NfResNetConfig};
pub use norm::{Norm, NormName};
pub use recurrent::{Cell, Recurrent, RecurrentConfig};
pub use resnet::{ResNet, ResNetConfig, ResNetDepth};
pub use sequence::{Rows, Sequence, Words};
pub use transformer::{Transformer, TransformerConfig};
pub use vgg::{Vgg, VggConfig, VggDepth};
pub use wide_resnet::{WideBlock, WideResNet, WideResNetConfig};

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{FloatDType, Tensor};
use burn_dp::losses::CrossEntropyLoss;

use crate::data::{Batch, Inputs};

/// A network that scores classes.
pub trait Classifier: Module {
    /// The inputs: `Tensor<4>` for images, `Tensor<2, Int>` for texts.
    type Inputs: Inputs;

    /// Returns the scores of the classes, not normalized.
    ///
    /// # Shapes
    ///
    /// - inputs: images `[batch_size, channels, height, width]`, or texts `[batch_size, length]`
    /// - output: `[batch_size, classes]`
    fn forward(&self, inputs: Self::Inputs) -> Tensor<2>;

    /// Returns one loss for each example of a batch, `[batch_size]`.
    fn losses(&self, loss: &CrossEntropyLoss, batch: Batch<Self::Inputs>) -> Tensor<1> {
        loss.forward(self.forward(batch.inputs), batch.targets)
    }

    /// Returns the losses of a network in this precision, in single precision.
    fn losses_in(
        &self,
        precision: FloatDType,
        loss: &CrossEntropyLoss,
        batch: Batch<Self::Inputs>,
    ) -> Tensor<1> {
        let scores = self.forward(batch.inputs.in_precision(precision));
        loss.forward(scores.cast(FloatDType::F32), batch.targets)
    }

    /// Returns the mean over the batch with Burn's loss, for ordinary training.
    fn mean_loss(&self, batch: Batch<Self::Inputs>) -> Tensor<1> {
        let scores = self.forward(batch.inputs);
        CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, batch.targets)
    }
}
