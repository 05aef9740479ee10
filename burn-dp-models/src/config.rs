//! The configuration files of public checkpoints.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Tensor, activation};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ModelError;

/// Name of the file in the folder of a model.
const FILE: &str = "config.json";

/// What the folder of a model must hold, and where to get it.
const CHECKPOINT: &str = "a model is a folder with config.json, model.safetensors or \
     pytorch_model.bin, and for texts tokenizer.json; nothing is downloaded: get a public \
     checkpoint with `hf download openai-community/gpt2 --local-dir gpt2`, for example";

/// The architecture of a checkpoint, from its `config.json`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Config {
    /// A decoder, for generation and classification.
    Gpt2(Gpt2Config),
    /// An encoder with a pooler.
    Bert(BertConfig),
    /// An encoder whose positions start after the padding token.
    Roberta(BertConfig),
    /// An encoder of images.
    Vit(VitConfig),
}

/// Configuration of GPT-2, with the names of `transformers`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Gpt2Config {
    /// Number of tokens.
    pub vocab_size: usize,
    /// Longest sequence.
    pub n_positions: usize,
    /// Width.
    pub n_embd: usize,
    /// Number of blocks.
    pub n_layer: usize,
    /// Number of attention heads.
    pub n_head: usize,
    /// Width of the feed-forward layers; four times the width if absent.
    #[serde(default)]
    pub n_inner: Option<usize>,
    /// Activation of the feed-forward layers.
    #[serde(default)]
    pub activation_function: ActivationFunction,
    /// Added to the variance of a norm.
    #[serde(default = "gpt2_epsilon")]
    pub layer_norm_epsilon: f64,
    /// Token that ends a text.
    #[serde(default)]
    pub eos_token_id: Option<u32>,
}

/// Configuration of BERT and RoBERTa, with the names of `transformers`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BertConfig {
    /// Number of tokens.
    pub vocab_size: usize,
    /// Rows of the positional table.
    pub max_position_embeddings: usize,
    /// Width.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of attention heads.
    pub num_attention_heads: usize,
    /// Width of the feed-forward layers.
    pub intermediate_size: usize,
    /// Number of segments.
    #[serde(default = "two")]
    pub type_vocab_size: usize,
    /// Activation of the feed-forward layers.
    #[serde(default = "gelu")]
    pub hidden_act: ActivationFunction,
    /// Added to the variance of a norm.
    #[serde(default = "bert_epsilon")]
    pub layer_norm_eps: f64,
    /// Padding token; the positions of RoBERTa start after it.
    #[serde(default)]
    pub pad_token_id: Option<u32>,
}

/// Configuration of the vision transformer, with the names of `transformers`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct VitConfig {
    /// Width.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of attention heads.
    pub num_attention_heads: usize,
    /// Width of the feed-forward layers.
    pub intermediate_size: usize,
    /// Height and width of an image.
    pub image_size: usize,
    /// Height and width of a patch.
    pub patch_size: usize,
    /// Number of colors.
    #[serde(default = "three")]
    pub num_channels: usize,
    /// Activation of the feed-forward layers.
    #[serde(default = "gelu")]
    pub hidden_act: ActivationFunction,
    /// Added to the variance of a norm.
    #[serde(default = "bert_epsilon")]
    pub layer_norm_eps: f64,
}

impl VitConfig {
    /// Returns the number of patches of an image.
    pub fn patches(&self) -> usize {
        let side = self.image_size.checked_div(self.patch_size).unwrap_or(0);
        side * side
    }
}

/// An activation by its name in a configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationFunction {
    /// GELU with the error function.
    Gelu,
    /// GELU with the hyperbolic tangent.
    #[default]
    #[serde(alias = "gelu_pytorch_tanh", alias = "gelu_fast")]
    GeluNew,
    /// Rectified linear unit.
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// Sigmoid linear unit.
    #[serde(alias = "swish")]
    Silu,
}

impl ActivationFunction {
    /// Applies the activation.
    pub fn forward<const D: usize>(self, input: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Gelu => activation::gelu(input),
            Self::GeluNew => activation::gelu_approximate(input),
            Self::Relu => activation::relu(input),
            Self::Tanh => activation::tanh(input),
            Self::Silu => activation::silu(input),
        }
    }
}

