//! Fine-tuning of classifiers.

use std::{collections::HashMap, marker::PhantomData};

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp_examples::training::{Evaluation, TrainError};
use serde_json::json;

use super::data::{Columns, TextRow};
use super::encoding::Encoding;
use super::export::{Export, Written};
use super::figures::FinetuneFigures;
use super::finish::finish;
use super::options::{FinetuneOptions, Labels, Texts, Way};
use super::probe::{self, Features, Probe};
use super::read::{class_names, quoted, trained_device};
use super::split::Split;
use super::task::{Task, targets};
use super::training::FinetuneRun;
use super::units::Source;
use super::ways::{self, Parts};
use crate::{
    BertClassifier, Config, Gpt2Classifier, RobertaClassifier, Sequence, TextClassifier, Tokens,
    Weights,
};

/// The part of BERT that models of masked tokens lack.
const POOLER: &str = "bert.pooler";

/// A text and its class.
#[derive(Debug, Clone)]
pub(super) struct Labeled {
    sequence: Sequence,
    label: usize,
}

/// Trains the classifier that the options describe, and writes the results.
///
/// # Errors
///
/// Returns the errors of [`super::Finetune::run`].
pub(super) fn run(
    options: &FinetuneOptions,
    texts: &Texts,
    labels: &Labels,
) -> Result<FinetuneFigures, TrainError> {
    let config = Config::read(&options.model)?;
    let names = class_names(options, labels)?;
    let request = Request { options, texts, labels, config: &config, names: &names };
    let device = trained_device(options)?;
    // Only the values that are not loaded: noise and sampling have their own generators.
    device.seed(options.training.seed);
    let classes = names.len();
    match &config {
        Config::Gpt2(gpt2) => {
            let model = Gpt2Classifier::new(gpt2, classes, &device);
            request.run(model, "GPT2ForSequenceClassification", &["c_attn"])
        }
        Config::Bert(bert) => {
            let model = BertClassifier::new(bert, classes, &device);
            request.run(model, "BertForSequenceClassification", &["query", "value"])
        }
        Config::Roberta(bert) => {
            let model = RobertaClassifier::new(bert, classes, &device);
            request.run(model, "RobertaForSequenceClassification", &["query", "value"])
        }
        Config::Vit(_) => {
            let reason = "must be GPT-2, BERT or RoBERTa; `finetune images` is for this model";
            Err(TrainError::option("--model", reason))
        }
    }
}

/// The request.
struct Request<'a> {
    options: &'a FinetuneOptions,
    texts: &'a Texts,
    labels: &'a Labels,
    config: &'a Config,
    names: &'a [String],
}

