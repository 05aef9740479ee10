//! Layers with the initial values of public models.

use burn::nn::{
    Embedding, EmbeddingConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::Device;
use burn_dp::nn::{IntoPrivate, Private};

/// The weights of a model that is not loaded, and of new heads.
const WEIGHTS: Initializer = Initializer::Normal { mean: 0.0, std: 0.02 };

/// Returns a linear layer with small random weights and a bias of zero.
pub(crate) fn linear(d_input: usize, d_output: usize, device: &Device) -> Private<Linear> {
    let mut layer = LinearConfig::new(d_input, d_output).with_initializer(WEIGHTS).init(device);
    layer.bias = Some(Initializer::Zeros.init([d_output], device));
    layer.private()
}

/// Returns a linear layer with small random weights and no bias.
pub(crate) fn without_bias(d_input: usize, d_output: usize, device: &Device) -> Private<Linear> {
    let config = LinearConfig::new(d_input, d_output).with_bias(false);
    config.with_initializer(WEIGHTS).init(device).private()
}

/// Returns a table with small random rows.
pub(crate) fn table(rows: usize, width: usize, device: &Device) -> Private<Embedding> {
    EmbeddingConfig::new(rows, width).with_initializer(WEIGHTS).init(device).private()
}

/// Returns a norm of the last axis.
pub(crate) fn norm(width: usize, epsilon: f64, device: &Device) -> Private<LayerNorm> {
    LayerNormConfig::new(width).with_epsilon(epsilon).init(device).private()
}
