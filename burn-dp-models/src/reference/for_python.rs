//! Models with random adapters, for Python to load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::{Device, TensorData};
use burn_dp_examples::training::{TrainError, files};

use super::{CLASSES, EXPECTED, Expected, without_padding};
use crate::weights::{fill_factors, tensors, to_safetensors};
use crate::{
    Adapter, BertClassifier, Config, Gpt2Classifier, Gpt2LanguageModel, LoraTargets, ModelError,
    RobertaClassifier, Sequence, TextClassifier, Tokens, Weights,
};

/// Writes, for Python to load again, the model in a folder with random adapters: once merged and
/// once as adapters. Each comes with its scores.
///
/// # Arguments
///
/// - `folder`: a model that classifies texts, or a GPT-2 that generates
/// - `output`: receives a folder for each of the two
///
/// # Errors
///
/// Returns [`TrainError`] if a file cannot be read or written.
pub fn write_for_python(folder: &Path, output: &Path) -> Result<(), TrainError> {
    let device = Device::default();
    let weights = Weights::read(folder)?;
    let is_language_model = weights.tensors().keys().all(|name| name.starts_with("transformer."));
    let name = folder.file_name().unwrap_or_default().to_string_lossy().to_string();
    let case = Case { folder, output: output.join(name), weights: &weights };
    match Config::read(folder)? {
        Config::Gpt2(config) if is_language_model => {
            let scores = |model: &Gpt2LanguageModel, tokens: &Tokens, sequences: &[Sequence]| {
                without_padding(model.forward(tokens), sequences)
            };
            let layers = [("c_attn", 2), ("mlp.c_proj", 3), ("wpe", 2)];
            case.write(Gpt2LanguageModel::new(&config, &device), &layers, None, scores)
        }
        Config::Gpt2(config) => {
            let model = Gpt2Classifier::new(&config, CLASSES, &device);
            case.write(model, &[("c_attn", 2)], Some(Gpt2Classifier::HEAD), class_scores)
        }
        Config::Bert(config) => {
            let model = BertClassifier::new(&config, CLASSES, &device);
            let layers = [("query", 2), ("output.dense", 3), ("word_embeddings", 2)];
            case.write(model, &layers, Some(BertClassifier::HEAD), class_scores)
        }
        Config::Roberta(config) => {
            let model = RobertaClassifier::new(&config, CLASSES, &device);
            let layers = [("query", 2), ("value", 3)];
            case.write(model, &layers, Some(RobertaClassifier::HEAD), class_scores)
        }
        Config::Vit(_) => Err(ModelError::new(folder, "is not a model of texts").into()),
    }
}

fn class_scores<M: TextClassifier>(model: &M, tokens: &Tokens, _: &[Sequence]) -> Vec<f64> {
    model.scores(tokens).into_data().iter::<f64>().collect()
}

/// A model that is written for Python.
struct Case<'a> {
    folder: &'a Path,
    output: PathBuf,
    weights: &'a Weights,
}

impl Case<'_> {
    fn write<M: Module>(
        &self,
        model: M,
        layers: &[(&str, usize)],
        head: Option<&str>,
        scores: impl Fn(&M, &Tokens, &[Sequence]) -> Vec<f64>,
    ) -> Result<(), TrainError> {
        let expected = Expected::read(&self.folder.join(EXPECTED))?;
        let sequences = expected.sequences()?;
        let model = self.weights.load_into(model, None)?;
        let layers: Vec<_> = layers.iter().map(|(name, rank)| (name.to_string(), *rank)).collect();
        let failed = |reason: String| TrainError::from(ModelError::new(self.folder, reason));
        let targets = LoraTargets::new(&model, &layers, 6.0, head).map_err(failed)?;
        let model = with_values(targets.attach(model)?);
        let tokens = Tokens::new(&sequences.iter().collect::<Vec<_>>(), &Device::default());
        let found = scores(&model, &tokens, &sequences);
        let ids = expected.tensor("ids")?;

        let base = self.folder.to_string_lossy();
        let task = Some(if head.is_some() { "SEQ_CLS" } else { "CAUSAL_LM" });
        let adapter = Adapter::of(&model, &targets, &base, head, task).map_err(failed)?;
        let folder = self.output.with_extension("adapter");
        files::make_folder(&folder)?;
        files::write_json(&folder.join(Adapter::CONFIG_FILE), adapter.config())?;
        let content = adapter.weights().map_err(failed)?;
        files::write(&folder.join(Adapter::WEIGHTS_FILE), &content)?;
        write_scores(&folder, ids, &found)?;

        let folder = self.output.with_extension("merged");
        files::make_folder(&folder)?;
        let config = std::fs::read(self.folder.join("config.json"))
            .map_err(|error| failed(error.to_string()))?;
        files::write(&folder.join("config.json"), &config)?;
        let content = to_safetensors(&tensors(&model.materialize())).map_err(failed)?;
        files::write(&folder.join("model.safetensors"), &content)?;
        write_scores(&folder, ids, &found)
    }
}

/// Writes the inputs and the scores of a model next to it.
fn write_scores(folder: &Path, ids: &TensorData, scores: &[f64]) -> Result<(), TrainError> {
    let scores = scores.iter().map(|score| *score as f32).collect::<Vec<_>>();
    let shape = [scores.len()];
    let tensors = BTreeMap::from([
        ("ids".to_string(), ids.clone().convert::<f32>()),
        ("logits".to_string(), TensorData::new(scores, shape)),
    ]);
    let content = to_safetensors(&tensors);
    let content = content.map_err(|reason| ModelError::new(folder, reason))?;
    files::write(&folder.join("scores.safetensors"), &content)
}

/// Returns the model with other factors than zeros in its adapters.
fn with_values<M: Module>(model: M) -> M {
    fill_factors(model, |index| 0.3 * (index as f32 + 1.0).sin())
}