impl Request<'_> {
    fn run<M: TextClassifier>(
        &self,
        model: M,
        architecture: &'static str,
        adapted: &'static [&'static str],
    ) -> Result<FinetuneFigures, TrainError> {
        let Self { options, texts, labels, config, names } = *self;
        let parts = Parts { head: Some(M::HEAD), new: None, adapted };
        let way = ways::way(&options.training, parts)?;
        let weights = Weights::read(&options.model)?;
        let head = format!("{}.", M::HEAD);
        let has_head = weights.tensors().keys().any(|name| name.starts_with(&head));
        // The head of the checkpoint is kept if it has the same classes in the same order.
        let is_same = labels.labels.is_empty() || Config::labels(&options.model)? == names;
        let is_new = !has_head || !is_same;
        let has_pooler = weights.tensors().keys().any(|name| name.contains("pooler."));
        let lacks_pooler = matches!(config, Config::Bert(_)) && !has_pooler;
        let parts = Parts { new: lacks_pooler.then_some(POOLER), ..parts };
        if lacks_pooler {
            let trained =
                if way == Way::Lora { ", and is fully trained, like the head" } else { "" };
            burn_dp_examples::print_line!(
                "the checkpoint has no pooler: it starts with random values{trained}"
            );
        }
        let new = [is_new.then_some(M::HEAD), parts.new];
        let model = weights.load_into(model, new.into_iter().flatten())?;
        let encoding = Encoding::read(&options.model, config, texts.max_length)?;
        let columns = Columns {
            text: &texts.text,
            label: Some(&labels.label),
            prompt: None,
            user: texts.user.as_deref(),
        };
        let ids: HashMap<&str, usize> =
            names.iter().enumerate().map(|(id, name)| (name.as_str(), id)).collect();
        let sample = |row: &TextRow| {
            let label = ids.get(row.label.as_str()).ok_or_else(|| {
                // The class of the row is private.
                format!("`{}` is not one of the classes: {}", labels.label, quoted(names))
            });
            let sequence = encoding.text(&row.text).map_err(|error| error.to_string());
            Ok(Labeled { label: *label?, sequence: sequence? })
        };
        let split = Split::read(texts, columns, sample)?;
        let classes = json!({ "label": labels.label, "labels": names });
        let source = Source::of_texts(texts, encoding.max_length(), classes, &split);
        let source = Source { classes: Some(names.to_vec()), ..source };
        let run = FinetuneRun::new("classify", options, way, source)?;
        let all = model.num_params();
        let export = Export { architecture, labels: Some(names), parts, task: Some("SEQ_CLS") };
        if way == Way::Probe {
            let (model, device) = (model.freeze(), run.device());
            let network = model.valid();
            let split = probe::computed(split, |sample: &Labeled| {
                let features = network.features(&tokens(std::slice::from_ref(sample), device));
                Features::new(features, sample.label)
            });
            let head = model.head().clone().unfreeze();
            let trained = run.train(&Probe::new(&split), head, all, split)?;
            return finish(run, trained, None, |head| {
                Written::model(&export, &options.model, &model.with_head(head))
            });
        }
        let (model, targets) = ways::choose(&options.training, model, parts)?;
        let evaluated = options.training.evaluated();
        let task = Classify::<M> { loss: loss(), evaluated, model: PhantomData };
        let trained = run.train(&task, model, all, split)?;
        finish(run, trained, None, |model| match &targets {
            Some(targets) if !options.training.merge => {
                Written::adapter(&export, &options.model, &model, targets)
            }
            _ => Written::model(&export, &options.model, &model.materialize()),
        })
    }
}

fn loss() -> CrossEntropyLoss {
    CrossEntropyLossConfig::new().init()
}

fn tokens(samples: &[Labeled], device: &Device) -> Tokens {
    Tokens::new(&samples.iter().map(|sample| &sample.sequence).collect::<Vec<_>>(), device)
}

/// Training of a classifier.
struct Classify<M> {
    loss: CrossEntropyLoss,
    evaluated: usize,
    model: PhantomData<fn() -> M>,
}

impl<M: TextClassifier> Task for Classify<M> {
    type Model = M;
    type Sample = Labeled;

    fn losses(&self, model: &M, samples: &[Labeled], device: &Device) -> Tensor<1> {
        let targets = targets(samples.iter().map(|sample| sample.label), device);
        self.loss.forward(model.scores(&tokens(samples, device)).cast(FloatDType::F32), targets)
    }

    fn evaluate(&self, model: &M, samples: &[Labeled], device: &Device) -> Evaluation {
        let model = model.valid();
        let mut total = Evaluation::default();
        for samples in samples.chunks(self.evaluated) {
            let targets = targets(samples.iter().map(|sample| sample.label), device);
            let scores = model.scores(&tokens(samples, device));
            let losses = self.loss.forward(scores.clone(), targets.clone());
            total.count(losses, scores, targets);
        }
        total.over(samples.len())
    }

    fn made_up(&self, count: usize) -> Vec<Labeled> {
        let sequence = |row: usize| Sequence { ids: vec![0; 1 + row % 3], given: 1 };
        (0..count).map(|row| Labeled { sequence: sequence(row), label: row % 2 }).collect()
    }
}
