//! Pre-trained models with private layers, in the shapes and parameter names of their public
//! checkpoints, and the program `finetune`.
//!
//! | model | type | checkpoint |
//! |---|---|---|
//! | GPT-2 | [`Gpt2LanguageModel`], [`Gpt2Classifier`] | `transformers` |
//! | BERT | [`BertClassifier`] | `transformers` |
//! | RoBERTa | [`RobertaClassifier`] | `transformers` |
//! | ViT | [`VitClassifier`] | `transformers` |
//! | ResNet | [`TorchvisionResNet`] | `torchvision` |
//!
//! A model is created from its [`Config`] and filled by [`Weights::load_into`]:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use burn::tensor::Device;
//! use burn_dp_models::{Config, Gpt2LanguageModel, Weights};
//!
//! # fn main() -> Result<(), burn_dp_models::ModelError> {
//! let folder = Path::new("gpt2");
//! let Config::Gpt2(config) = Config::read(folder)? else { panic!("not a GPT-2") };
//! let device = Device::flex().autodiff();
//! let model = Gpt2LanguageModel::new(&config, &device);
//! let model = Weights::read(folder)?.load_into(model, None)?;
//! # Ok(())
//! # }
//! ```
//!
//! Dropout of a configuration is not applied: clipping and noise regularize enough, and a model
//! without randomness has the same loss in a batch and on its own.

mod attention;
mod bert;
mod config;
mod error;
pub mod finetune;
mod gpt2;
mod init;
pub mod reference;
mod resnet;
mod tokens;
mod vit;
mod weights;

pub use bert::{BertClassifier, RobertaClassifier, RobertaHead};
pub use config::{ActivationFunction, BertConfig, Config, Gpt2Config, VitConfig};
pub use error::ModelError;
pub use gpt2::{Gpt2, Gpt2Classifier, Gpt2LanguageModel};
pub use resnet::{ResNetNorm, TorchvisionResNet, TorchvisionResNetConfig};
pub use tokens::{Sequence, Tokens};
pub use vit::VitClassifier;
pub use weights::{Adapter, LoraTargets, Weights};

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn_dp::nn::Private;

/// A classifier of token sequences: a pre-trained encoder and a head.
pub trait TextClassifier: Module {
    /// The head, which is the last part of the model.
    type Head: ClassifierHead;

    /// Path of the head in the model.
    const HEAD: &'static str;

    /// Returns one vector for each sequence: the input of the head.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, width]`
    fn features(&self, tokens: &Tokens) -> Tensor<2>;

    /// Returns the head.
    fn head(&self) -> &Self::Head;

    /// Replaces the head.
    fn with_head(self, head: Self::Head) -> Self;

    /// Returns the scores of the classes.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, classes]`
    fn scores(&self, tokens: &Tokens) -> Tensor<2> {
        self.head().scores(self.features(tokens))
    }
}

/// A classifier of images: a pre-trained network and a linear head.
pub trait ImageClassifier: Module {
    /// Returns one vector for each image: the input of the head.
    ///
    /// # Shapes
    ///
    /// - images: `[batch_size, channels, height, width]`
    /// - output: `[batch_size, width]`
    fn features(&self, images: Tensor<4>) -> Tensor<2>;

    /// Returns the head.
    fn head(&self) -> &Private<Linear>;

    /// Replaces the head.
    fn with_head(self, head: Private<Linear>) -> Self;

    /// Returns the scores of the classes.
    ///
    /// # Shapes
    ///
    /// - images: `[batch_size, channels, height, width]`
    /// - output: `[batch_size, classes]`
    fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        self.head().scores(self.features(images))
    }
}

/// The part of a classifier that is applied to one vector for each example.
pub trait ClassifierHead: Module {
    /// Returns the scores of the classes.
    ///
    /// # Shapes
    ///
    /// - features: `[batch_size, width]`
    /// - output: `[batch_size, classes]`
    fn scores(&self, features: Tensor<2>) -> Tensor<2>;
}

impl ClassifierHead for Private<Linear> {
    fn scores(&self, features: Tensor<2>) -> Tensor<2> {
        self.forward(features)
    }
}
