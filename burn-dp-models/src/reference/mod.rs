//! Comparison with results that the original Python libraries computed.
//!
//! `tests/python/reference.py` writes a model and its expected results into a folder.

mod for_python;

pub use for_python::write_for_python;

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::optim::SgdConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;
use burn_dp_examples::training::TrainError;
use serde::Serialize;

use crate::weights::tensors;
use crate::{
    Adapter, BertClassifier, Config, Gpt2Classifier, Gpt2LanguageModel, ImageClassifier,
    LoraTargets, ModelError, RobertaClassifier, Sequence, TextClassifier, Tokens,
    TorchvisionResNet, TorchvisionResNetConfig, VitClassifier, Weights,
};

/// Number of classes of the models.
const CLASSES: usize = 3;

/// Name of the file with the expected results.
const EXPECTED: &str = "expected.safetensors";

/// Noise over the sensitivity, far below the compared values.
const NO_NOISE: f64 = 1e-9;

/// The largest differences between a model and its reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// Number of values of the model.
    pub parameters: usize,
    /// Number of examples.
    pub examples: usize,
    /// Largest difference of a score.
    pub scores: f64,
    /// Largest relative difference of the norm of an example's gradient.
    pub norms: f64,
    /// Largest difference of a value of the clipped sum, relative to the clipping threshold.
    pub sums: f64,
}

impl Comparison {
    /// Returns whether only rounding differs: scores differ by at most 1e-5, the
    /// rest by at most 1e-4.
    pub fn agrees(&self) -> bool {
        self.scores <= 1e-5 && self.norms <= 1e-4 && self.sums <= 1e-4
    }
}

/// Compares the model in a folder with its reference.
///
/// The gradients go through the optimizer of burn-dp: all examples in one padded batch, clipped,
/// and one step of gradient descent with almost no noise.
///
/// # Errors
///
/// Returns [`TrainError`] if a file cannot be read, or if the training rejects the model.
pub fn compare(folder: &Path) -> Result<Comparison, TrainError> {
    let device = Device::default().autodiff();
    let weights = Weights::read(folder)?;
    let expected = Expected::read(&folder.join(EXPECTED))?;
    if let Some(config) = TorchvisionResNetConfig::of(&weights) {
        let model = weights.load_into(TorchvisionResNet::new(&config, CLASSES, &device), None)?;
        return expected.compare_images(model, &device, TorchvisionResNet::scores);
    }
    let config = Config::read(folder)?;
    let is_language_model = weights.tensors().keys().all(|name| name.starts_with("transformer."));
    match config {
        Config::Gpt2(config) if is_language_model => {
            let model = weights.load_into(Gpt2LanguageModel::new(&config, &device), None)?;
            expected.compare_language_model(model, &device)
        }
        Config::Gpt2(config) => {
            let model = weights.load_into(Gpt2Classifier::new(&config, CLASSES, &device), None)?;
            expected.compare_classifier(model, &device)
        }
        Config::Bert(config) => {
            let model = weights.load_into(BertClassifier::new(&config, CLASSES, &device), None)?;
            expected.compare_classifier(model, &device)
        }
        Config::Roberta(config) => {
            let model = RobertaClassifier::new(&config, CLASSES, &device);
            expected.compare_classifier(weights.load_into(model, None)?, &device)
        }
        Config::Vit(config) => {
            let model = weights.load_into(VitClassifier::new(&config, CLASSES, &device), None)?;
            expected.compare_images(model, &device, VitClassifier::scores)
        }
    }
}

/// Compares the scores of a language model with an adapter that `peft` wrote, and returns the
/// largest difference.
///
/// # Arguments
///
/// - `folder`: the model; its subfolder `adapter` has the adapter
/// - `layers`, `alpha`: as in [`LoraTargets::new`]
///
/// # Errors
///
/// Returns [`TrainError`] if a file cannot be read.
pub fn compare_adapter(
    folder: &Path,
    layers: &[(String, usize)],
    alpha: f64,
) -> Result<f64, TrainError> {
    let device = Device::default();
    let path = folder.join("adapter").join(Adapter::WEIGHTS_FILE);
    let Config::Gpt2(config) = Config::read(folder)? else {
        return Err(ModelError::new(folder, "is not a GPT-2").into());
    };
    let model = Gpt2LanguageModel::new(&config, &device);
    let model = Weights::read(folder)?.load_into(model, None)?;
    let targets = LoraTargets::new(&model, layers, alpha, None);
    let targets = targets.map_err(|reason| ModelError::new(folder, reason))?;
    let model = Adapter::load_into(&Weights::read_file(&path)?, targets.attach(model)?)?;
    let expected = Expected::read(&folder.join(EXPECTED))?;
    let with_adapter = Expected::read(&folder.join("adapter").join(EXPECTED))?;
    let sequences = expected.sequences()?;
    let tokens = Tokens::new(&sequences.iter().collect::<Vec<_>>(), &device);
    let found = without_padding(model.forward(&tokens), &sequences);
    Ok(largest_difference(&found, &with_adapter.values("logits")?))
}

