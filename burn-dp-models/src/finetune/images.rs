//! Fine-tuning of classifiers of images.

use std::marker::PhantomData;
use std::path::Path;

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp_examples::data::{Encoder, ImageBatcher, ImageItem, folder};
use burn_dp_examples::training::place::CONFIG;
use burn_dp_examples::training::{Evaluation, TrainError, checks};
use serde::Deserialize;
use serde_json::json;

use super::export::{Export, PREPROCESSOR, Written};
use super::figures::FinetuneFigures;
use super::finish::finish;
use super::options::{FinetuneOptions, Images, Way};
use super::probe::{self, Features, Probe};
use super::read::trained_device;
use super::split::Split;
use super::task::{Task, in_precision_of};
use super::training::FinetuneRun;
use super::units::Source;
use super::ways::{self, Parts};
use crate::{
    Config, ImageClassifier, ModelError, TorchvisionResNet, TorchvisionResNetConfig, VitClassifier,
    Weights,
};

/// Means and deviations of the colors for public residual networks.
const IMAGENET: Colors =
    Colors { image_mean: [0.485, 0.456, 0.406], image_std: [0.229, 0.224, 0.225] };

/// Means and deviations for vision transformers without a file for them.
const CENTERED: Colors = Colors { image_mean: [0.5; 3], image_std: [0.5; 3] };

/// The values that are subtracted from the colors, and the divisors.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Colors {
    image_mean: [f32; 3],
    image_std: [f32; 3],
}

/// Trains the classifier that the options describe, and writes the results.
///
/// # Errors
///
/// Returns the errors of [`super::run`].
pub(super) fn run(
    options: &FinetuneOptions,
    images: &Images,
) -> Result<FinetuneFigures, TrainError> {
    checks::at_least_one([("--image-size", images.image_size)])?;
    let weights = Weights::read(&options.model)?;
    let names = class_names(&images.data)?;
    let device = trained_device(options)?;
    // Only the values that are not loaded: noise and sampling have their own generators.
    device.seed(options.training.seed);
    let request = Request { options, images, weights: &weights, names: &names };
    if let Some(config) = TorchvisionResNetConfig::of(&weights) {
        let parts = Parts { head: Some("fc"), new: None, adapted: &[] };
        let model = TorchvisionResNet::new(&config, names.len(), &device);
        return request.run(model, images.image_size, parts, ("ResNet", IMAGENET));
    }
    if options.model.is_dir() && !options.model.join(CONFIG).is_file() {
        let first = weights.tensors().keys().next().map_or("", String::as_str);
        let reason = format!(
            "has no {CONFIG} of a ViT, and no weights of a ResNet of torchvision: those have names \
             like `conv1.weight` and `layer1.0.conv1.weight`, and the first one here is `{first}`. \
             Save the state itself, without a dictionary around it: \
             `torch.save(model.state_dict(), \"pytorch_model.bin\")`"
        );
        return Err(ModelError::new(&options.model, reason).into());
    }
    let Config::Vit(config) = Config::read(&options.model)? else {
        let reason = "must be a ViT, or a ResNet of torchvision: this model reads texts";
        return Err(TrainError::option("--model", reason));
    };
    if config.num_channels != 3 {
        let reason = format!("must read images of 3 colors, not {}", config.num_channels);
        return Err(TrainError::option("--model", reason));
    }
    let parts = Parts { head: Some("classifier"), new: None, adapted: &["query", "value"] };
    let model = VitClassifier::new(&config, names.len(), &device);
    request.run(model, config.image_size, parts, ("ViTForImageClassification", CENTERED))
}

/// Returns the names of the folders of the classes, in order.
fn class_names(data: &Path) -> Result<Vec<String>, TrainError> {
    let folder = data.join("train");
    let entries = std::fs::read_dir(&folder)
        .map_err(|source| TrainError::Io { path: folder.clone(), source })?;
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> =
        folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// The request.
struct Request<'a> {
    options: &'a FinetuneOptions,
    images: &'a Images,
    weights: &'a Weights,
    names: &'a [String],
}

