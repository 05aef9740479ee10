//! BERT and RoBERTa with classification heads.

use burn::module::{Module, Param};
use burn::nn::{Embedding, Initializer, LayerNorm, Linear};
use burn::tensor::{Bool, Device, Int, Tensor};
use burn_dp::nn::Private;

use crate::attention::attend;
use crate::init::{linear, norm, table};
use crate::{ActivationFunction, BertConfig, ClassifierHead, TextClassifier, Tokens};

/// The encoder of both models; BERT has a pooler.
#[derive(Module, Debug)]
struct BertEncoder {
    embeddings: BertEmbeddings,
    encoder: BertLayers,
    pooler: Option<BertDense>,
}

#[derive(Module, Debug)]
struct BertEmbeddings {
    word_embeddings: Private<Embedding>,
    position_embeddings: Private<Embedding>,
    token_type_embeddings: Private<Embedding>,
    layer_norm: Private<LayerNorm>,
}

#[derive(Module, Debug)]
struct BertLayers {
    layer: Vec<BertLayer>,
}

#[derive(Module, Debug)]
struct BertLayer {
    attention: BertAttention,
    intermediate: BertDense,
    output: BertOutput,
    #[module(skip)]
    activation: ActivationFunction,
}

#[derive(Module, Debug)]
struct BertAttention {
    self_attention: SelfAttention,
    output: BertOutput,
}

#[derive(Module, Debug)]
struct SelfAttention {
    query: Private<Linear>,
    key: Private<Linear>,
    value: Private<Linear>,
    heads: usize,
}

/// A projection, and the norm of its sum with the input of the layer.
#[derive(Module, Debug)]
struct BertOutput {
    dense: Private<Linear>,
    layer_norm: Private<LayerNorm>,
}

#[derive(Module, Debug)]
struct BertDense {
    dense: Private<Linear>,
}

impl BertEncoder {
    fn new(config: &BertConfig, device: &Device) -> Self {
        let (width, epsilon) = (config.hidden_size, config.layer_norm_eps);
        let project = || linear(width, width, device);
        let output = |d_input| BertOutput {
            dense: linear(d_input, width, device),
            layer_norm: norm(width, epsilon, device),
        };
        let layer = |_| BertLayer {
            attention: BertAttention {
                self_attention: SelfAttention {
                    query: project(),
                    key: project(),
                    value: project(),
                    heads: config.num_attention_heads,
                },
                output: output(width),
            },
            intermediate: BertDense { dense: linear(width, config.intermediate_size, device) },
            output: output(config.intermediate_size),
            activation: config.hidden_act,
        };
        Self {
            embeddings: BertEmbeddings {
                word_embeddings: table(config.vocab_size, width, device),
                position_embeddings: table(config.max_position_embeddings, width, device),
                token_type_embeddings: table(config.type_vocab_size, width, device),
                layer_norm: norm(width, epsilon, device),
            },
            encoder: BertLayers { layer: (0..config.num_hidden_layers).map(layer).collect() },
            pooler: None,
        }
    }

    /// Returns the vectors of all positions; padding is masked.
    fn forward(&self, tokens: &Tokens, positions: Tensor<2, Int>) -> Tensor<3> {
        let [rows, length] = tokens.ids.dims();
        let mask = tokens.padding.clone().reshape([rows, 1, 1, length]);
        let BertEmbeddings { word_embeddings, position_embeddings, .. } = &self.embeddings;
        let embedded = word_embeddings.forward(tokens.ids.clone())
            + position_embeddings.forward(positions)
            // One segment.
            + self.embeddings.token_type_embeddings.forward(tokens.ids.zeros_like());
        let embedded = self.embeddings.layer_norm.forward(embedded);
        self.encoder.layer.iter().fold(embedded, |hidden, layer| layer.forward(hidden, &mask))
    }

    /// Returns the vector of each sequence, `[batch_size, width]`.
    fn pooled(&self, hidden: Tensor<3>) -> Tensor<2> {
        let first = first(hidden);
        match &self.pooler {
            Some(pooler) => pooler.dense.forward(first).tanh(),
            None => first,
        }
    }
}

impl BertLayer {
    fn forward(&self, input: Tensor<3>, mask: &Tensor<4, Bool>) -> Tensor<3> {
        let SelfAttention { query, key, value, heads } = &self.attention.self_attention;
        let projected = [query, key, value].map(|layer| layer.forward(input.clone()));
        let context = attend(projected, *heads, Some(mask.clone()));
        let hidden = self.attention.output.forward(context, input);
        let inner = self.activation.forward(self.intermediate.dense.forward(hidden.clone()));
        self.output.forward(inner, hidden)
    }
}

impl BertOutput {
    fn forward(&self, input: Tensor<3>, residual: Tensor<3>) -> Tensor<3> {
        self.layer_norm.forward(self.dense.forward(input) + residual)
    }
}

/// Returns the vector of the first token of each sequence, `[batch_size, width]`.
fn first(hidden: Tensor<3>) -> Tensor<2> {
    let [rows, _, width] = hidden.dims();
    hidden.narrow(1, 0, 1).reshape([rows, width])
}

/// BERT that predicts masked tokens, and whether two parts are from one text. The output layer of
/// the tokens is their embedding.
///
/// The bias of the output layer is not private: this model is for ordinary training.
#[derive(Module, Debug)]
pub(crate) struct BertPreTraining {
    bert: BertEncoder,
    cls: PreTrainingHeads,
}

#[derive(Module, Debug)]
struct PreTrainingHeads {
    predictions: Predictions,
    seq_relationship: Private<Linear>,
}