/// The expected results, by name.
struct Expected {
    weights: Weights,
}

impl Expected {
    fn read(path: &Path) -> Result<Self, TrainError> {
        Ok(Self { weights: Weights::read_file(path)? })
    }

    fn tensor(&self, name: &str) -> Result<&TensorData, TrainError> {
        let found = self.weights.tensors().get(name);
        Ok(found.ok_or_else(|| ModelError::new(self.weights.path(), format!("has no {name}")))?)
    }

    fn values(&self, name: &str) -> Result<Vec<f64>, TrainError> {
        Ok(self.tensor(name)?.iter::<f64>().collect())
    }

    fn labels(&self) -> Result<Vec<i64>, TrainError> {
        Ok(self.tensor("labels")?.iter::<i64>().collect())
    }

    /// Returns the texts; negative ids are padding.
    fn sequences(&self) -> Result<Vec<Sequence>, TrainError> {
        let ids = self.tensor("ids")?;
        let length = ids.shape()[1];
        let ids = ids.iter::<i64>().collect::<Vec<_>>();
        let given = self.tensor("given")?.iter::<i64>();
        let sequence = |(ids, given): (&[i64], i64)| Sequence {
            ids: ids.iter().filter_map(|id| u32::try_from(*id).ok()).collect(),
            given: given as usize,
        };
        Ok(ids.chunks(length).zip(given).map(sequence).collect())
    }

    fn compare_classifier<M: TextClassifier>(
        &self,
        model: M,
        device: &Device,
    ) -> Result<Comparison, TrainError> {
        let (sequences, labels) = (self.sequences()?, self.labels()?);
        let tokens = |rows: &[usize]| {
            Tokens::new(&rows.iter().map(|row| &sequences[*row]).collect::<Vec<_>>(), device)
        };
        let all: Vec<usize> = (0..sequences.len()).collect();
        let scores = model.scores(&tokens(&all)).into_data().iter::<f64>().collect();
        let loss = CrossEntropyLossConfig::new().init();
        self.compare(model, scores, &|model: &M, rows| {
            let labels = rows.iter().map(|row| labels[*row]).collect::<Vec<_>>();
            let labels = Tensor::<1, Int>::from_ints(labels.as_slice(), device);
            loss.forward(model.scores(&tokens(rows)), labels)
        })
    }