impl Request<'_> {
    /// Trains a model on images of height and width `side`.
    fn run<M: ImageClassifier>(
        &self,
        model: M,
        side: usize,
        parts: Parts,
        (architecture, colors): (&'static str, Colors),
    ) -> Result<FinetuneFigures, TrainError> {
        let Self { options, images, weights, names } = *self;
        let way = ways::way(&options.training, parts)?;
        let model = weights.load_into(model, parts.head)?;
        let Colors { image_mean: mean, image_std: std } = colors_of(&options.model, colors)?;
        let splits = folder::read(&images.data, side)?;
        let encoder = ImageBatcher { mean, std, ..splits.encoder };
        let numbered = splits.train.items().iter().cloned().enumerate();
        let split = Split::new(numbered.collect(), splits.test.items().to_vec());
        let source = Source {
            user_rows: None,
            held_out: false,
            held_out_units: 0,
            is_torchvision: architecture == "ResNet",
            classes: Some(names.to_vec()),
            units: split.units(),
            rows: split.train.len(),
            settings: json!({
                "data": images.data, "image-size": side,
                "the checksum of the data": checksum(&split.train),
            }),
        };
        let run = FinetuneRun::new("images", options, way, source)?;
        let all = model.num_params();
        let export = Export { architecture, labels: Some(names), parts, task: None };
        if way == Way::Probe {
            let (model, device) = (model.freeze(), run.device());
            let network = model.valid();
            let split = probe::computed(split, |sample: &ImageItem| {
                let batch = encoder.batch(vec![sample.clone()], device);
                Features::new(network.features(batch.inputs), usize::from(sample.label))
            });
            let head = model.head().clone().unfreeze();
            let trained = run.train(&Probe::new(&split), head, all, split)?;
            return finish(run, trained, None, |head| {
                Written::model(&export, &options.model, &model.with_head(head))
            });
        }
        let (model, targets) = ways::choose(&options.training, model, parts)?;
        let loss = CrossEntropyLossConfig::new().init();
        let evaluated = options.training.evaluated();
        let (classes, model_type) = (names.len(), PhantomData);
        let task = Classify::<M> { encoder, loss, classes, evaluated, model: model_type };
        let trained = run.train(&task, model, all, split)?;
        finish(run, trained, None, |model| match &targets {
            Some(targets) if !options.training.merge => {
                Written::adapter(&export, &options.model, &model, targets)
            }
            _ => Written::model(&export, &options.model, &model.materialize()),
        })
    }
}

/// Returns the colors in the file of a model, or `default` without a file.
fn colors_of(model: &Path, default: Colors) -> Result<Colors, TrainError> {
    let path = model.join(PREPROCESSOR);
    match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(default),
        read => {
            let text = read.map_err(|error| ModelError::new(&path, error))?;
            let colors = serde_json::from_slice(&text);
            Ok(colors.map_err(|error| ModelError::new(&path, error))?)
        }
    }
}

/// A resumed run repeats noise, so it must have the same images.
fn checksum(train: &[(usize, ImageItem)]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (_, item) in train {
        hasher.update(&item.image);
        hasher.update(&item.label.to_le_bytes());
    }
    hasher.finalize()
}

/// Training of a classifier of images.
struct Classify<M> {
    encoder: ImageBatcher,
    loss: CrossEntropyLoss,
    classes: usize,
    evaluated: usize,
    model: PhantomData<fn() -> M>,
}

impl<M: ImageClassifier> Task for Classify<M> {
    type Model = M;
    type Sample = ImageItem;

    fn losses(&self, model: &M, samples: &[ImageItem], device: &Device) -> Tensor<1> {
        let batch = self.encoder.batch(samples.to_vec(), device);
        let scores = model.scores(in_precision_of(model, batch.inputs));
        self.loss.forward(scores.cast(FloatDType::F32), batch.targets)
    }

    fn evaluate(&self, model: &M, samples: &[ImageItem], device: &Device) -> Evaluation {
        let model = model.valid();
        let mut total = Evaluation::default();
        for samples in samples.chunks(self.evaluated) {
            let batch = self.encoder.batch(samples.to_vec(), device);
            let scores = model.scores(batch.inputs);
            let losses = self.loss.forward(scores.clone(), batch.targets.clone());
            total.count(losses, scores, batch.targets);
        }
        total.over(samples.len())
    }

    fn made_up(&self, count: usize) -> Vec<ImageItem> {
        self.encoder.made_up(count, self.classes)
    }
}
