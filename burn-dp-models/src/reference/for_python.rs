//! Models with random adapters, for Python to load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp_examples::training::{TrainError, files};

use super::{CLASSES, EXPECTED, Expected, without_padding};
use crate::weights::{fill_trained, tensors, to_safetensors};
use crate::{
    Adapter, BertClassifier, Config, Gpt2Classifier, Gpt2LanguageModel, ImageClassifier,
    LoraTargets, ModelError, RobertaClassifier, TextClassifier, Tokens, TorchvisionResNet,
    TorchvisionResNetConfig, VitClassifier, Weights,
};

/// Writes, for Python to load again, the model in a folder with random adapters: once merged and
/// once as adapters. Each comes with its scores.
///
/// # Arguments
///
/// - `folder`: a model that classifies texts or images, or a GPT-2 that generates
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
    let expected = Expected::read(&folder.join(EXPECTED))?;
    if let Some(config) = TorchvisionResNetConfig::of(&weights) {
        let (inputs, output) = (("images", expected.tensor("images")?), output.join(name));
        let case = Case { folder, output, weights: &weights, inputs, task: None };
        let model = TorchvisionResNet::new(&config, CLASSES, &device);
        let layers = [("conv1", 2), ("layer2.0.conv2", 3), ("downsample.0", 2)];
        let images = Tensor::<4>::from_data(case.inputs.1.clone(), &device);
        return case
            .write(model, &layers, Some("fc"), |model| values(model.scores(images.clone())));
    }
    let config = Config::read(folder)?;
    let (inputs, task) = match (&config, is_language_model) {
        (Config::Vit(_), _) => ("images", None),
        (_, true) => ("ids", Some("CAUSAL_LM")),
        _ => ("ids", Some("SEQ_CLS")),
    };
    let inputs = (inputs, expected.tensor(inputs)?);
    let case = Case { folder, output: output.join(name), weights: &weights, inputs, task };
    if let Config::Vit(config) = &config {
        let model = VitClassifier::new(config, CLASSES, &device);
        let layers = [("query", 2), ("output.dense", 3), ("projection", 2)];
        let images = Tensor::<4>::from_data(case.inputs.1.clone(), &device);
        return case.write(model, &layers, Some("classifier"), |model| {
            values(model.scores(images.clone()))
        });
    }
    let sequences = expected.sequences()?;
    let tokens = Tokens::new(&sequences.iter().collect::<Vec<_>>(), &device);
    match config {
        Config::Gpt2(config) if is_language_model => {
            let layers = [("c_attn", 2), ("mlp.c_proj", 3), ("wpe", 2)];
            case.write(Gpt2LanguageModel::new(&config, &device), &layers, None, |model| {
                without_padding(model.forward(&tokens), &sequences)
            })
        }
        Config::Gpt2(config) => {
            let model = Gpt2Classifier::new(&config, CLASSES, &device);
            case.write_classifier(model, &[("c_attn", 2)], &tokens)
        }
        Config::Bert(config) => {
            let model = BertClassifier::new(&config, CLASSES, &device);
            let layers = [("query", 2), ("output.dense", 3), ("word_embeddings", 2)];
            case.write_classifier(model, &layers, &tokens)
        }
        Config::Roberta(config) => {
            let model = RobertaClassifier::new(&config, CLASSES, &device);
            case.write_classifier(model, &[("query", 2), ("value", 3)], &tokens)
        }
        // Written above.
        Config::Vit(_) => Ok(()),
    }
}

fn values(scores: Tensor<2>) -> Vec<f64> {
    scores.into_data().iter::<f64>().collect()
}

/// A model that is written for Python.
struct Case<'a> {
    folder: &'a Path,
    output: PathBuf,
    weights: &'a Weights,
    /// Name and values of the inputs.
    inputs: (&'static str, &'a TensorData),
    /// Type of the task in `peft`.
    task: Option<&'static str>,
}

impl Case<'_> {
    fn write_classifier<M: TextClassifier>(
        &self,
        model: M,
        layers: &[(&str, usize)],
        tokens: &Tokens,
    ) -> Result<(), TrainError> {
        self.write(model, layers, Some(M::HEAD), |model| values(model.scores(tokens)))
    }

    fn write<M: Module>(
        &self,
        model: M,
        layers: &[(&str, usize)],
        head: Option<&str>,
        scores: impl Fn(&M) -> Vec<f64>,
    ) -> Result<(), TrainError> {
        let model = self.weights.load_into(model, None)?;
        let layers: Vec<_> = layers.iter().map(|(name, rank)| (name.to_string(), *rank)).collect();
        let failed = |reason: String| TrainError::from(ModelError::new(self.folder, reason));
        let targets = LoraTargets::new(&model, &layers, 6.0, head).map_err(failed)?;
        // The head of the adapter differs from the base. Larger factors than trained ones would
        // amplify rounding.
        let value = |index: usize| 0.1 * (index as f32 + 1.0).sin();
        let model = fill_trained(targets.attach(model)?, head, value);
        let found = scores(&model);

        let base = self.folder.to_string_lossy();
        let adapter = Adapter::of(&model, &targets, &base, head, self.task).map_err(failed)?;
        let folder = self.output.with_extension("adapter");
        files::make_folder(&folder)?;
        files::write_json(&folder.join(Adapter::CONFIG_FILE), adapter.config())?;
        let content = adapter.weights().map_err(failed)?;
        files::write(&folder.join(Adapter::WEIGHTS_FILE), &content)?;
        self.write_scores(&folder, &found)?;

        let folder = self.output.with_extension("merged");
        files::make_folder(&folder)?;
        // A residual network has no configuration.
        let path = self.folder.join("config.json");
        if path.is_file() {
            let config = std::fs::read(&path).map_err(|error| failed(error.to_string()))?;
            files::write(&folder.join("config.json"), &config)?;
        }
        let content = to_safetensors(&tensors(&model.materialize())).map_err(failed)?;
        files::write(&folder.join("model.safetensors"), &content)?;
        self.write_scores(&folder, &found)
    }

    /// Writes the inputs and the scores of a model next to it.
    fn write_scores(&self, folder: &Path, scores: &[f64]) -> Result<(), TrainError> {
        let scores = scores.iter().map(|score| *score as f32).collect::<Vec<_>>();
        let shape = [scores.len()];
        let (name, inputs) = self.inputs;
        let tensors = BTreeMap::from([
            (name.to_string(), inputs.clone().convert::<f32>()),
            ("logits".to_string(), TensorData::new(scores, shape)),
        ]);
        let content = to_safetensors(&tensors);
        let content = content.map_err(|reason| ModelError::new(folder, reason))?;
        files::write(&folder.join("scores.safetensors"), &content)
    }
}