    fn compare_language_model(
        &self,
        model: Gpt2LanguageModel,
        device: &Device,
    ) -> Result<Comparison, TrainError> {
        let sequences = self.sequences()?;
        let tokens = |rows: &[usize]| {
            Tokens::new(&rows.iter().map(|row| &sequences[*row]).collect::<Vec<_>>(), device)
        };
        let all: Vec<usize> = (0..sequences.len()).collect();
        let scores = without_padding(model.forward(&tokens(&all)), &sequences);
        let config = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![Tokens::IGNORED]));
        let loss = config.init();
        self.compare(model, scores, &|model: &Gpt2LanguageModel, rows| {
            let tokens = tokens(rows);
            loss.forward_sequence(model.forward(&tokens), tokens.next)
        })
    }

    fn compare_images<M: Module>(
        &self,
        model: M,
        device: &Device,
        forward: fn(&M, Tensor<4>) -> Tensor<2>,
    ) -> Result<Comparison, TrainError> {
        let labels = self.labels()?;
        let images = Tensor::<4>::from_data(self.tensor("images")?.clone(), device);
        let scores = forward(&model, images.clone()).into_data().iter::<f64>().collect();
        let loss = CrossEntropyLossConfig::new().init();
        self.compare(model, scores, &|model: &M, rows| {
            let labels = rows.iter().map(|row| labels[*row]).collect::<Vec<_>>();
            let labels = Tensor::<1, Int>::from_ints(labels.as_slice(), device);
            let rows = rows.iter().map(|row| *row as i64).collect::<Vec<_>>();
            let rows = Tensor::<1, Int>::from_ints(rows.as_slice(), device);
            loss.forward(forward(model, images.clone().select(0, rows)), labels)
        })
    }

    fn compare<M: Module>(
        &self,
        model: M,
        scores: Vec<f64>,
        losses: &dyn Fn(&M, &[usize]) -> Tensor<1>,
    ) -> Result<Comparison, TrainError> {
        let expected = self.values("norms")?;
        let examples = expected.len();
        let threshold = self.values("threshold")?[0];
        let all = vec![true; examples];
        let clipped = clipped_sum(&model, threshold, &all, losses)?;
        let mut sums: f64 = 0.0;
        for (name, found) in clipped.iter().filter(|(name, _)| !name.contains(".running_")) {
            let expected = self.values(&format!("sum/{name}"))?;
            sums = sums.max(largest_difference(found, &expected) / threshold);
        }
        let mut norms: f64 = 0.0;
        for (example, expected) in expected.iter().enumerate() {
            // In a batch with all others, which have no loss.
            let mut only = vec![false; examples];
            only[example] = true;
            let gradient = clipped_sum(&model, 1e3 * threshold, &only, losses)?;
            let values = gradient.values().flatten();
            let norm = values.map(|value| value * value).sum::<f64>().sqrt();
            norms = norms.max(largest_difference(&[norm / expected], &[1.0]));
        }
        let scores = largest_difference(&scores, &self.values("logits")?);
        Ok(Comparison { parameters: model.num_params(), examples, scores, norms, sums })
    }
}

/// Returns the clipped sum of the gradients of some examples, by the name of the parameter.
fn clipped_sum<M: Module>(
    model: &M,
    threshold: f64,
    kept: &[bool],
    losses: &dyn Fn(&M, &[usize]) -> Tensor<1>,
) -> Result<BTreeMap<String, Vec<f64>>, TrainError> {
    let examples = kept.len();
    let plan = PrivacyPlanConfig::new(examples, examples as f64)
        .with_sampling(SamplingScheme::FixedSize)
        .with_steps(1)
        .with_noise_multiplier(NO_NOISE)
        .with_max_grad_norm(threshold)
        .with_insecure_seed(InsecureSeed(0))
        .init()?;
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let draw = optim.plan().sampler()?.draw(0)?;
    let rows = draw.private_indices().to_vec();
    let weights = rows.iter().map(|row| if kept[*row] { 1.0_f32 } else { 0.0 });
    let weights = weights.collect::<Vec<_>>();
    optim.backward(model, &draw, |model: &M, _| {
        let losses = losses(model, &rows);
        let weights = Tensor::<1>::from_floats(weights.as_slice(), &losses.device());
        losses * weights
    })?;
    // One step of rate 1 subtracts the mean of the sum over the expected number of examples.
    let moved = optim.step(1.0, model.clone(), draw).map_err(DpError::from)?;
    let (before, after) = (tensors(model), tensors(&moved));
    let difference = |(name, before): (String, TensorData)| {
        let after = after[&name].iter::<f64>();
        let sum = before.iter::<f64>().zip(after);
        let sum = sum.map(|(before, after)| (before - after) * examples as f64);
        (name, sum.collect())
    };
    Ok(before.into_iter().map(difference).collect())
}

/// Returns the scores of the positions that are not padding, one sequence after another.
fn without_padding(scores: Tensor<3>, sequences: &[Sequence]) -> Vec<f64> {
    let [_, length, classes] = scores.dims();
    let scores = scores.into_data().iter::<f64>().collect::<Vec<_>>();
    let rows = scores.chunks(length * classes).zip(sequences);
    rows.flat_map(|(row, sequence)| row[..sequence.ids.len() * classes].to_vec()).collect()
}

/// Returns the largest difference of two lists; infinite if their lengths differ or a value is NaN.
fn largest_difference(found: &[f64], expected: &[f64]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let differences = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs());
    let finite = |value: f64| if value.is_nan() { f64::INFINITY } else { value };
    differences.fold(0.0, |worst, next| finite(next).max(worst))
}
