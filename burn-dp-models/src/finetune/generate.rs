//! Fine-tuning of language models.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig, ExampleReduction};
use burn_dp_examples::training::{Evaluation, TrainError, checks, device, typed};
use serde_json::json;

use super::bleu::bleu;
use super::canaries::{Canaries, Canary};
use super::data::{Columns, TextRow};
use super::encoding::Encoding;
use super::export::{Export, Written};
use super::figures::{FinetuneFigures, Generated};
use super::finish::finish;
use super::options::{CanaryOptions, FinetuneOptions, Prompts, Texts};
use super::read::{language_model, trained_device};
use super::split::Split;
use super::task::Task;
use super::training::FinetuneRun;
use super::units::Source;
use super::ways::{self, Parts};
use super::writer::{MOST_TEXTS, Writer};
use crate::{Gpt2LanguageModel, LoraTargets, Sequence, Tokens};

/// Rows of the evaluation whose texts are generated for BLEU.
const TRANSLATED: usize = 32;

/// Trains the language model that the options describe, and writes the results.
///
/// # Errors
///
/// Returns the errors of [`super::run`].
pub(super) fn run(
    options: &FinetuneOptions,
    texts: &Texts,
    prompts: &Prompts,
    canaries: &CanaryOptions,
) -> Result<FinetuneFigures, TrainError> {
    let parts = Parts { head: None, new: None, adapted: &["c_attn"] };
    let way = ways::way(&options.training, parts)?;
    if !(prompts.temperature >= 0.0 && prompts.temperature.is_finite()) {
        let reason = format!("must be a number of at least 0, got {}", prompts.temperature);
        return Err(TrainError::option("--temperature", reason));
    }
    checks::at_most("--samples", prompts.samples, MOST_TEXTS, " texts")?;
    let device = device(options.run.backend)?;
    device.seed(options.training.seed);
    let (config, model) = language_model(&options.model, &trained_device(options)?)?;
    let encoding = Encoding::read(&options.model, &config, texts.max_length)?;
    let inserted = Canaries::draw(canaries, &encoding, options.training.seed)?;
    let columns = Columns {
        text: &texts.text,
        label: None,
        prompt: prompts.prompt.as_deref(),
        user: texts.user.as_deref(),
    };
    let sample = |row: &TextRow| {
        let sequence = encoding.generated(&row.prompt, &row.text);
        let sequence = sequence.map_err(|error| error.to_string())?;
        Ok(Text { sequence, prompt: row.prompt.clone() })
    };
    let mut split = Split::read(texts, columns, sample)?;
    for Canary { sequence, .. } in inserted.iter().flat_map(Canaries::texts) {
        let row = Text { sequence: sequence.clone(), prompt: String::new() };
        split.insert(vec![row; canaries.canary_repetitions], texts.user.is_some());
    }
    let settings = json!({
        "prompt": prompts.prompt, "loss": typed(prompts.loss), "canaries": canaries.canaries,
        "canary-repetitions": canaries.canary_repetitions,
    });
    let source = Source::of_texts(texts, encoding.max_length(), settings, &split);
    let run = FinetuneRun::new("generate", options, way, source)?;
    let all = model.num_params();
    let (model, targets) = ways::choose(&options.training, model, parts)?;
    if !options.training.merge && targets.as_ref().is_some_and(LoraTargets::has_tied) {
        let reason = "must be given with an adapter of wte: it is also the output layer, and \
                      adapters of peft change only one of the two";
        return Err(TrainError::option("--merge", reason));
    }
    if split.test.iter().all(|row| row.sequence.given >= row.sequence.ids.len()) {
        let reason = format!(
            "must be greater than the prompts of the evaluation: of their {} tokens none is left \
             for a text",
            encoding.max_length()
        );
        return Err(TrainError::option("--max-length", reason));
    }
    let test = split.test.clone();
    let loss = |reduction| {
        let config = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![Tokens::IGNORED]));
        config.with_reduction(reduction).init()
    };
    let task = Generate {
        loss: loss(prompts.loss.into()),
        sum: loss(ExampleReduction::Sum),
        evaluated: options.training.evaluated(),
    };
    let trained = run.train(&task, model, all, split)?;
    let model = trained.model.valid();
    let writer = Writer { model, encoding: &encoding, device };
    // The samples do not depend on what was drawn before.
    writer.device.seed(options.training.seed);
    let generated = generated(&writer, prompts, &test, texts.test.is_some())?;
    // The texts are public and the model is released: the exposure costs no further privacy.
    let together = options.training.evaluated();
    let exposure = inserted.map(|inserted| inserted.expose(&writer, canaries, together));
    let generated = Generated { exposure: exposure.transpose()?, ..generated };
    let export =
        Export { architecture: "GPT2LMHeadModel", labels: None, parts, task: Some("CAUSAL_LM") };
    finish(run, trained, Some(generated), |model| match &targets {
        Some(targets) if !options.training.merge => {
            Written::adapter(&export, &options.model, &model, targets)
        }
        _ => Written::model(&export, &options.model, &model.materialize()),
    })
}

