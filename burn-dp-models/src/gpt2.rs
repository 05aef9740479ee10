//! GPT-2.

use burn::module::Module;
use burn::nn::{Embedding, LayerNorm, Linear};
use burn::tensor::{Bool, Device, Tensor};
use burn_dp::nn::Private;

use crate::attention::attend;
use crate::init::{linear, norm, table, without_bias};
use crate::{ActivationFunction, Gpt2Config, TextClassifier, Tokens};

/// The decoder: embeddings, blocks and a norm.
///
/// # References
///
/// Radford et al., Language models are unsupervised multitask learners, 2019, section 2.3.
#[derive(Module, Debug)]
pub struct Gpt2 {
    wte: Private<Embedding>,
    wpe: Private<Embedding>,
    h: Vec<Gpt2Block>,
    ln_f: Private<LayerNorm>,
}

#[derive(Module, Debug)]
struct Gpt2Block {
    ln_1: Private<LayerNorm>,
    attn: Gpt2Attention,
    ln_2: Private<LayerNorm>,
    mlp: Gpt2Mlp,
}

#[derive(Module, Debug)]
struct Gpt2Attention {
    /// Query, key and value in one matrix.
    c_attn: Private<Linear>,
    c_proj: Private<Linear>,
    heads: usize,
}

#[derive(Module, Debug)]
struct Gpt2Mlp {
    c_fc: Private<Linear>,
    c_proj: Private<Linear>,
    #[module(skip)]
    activation: ActivationFunction,
}

impl Gpt2 {
    /// Creates a decoder with random weights.
    pub fn new(config: &Gpt2Config, device: &Device) -> Self {
        let width = config.n_embd;
        let inner = config.n_inner.unwrap_or(4 * width);
        let block = |_| Gpt2Block {
            ln_1: norm(width, config.layer_norm_epsilon, device),
            attn: Gpt2Attention {
                c_attn: linear(width, 3 * width, device),
                c_proj: linear(width, width, device),
                heads: config.n_head,
            },
            ln_2: norm(width, config.layer_norm_epsilon, device),
            mlp: Gpt2Mlp {
                c_fc: linear(width, inner, device),
                c_proj: linear(inner, width, device),
                activation: config.activation_function,
            },
        };
        Self {
            wte: table(config.vocab_size, width, device),
            wpe: table(config.n_positions, width, device),
            h: (0..config.n_layer).map(block).collect(),
            ln_f: norm(width, config.layer_norm_epsilon, device),
        }
    }

    /// Returns the vectors of all positions.
    ///
    /// Every position attends to itself and to earlier positions, so padding at the end has no
    /// effect.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, length, width]`
    pub fn forward(&self, tokens: &Tokens) -> Tensor<3> {
        let [_, length] = tokens.ids.dims();
        let device = tokens.ids.device();
        let mask = Tensor::<2, Bool>::tril_mask([length, length], 0, &device);
        let mask = mask.reshape([1, 1, length, length]);
        let embedded = self.wte.forward(tokens.ids.clone()) + self.wpe.forward(tokens.positions());
        let hidden = self.h.iter().fold(embedded, |hidden, block| block.forward(hidden, &mask));
        self.ln_f.forward(hidden)
    }
}

impl Gpt2Block {
    fn forward(&self, input: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let hidden = input.clone() + self.attn.forward(self.ln_1.forward(input), mask);
        hidden.clone() + self.mlp.forward(self.ln_2.forward(hidden))
    }
}

impl Gpt2Attention {
    fn forward(&self, input: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let [.., width] = input.dims();
        let projected = self.c_attn.forward(input);
        let part = |index: usize| projected.clone().narrow(2, index * width, width);
        let context = attend([part(0), part(1), part(2)], self.heads, Some(mask.clone()));
        self.c_proj.forward(context)
    }
}

impl Gpt2Mlp {
    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        self.c_proj.forward(self.activation.forward(self.c_fc.forward(input)))
    }
}

/// GPT-2 that predicts the next token. The output layer is the embedding of the tokens; both uses
/// are one parameter, whose gradients are added before the norm is taken.
#[derive(Module, Debug)]
pub struct Gpt2LanguageModel {
    transformer: Gpt2,
}

impl Gpt2LanguageModel {
    /// Creates a model with random weights.
    pub fn new(config: &Gpt2Config, device: &Device) -> Self {
        Self { transformer: Gpt2::new(config, device) }
    }

    /// Returns the scores of the token after each position.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, length, vocabulary]`
    pub fn forward(&self, tokens: &Tokens) -> Tensor<3> {
        self.transformer.wte.attend(self.transformer.forward(tokens))
    }

    /// Returns the scores of the token after each sequence.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, vocabulary]`
    pub fn next(&self, tokens: &Tokens) -> Tensor<2> {
        let last = tokens.of_last(self.transformer.forward(tokens));
        self.transformer.wte.attend(last)
    }
}

/// GPT-2 that classifies a sequence by its last token.
#[derive(Module, Debug)]
pub struct Gpt2Classifier {
    transformer: Gpt2,
    score: Private<Linear>,
}

impl Gpt2Classifier {
    /// Creates a model with random weights.
    pub fn new(config: &Gpt2Config, classes: usize, device: &Device) -> Self {
        let score = without_bias(config.n_embd, classes, device);
        Self { transformer: Gpt2::new(config, device), score }
    }
}

impl TextClassifier for Gpt2Classifier {
    type Head = Private<Linear>;

    const HEAD: &'static str = "score";

    fn features(&self, tokens: &Tokens) -> Tensor<2> {
        tokens.of_last(self.transformer.forward(tokens))
    }

    fn head(&self) -> &Self::Head {
        &self.score
    }

    fn with_head(self, head: Self::Head) -> Self {
        Self { score: head, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::tokens::tests::{assert_padding_has_no_effect, constant, golden};

    #[test]
    fn padding_has_no_effect_if_all_scores_are_very_low() {
        let Config::Gpt2(config) = golden("gpt2-classify") else { panic!("no GPT-2") };
        let mut model = Gpt2Classifier::new(&config, 3, &Device::flex().autodiff());
        for block in &mut model.transformer.h {
            // Query, key and value.
            let parts = [Some(256.0), Some(-256.0), None];
            block.attn.c_attn = constant(&block.attn.c_attn, &parts);
        }
        assert_padding_has_no_effect(&model);
    }
}