#[derive(Module, Debug)]
struct Predictions {
    transform: Transform,
    bias: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Transform {
    dense: Private<Linear>,
    layer_norm: Private<LayerNorm>,
    #[module(skip)]
    activation: ActivationFunction,
}

impl BertPreTraining {
    /// Creates a model with random weights.
    pub(crate) fn new(config: &BertConfig, device: &Device) -> Self {
        let width = config.hidden_size;
        let transform = Transform {
            dense: linear(width, width, device),
            layer_norm: norm(width, config.layer_norm_eps, device),
            activation: config.hidden_act,
        };
        let bias = Initializer::Zeros.init([config.vocab_size], device);
        let pooler = Some(BertDense { dense: linear(width, width, device) });
        Self {
            bert: BertEncoder { pooler, ..BertEncoder::new(config, device) },
            cls: PreTrainingHeads {
                predictions: Predictions { transform, bias },
                seq_relationship: linear(width, 2, device),
            },
        }
    }

    /// Returns the scores of the tokens at some places, and the scores of "one text" and "two
    /// texts" for each sequence.
    ///
    /// # Shapes
    ///
    /// - places: `[places]`, indices of `[batch_size · length]`
    /// - output: `[places, vocabulary]` and `[batch_size, 2]`
    pub(crate) fn forward(
        &self,
        tokens: &Tokens,
        places: Tensor<1, Int>,
    ) -> (Tensor<2>, Tensor<2>) {
        let hidden = self.bert.forward(tokens, tokens.positions());
        let pairs = self.cls.seq_relationship.forward(self.bert.pooled(hidden.clone()));
        let hidden = hidden.flatten::<2>(0, 1).select(0, places);
        let Predictions { transform, bias } = &self.cls.predictions;
        let hidden = transform.activation.forward(transform.dense.forward(hidden));
        let hidden = transform.layer_norm.forward(hidden);
        let scores = self.bert.embeddings.word_embeddings.attend(hidden);
        (scores + bias.val().unsqueeze(), pairs)
    }
}

/// BERT that classifies a sequence by its first token.
///
/// # References
///
/// Devlin et al., BERT: pre-training of deep bidirectional transformers, 2019, section 3.
#[derive(Module, Debug)]
pub struct BertClassifier {
    bert: BertEncoder,
    classifier: Private<Linear>,
}

impl BertClassifier {
    /// Creates a model with random weights.
    pub fn new(config: &BertConfig, classes: usize, device: &Device) -> Self {
        let width = config.hidden_size;
        let pooler = Some(BertDense { dense: linear(width, width, device) });
        Self {
            bert: BertEncoder { pooler, ..BertEncoder::new(config, device) },
            classifier: linear(width, classes, device),
        }
    }
}

impl TextClassifier for BertClassifier {
    type Head = Private<Linear>;

    const HEAD: &'static str = "classifier";

    fn features(&self, tokens: &Tokens) -> Tensor<2> {
        self.bert.pooled(self.bert.forward(tokens, tokens.positions()))
    }

    fn head(&self) -> &Self::Head {
        &self.classifier
    }

    fn with_head(self, head: Self::Head) -> Self {
        Self { classifier: head, ..self }
    }
}

/// RoBERTa that classifies a sequence by its first token.
///
/// # References
///
/// Liu et al., RoBERTa: a robustly optimized BERT pretraining approach, 2019.
#[derive(Module, Debug)]
pub struct RobertaClassifier {
    roberta: BertEncoder,
    classifier: RobertaHead,
    first_position: usize,
}

/// The head of [`RobertaClassifier`]: two layers.
#[derive(Module, Debug)]
pub struct RobertaHead {
    dense: Private<Linear>,
    out_proj: Private<Linear>,
}

impl RobertaClassifier {
    /// Creates a model with random weights.
    pub fn new(config: &BertConfig, classes: usize, device: &Device) -> Self {
        let width = config.hidden_size;
        Self {
            roberta: BertEncoder::new(config, device),
            classifier: RobertaHead {
                dense: linear(width, width, device),
                out_proj: linear(width, classes, device),
            },
            first_position: config.first_position(),
        }
    }
}

impl TextClassifier for RobertaClassifier {
    type Head = RobertaHead;

    const HEAD: &'static str = "classifier";

    fn features(&self, tokens: &Tokens) -> Tensor<2> {
        // Padding has the row before the first position.
        let positions = tokens.positions() + self.first_position as i64;
        let positions = positions.mask_fill(tokens.padding.clone(), self.first_position as i64 - 1);
        first(self.roberta.forward(tokens, positions))
    }

    fn head(&self) -> &RobertaHead {
        &self.classifier
    }

    fn with_head(self, head: RobertaHead) -> Self {
        Self { classifier: head, ..self }
    }
}

impl ClassifierHead for RobertaHead {
    fn scores(&self, features: Tensor<2>) -> Tensor<2> {
        self.out_proj.forward(self.dense.forward(features).tanh())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::tokens::tests::{assert_padding_has_no_effect, constant, golden};

    #[test]
    fn padding_has_no_effect_if_all_scores_are_very_low() {
        let Config::Bert(config) = golden("bert-classify") else { panic!("no BERT") };
        let mut model = BertClassifier::new(&config, 3, &Device::flex().autodiff());
        for layer in &mut model.bert.encoder.layer {
            let SelfAttention { query, key, .. } = &mut layer.attention.self_attention;
            *query = constant(query, &[Some(256.0)]);
            *key = constant(key, &[Some(-256.0)]);
        }
        assert_padding_has_no_effect(&model);
    }
}