/// A text and the prompt before it.
#[derive(Debug, Clone)]
pub(super) struct Text {
    sequence: Sequence,
    prompt: String,
}

/// Training of a language model.
struct Generate {
    loss: CrossEntropyLoss,
    /// The loss with the sum over the tokens.
    sum: CrossEntropyLoss,
    /// Number of texts that are evaluated together.
    evaluated: usize,
}

fn tokens(samples: &[Text], device: &Device) -> Tokens {
    Tokens::new(&samples.iter().map(|sample| &sample.sequence).collect::<Vec<_>>(), device)
}

impl Task for Generate {
    type Model = Gpt2LanguageModel;
    type Sample = Text;

    fn losses(&self, model: &Gpt2LanguageModel, samples: &[Text], device: &Device) -> Tensor<1> {
        let tokens = tokens(samples, device);
        self.loss.forward_sequence(model.forward(&tokens).cast(FloatDType::F32), tokens.next)
    }

    /// Returns the loss and the accuracy of a token.
    fn evaluate(&self, model: &Gpt2LanguageModel, samples: &[Text], device: &Device) -> Evaluation {
        let model = model.valid();
        let (mut loss, mut right, mut count) = (0.0, 0.0, 0.0);
        for samples in samples.chunks(self.evaluated) {
            let tokens = tokens(samples, device);
            let scores = model.forward(&tokens);
            let [rows, length, _] = scores.dims();
            let predicted = scores.clone().argmax(2).reshape([rows, length]);
            right += predicted.equal(tokens.next.clone()).int().sum().into_scalar::<i64>() as f64;
            let is_predicted = tokens.next.clone().not_equal_elem(Tokens::IGNORED);
            count += is_predicted.int().sum().into_scalar::<i64>() as f64;
            loss += self.sum.forward_sequence(scores, tokens.next).sum().into_scalar::<f64>();
        }
        let count = f64::max(count, 1.0);
        Evaluation { loss: loss / count, accuracy: right / count }
    }

    fn made_up(&self, count: usize) -> Vec<Text> {
        let sequence = |row: usize| Sequence { ids: vec![0; 2 + row % 3], given: 1 };
        let text = |row| Text { sequence: sequence(row), prompt: String::new() };
        (0..count).map(text).collect()
    }
}

/// Returns samples, and the BLEU score of texts after prompts of the evaluation.
///
/// # Arguments
///
/// - `is_public`: whether the prompts are from a public file, so that they may be repeated
fn generated(
    writer: &Writer,
    options: &Prompts,
    test: &[Text],
    is_public: bool,
) -> Result<Generated, TrainError> {
    let length = options.sample_length;
    let mut samples = Vec::new();
    for index in 0..options.samples {
        let prompt = match &options.prompt {
            Some(_) => test[index % test.len().max(1)].prompt.as_str(),
            None => "",
        };
        let text = writer.text(prompt, length, options.temperature)?;
        samples.push(match is_public {
            true => format!("{prompt} {text}").trim().to_string(),
            // A prompt of the data that is trained on, whose other rows are private.
            false => text,
        });
    }
    let bleu = match &options.prompt {
        Some(_) if options.samples > 0 => {
            let pairs = test.iter().take(TRANSLATED).map(|row| {
                // The most likely text; both end at the longest sequence.
                let text = writer.text(&row.prompt, writer.encoding.max_length(), 0.0)?;
                let Sequence { ids, given } = &row.sequence;
                Ok((text, writer.encoding.decode(&ids[*given..])))
            });
            Some(bleu(&pairs.collect::<Result<Vec<_>, TrainError>>()?))
        }
        _ => None,
    };
    Ok(Generated { samples, bleu, exposure: None })
}
