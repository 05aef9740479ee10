//! The image models of the fast-clipping paper.
//!
//! # References
//!
//! J. Lee, D. Kifer: Scaling up differentially private deep learning with fast per-example gradient
//! clipping, 2021, section 6.1.1.

mod bn_lenet5;
mod cnn;
mod mlp;
mod next_token;

pub use bn_lenet5::{BnLeNet5, BnLeNet5Config};
pub use cnn::{Cnn, CnnConfig};
pub use mlp::{Mlp, MlpConfig};
pub use next_token::{NextToken, NextTokenConfig, WindowBatch};

use burn::module::Module;
use burn::tensor::Tensor;

/// A network that scores the classes of images.
pub trait Classifier: Module {
    /// Scores of the classes, not normalised.
    ///
    /// # Shapes
    ///
    /// - images: `[batch_size, 1, 28, 28]`
    /// - output: `[batch_size, 10]`
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
}