fn gelu() -> ActivationFunction {
    ActivationFunction::Gelu
}

fn two() -> usize {
    2
}

fn three() -> usize {
    3
}

fn gpt2_epsilon() -> f64 {
    1e-5
}

fn bert_epsilon() -> f64 {
    1e-12
}

/// No model has more layers, tokens or positions, or a larger width.
const LARGEST: usize = 1 << 24;

/// Options that change the computation, with the only supported value.
const FIXED: &[(&str, Value)] = &[
    ("scale_attn_weights", Value::Bool(true)),
    ("scale_attn_by_inverse_layer_idx", Value::Bool(false)),
    ("add_cross_attention", Value::Bool(false)),
    ("is_decoder", Value::Bool(false)),
    ("tie_word_embeddings", Value::Bool(true)),
    ("qkv_bias", Value::Bool(true)),
];

impl Config {
    /// Reads `config.json` in the folder of a model.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] if the file cannot be read, if the architecture or one of its options
    /// is not supported, or if the heads do not divide the width.
    pub fn read(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join(FILE);
        let text = Self::text(folder)?;
        Self::parse(&text).map_err(|reason| ModelError::new(&path, reason))
    }

    /// Returns the content of `config.json`.
    fn text(folder: &Path) -> Result<String, ModelError> {
        let path = folder.join(FILE);
        std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                let lacks = match folder.is_dir() {
                    true => format!("has no {FILE}"),
                    false => "is not a folder".into(),
                };
                ModelError::new(folder, format!("{lacks}; {CHECKPOINT}"))
            }
            _ => ModelError::new(&path, error),
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (name, supported) in FIXED {
            if let Some(value) = json.get(name).filter(|value| *value != supported) {
                return Err(format!("`{name}` is {value}, and only {supported} is supported"));
            }
        }
        if let Some(value) = json.get("position_embedding_type").filter(|v| *v != "absolute") {
            return Err(format!(
                "`position_embedding_type` is {value}, and only \"absolute\" is supported"
            ));
        }
        let config = match json.get("model_type").and_then(Value::as_str) {
            Some("gpt2") => Self::Gpt2(fields(json)?),
            Some("bert") => Self::Bert(fields(json)?),
            Some("roberta") => Self::Roberta(fields(json)?),
            Some("vit") => Self::Vit(fields(json)?),
            Some(other) => {
                return Err(format!(
                    "`model_type` is \"{other}\"; supported are gpt2, bert, roberta and vit"
                ));
            }
            None => return Err("`model_type` is missing, so the architecture is unknown".into()),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let (width, heads) = match self {
            Self::Gpt2(config) => (config.n_embd, config.n_head),
            Self::Bert(config) | Self::Roberta(config) => {
                (config.hidden_size, config.num_attention_heads)
            }
            Self::Vit(config) => (config.hidden_size, config.num_attention_heads),
        };
        if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            return Err(format!("a width of {width} cannot be divided among {heads} heads"));
        }
        if self.max_length() == 0 || self.vocab_size() == 0 {
            let reason = "must have at least one position and one token (or color channel)";
            return Err(format!("the model {reason}"));
        }
        let layers = match self {
            Self::Gpt2(config) => config.n_layer,
            Self::Bert(config) | Self::Roberta(config) => config.num_hidden_layers,
            Self::Vit(config) => config.num_hidden_layers,
        };
        let sizes = [("width", width), ("number of layers", layers)];
        let sizes = sizes
            .into_iter()
            .chain([("length", self.max_length()), ("vocabulary", self.vocab_size())]);
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size > LARGEST) {
            return Err(format!(
                "a {name} of {size} is larger than any model has; repair the file"
            ));
        }
        Ok(())
    }

    /// Returns the longest sequence of tokens or patches.
    pub fn max_length(&self) -> usize {
        match self {
            Self::Gpt2(config) => config.n_positions,
            Self::Bert(config) => config.max_position_embeddings,
            Self::Roberta(config) => {
                config.max_position_embeddings.saturating_sub(config.first_position())
            }
            Self::Vit(config) => config.patches(),
        }
    }

    /// Returns the number of tokens, or of colors.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Gpt2(config) => config.vocab_size,
            Self::Bert(config) | Self::Roberta(config) => config.vocab_size,
            Self::Vit(config) => config.num_channels,
        }
    }

    /// Returns the names of the classes in `config.json`, in order; empty if it has none.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] if the file cannot be read.
    pub fn labels(folder: &Path) -> Result<Vec<String>, ModelError> {
        #[derive(Deserialize, Default)]
        struct Labels {
            #[serde(default)]
            id2label: BTreeMap<String, String>,
        }
        let path = folder.join(FILE);
        let text = Self::text(folder)?;
        let Labels { id2label } =
            serde_json::from_str(&text).map_err(|error| ModelError::new(&path, error))?;
        (0..id2label.len())
            .map(|id| {
                let name = id2label.get(&id.to_string()).cloned();
                name.ok_or_else(|| ModelError::new(&path, format!("`id2label` has no class {id}")))
            })
            .collect()
    }
}

