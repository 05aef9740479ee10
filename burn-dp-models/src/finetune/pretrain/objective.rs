//! The requirements of training on public texts.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use chacha20::ChaCha8Rng;
use rand_core::Rng;
use serde_json::Value;

/// The model and the texts of training.
pub(super) trait Objective {
    /// The network.
    type Model: Module;

    /// Returns the mean loss of the predicted tokens of random sequences.
    fn loss(&self, model: &Self::Model, random: &mut ChaCha8Rng, device: &Device) -> Tensor<1>;
}

/// A training run that has not started.
pub(super) struct Prepared<O: Objective> {
    pub(super) objective: O,
    pub(super) model: O::Model,
    /// Content of `tokenizer.json` and `config.json`.
    pub(super) tokenizer: String,
    pub(super) config: Value,
    /// Number of tokens of all texts.
    pub(super) tokens: usize,
}

/// Returns an index below `count`, or 0 if it is 0.
pub(super) fn below(random: &mut ChaCha8Rng, count: usize) -> usize {
    (random.next_u64() % count.max(1) as u64) as usize
}