impl BertConfig {
    /// Returns the row of the first position of RoBERTa, which follows the padding token.
    pub(crate) fn first_position(&self) -> usize {
        self.pad_token_id.unwrap_or(1) as usize + 1
    }
}

/// Returns the fields of a configuration, or a message with the key that cannot be read.
fn fields<C: DeserializeOwned>(json: Value) -> Result<C, String> {
    let parse = |json| serde_json::from_value::<C>(json).map_err(|error| error.to_string());
    parse(json.clone()).map_err(|reason| {
        let object = json.as_object().cloned().unwrap_or_default();
        // Without the key of the fault the message is another one.
        let is_fault = |key: &&String| {
            let others = object.clone().into_iter().filter(|(other, _)| other != *key);
            parse(others.collect()).err().as_ref() != Some(&reason)
        };
        let key = object.keys().find(is_fault).filter(|_| !reason.starts_with("missing field"));
        key.map_or_else(|| reason.clone(), |key| format!("`{key}`: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const GPT2: &str = r#""model_type": "gpt2", "vocab_size": 40, "n_positions": 16, "n_embd": 8,
        "n_layer": 1, "n_head": 2"#;

    #[test]
    fn an_unknown_value_is_named_with_what_is_supported() {
        for (text, expected) in [
            (r#"{"model_type": "llama"}"#.to_string(), "\"llama\"; supported are gpt2"),
            ("{}".into(), "`model_type` is missing"),
            (format!(r#"{{{GPT2}, "activation_function": "mish"}}"#), "`mish`"),
            (format!(r#"{{{GPT2}, "tie_word_embeddings": false}}"#), "only true is supported"),
            (format!(r#"{{{GPT2}, "position_embedding_type": "x"}}"#), "\"absolute\""),
            (GPT2.replace("\"n_head\": 2", "\"n_head\": 3"), "among 3 heads"),
            (GPT2.replace("\"n_layer\": 1", "\"n_layer\": 1000000000000"), "number of layers of 1"),
            (GPT2.replace("_size\": 40", "_size\": 1000000000000"), "a vocabulary of 1000"),
            (r#"{"model_type": "bert"}"#.into(), "missing field `vocab_size`"),
            (format!(r#"{{{GPT2}, "eos_token_id": [0]}}"#), "`eos_token_id`: invalid type"),
            (GPT2.replace("\"n_embd\": 8", "\"n_embd\": \"8\""), "`n_embd`: invalid type"),
        ] {
            let text = if text.starts_with('{') { text } else { format!("{{{text}}}") };
            let error = Config::parse(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_missing_folder_or_file_is_named_with_what_a_model_is() {
        let folder = tempfile::tempdir().unwrap();
        for (path, expected) in [
            (folder.path().to_path_buf(), "has no config.json; a model is a folder"),
            (folder.path().join("gpt2"), "gpt2: is not a folder; a model is a folder"),
        ] {
            let error = Config::read(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("hf download"), "{error}");
        }
    }

    #[test]
    fn absent_options_have_the_defaults_of_the_architecture() {
        let Config::Gpt2(config) = Config::parse(&format!("{{{GPT2}}}")).unwrap() else {
            panic!("not a GPT-2")
        };
        assert_eq!(config.activation_function, ActivationFunction::GeluNew);
        assert_eq!((config.layer_norm_epsilon, config.n_inner), (1e-5, None));
    }
}
