//! Command-line options.

use std::path::PathBuf;

use burn_dp::losses::ExampleReduction;
use burn_dp_examples::training::{
    BackendName, OptimizerName, Precision, PrivacyOptions, RunOptions, Start, typed,
};
use clap::{Args, Parser, ValueEnum};
use serde::{Serialize, Serializer};

use super::pretrain::PretrainOptions;

/// Fine-tune a pre-trained model with differential privacy.
///
/// The model is a folder with config.json, tokenizer.json for texts, and model.safetensors or
/// pytorch_model.bin. The pre-trained weights and the tokenizer are treated as public.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask finetune", bin_name = "cargo xtask finetune", version)]
pub enum Finetune {
    /// Train a classifier of texts: GPT-2, BERT or RoBERTa.
    #[command(allow_negative_numbers = true)]
    #[command(mut_arg("output", |arg| arg.default_value("out/finetune")))]
    Classify {
        /// Model, privacy and training.
        #[command(flatten)]
        options: Box<FinetuneOptions>,
        /// Texts.
        #[command(flatten)]
        texts: Texts,
        /// Classes.
        #[command(flatten)]
        labels: Labels,
    },
    /// Train a language model that generates texts: GPT-2.
    #[command(allow_negative_numbers = true)]
    #[command(mut_arg("output", |arg| arg.default_value("out/finetune")))]
    Generate {
        /// Model, privacy and training.
        #[command(flatten)]
        options: Box<FinetuneOptions>,
        /// Texts.
        #[command(flatten)]
        texts: Texts,
        /// Prompts and samples.
        #[command(flatten)]
        prompts: Prompts,
        /// Made-up texts among the rows.
        #[command(flatten)]
        canaries: CanaryOptions,
    },
    /// Train an image classifier: a ViT, or a torchvision ResNet with frozen BatchNorm statistics.
    #[command(allow_negative_numbers = true)]
    #[command(mut_arg("output", |arg| arg.default_value("out/finetune")))]
    Images {
        /// Model, privacy and training.
        #[command(flatten)]
        options: Box<FinetuneOptions>,
        /// Images.
        #[command(flatten)]
        images: Images,
    },
    /// Train a small GPT-2 or BERT and its tokenizer on public texts, without privacy.
    #[command(allow_negative_numbers = true)]
    Pretrain(PretrainOptions),
    /// Measure how strongly a GPT-2 model has memorized canaries.
    #[command(allow_negative_numbers = true)]
    Exposure(ExposureOptions),
    /// Compare models, gradients and files with transformers, torchvision and peft.
    Check(CheckOptions),
}

/// Options of all training commands.
#[derive(Args, Debug, Clone)]
pub struct FinetuneOptions {
    /// Folder of the pre-trained model.
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Budget and noise.
    #[command(flatten)]
    pub privacy: PrivacyOptions,
    /// What is trained, and how.
    #[command(flatten)]
    pub training: TrainingOptions,
    /// Backend and output.
    #[command(flatten)]
    pub run: RunOptions,
    /// With --resume: continue after the last released step if the steps since the checkpoint
    /// cannot be reproduced bit for bit (on another machine, for example). Their privacy stays
    /// spent; their updates are lost.
    #[arg(long, requires = "resume", help_heading = "Run")]
    pub skip_lost_steps: bool,
}

impl FinetuneOptions {
    /// Returns where the run starts.
    pub(super) fn start(&self) -> Start {
        if self.skip_lost_steps { Start::SkipLostSteps } else { self.run.start() }
    }
}

/// The texts and their location.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Data")]
pub struct Texts {
    /// File with one row per example: .csv with a header line, or .jsonl, plain or gzip.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Public file with evaluation rows. By default about a tenth of the rows (or users) in --data
    /// is held out; held-out rows are NOT protected.
    #[arg(long, value_name = "FILE")]
    pub test: Option<PathBuf>,
    /// Column of the text.
    #[arg(long, value_name = "COLUMN")]
    pub text: String,
    /// Column of the user: protects all rows of a user together, not single rows. Names are
    /// compared letter by letter, without spaces at their ends: a person must have one name.
    #[arg(long, value_name = "COLUMN")]
    pub user: Option<String>,
    /// With --user: maximum number of rows per user in a step, at most 1000. Memory and time grow
    /// with it, also for users with fewer rows: --physical-batch-size users are in memory at once.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub user_rows: usize,
    /// Maximum length of a text in tokens; longer texts are truncated [default: 128, or the
    /// positions of a model that has fewer].
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,
}

/// The images and their location.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Data")]
pub struct Images {
    /// Folder with train/CLASS/*.png and test/CLASS/*.png, or JPEG files. The names of the folders
    /// are public, and the images in test are not protected.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// ResNet: height and width to which images are scaled; ViT has the size of its configuration.
    #[arg(long, value_name = "PIXELS", default_value_t = 224)]
    pub image_size: usize,
}

/// The classes.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Data")]
pub struct Labels {
    /// Column of the class.
    #[arg(long, value_name = "COLUMN")]
    pub label: String,
    /// Names of the classes, public and in order, without spaces at their ends [default: those in
    /// config.json]. A head in the checkpoint is kept if it has the same classes, and otherwise
    /// replaced by a new one.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub labels: Vec<String>,
}

/// Prompts and samples.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Data")]
pub struct Prompts {
    /// Column of a prompt before the text: the model reads it and is not trained to generate it.
    /// Prompt and text are joined without a space.
    #[arg(long, value_name = "COLUMN")]
    pub prompt: Option<String>,
    /// The loss of a text.
    #[arg(long, value_enum, default_value_t = Loss::Mean)]
    pub loss: Loss,
    /// Number of texts that are sampled at the end; with --prompt after prompts of the evaluation,
    /// which are shown only if they are from --test. 0 also leaves out BLEU.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub samples: usize,
    /// Maximum length of a sampled text in tokens.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub sample_length: usize,
    /// Temperature of the samples; 0 takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub temperature: f64,
}

/// Canaries: made-up public texts, and how much the trained model memorizes them.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Canaries")]
pub struct CanaryOptions {
    /// Number of canaries, synthetic texts with random digits. They are trained on like ordinary
    /// rows; their exposure is reported at the end.
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub canaries: usize,
    /// Rows of each canary. With --user, each canary is a user with these rows.
    #[arg(long, value_name = "R", default_value_t = 1)]
    pub canary_repetitions: usize,
    /// Number of other made-up texts that a canary is compared with.
    #[arg(long, value_name = "N", default_value_t = 1023)]
    pub canary_candidates: usize,
    /// Number of texts that the model writes after the first words of a canary; canaries are looked
    /// for in them.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub canary_texts: usize,
}

/// Options of the exposure of an existing model.
#[derive(Args, Debug, Clone)]
pub struct ExposureOptions {
    /// Folder of the model: the pre-trained one, or the output of `generate` with --merge.
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Number of canaries.
    #[arg(long, value_name = "K", default_value_t = 8)]
    pub canaries: usize,
    /// Number of other made-up texts that a canary is compared with.
    #[arg(long, value_name = "N", default_value_t = 1023)]
    pub canary_candidates: usize,
    /// Number of texts that the model writes after the first words of a canary; canaries are looked
    /// for in them.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub canary_texts: usize,
    /// Seed of the canaries: the --seed of the training that inserted them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Backend to run on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Write the exposures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What is trained, and how. A resumed run must share all of it.
#[derive(Args, Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Training")]
pub struct TrainingOptions {
    /// What is trained [default: lora with --lora, else full].
    #[arg(long, value_enum, value_name = "WAY")]
    #[serde(skip)]
    pub train: Option<Way>,
    /// Train low-rank adapters of this rank.
    #[arg(long, value_name = "RANK")]
    pub lora: Option<usize>,
    /// Layers that get adapters, matched by name suffix; append =RANK to override the rank:
    /// c_attn, or attn.c_proj=4 [default: c_attn, or query and value].
    #[arg(long, value_name = "NAME,NAME=RANK", value_delimiter = ',')]
    pub lora_layers: Vec<String>,
    /// The product of the factors is multiplied by alpha / rank [default: the rank of --lora].
    #[arg(long, value_name = "ALPHA")]
    pub lora_alpha: Option<f64>,
    /// With adapters: pack the weights of the linear layers under them in integers (QLoRA). This
    /// needs less memory, and rounds the weights.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub packed_base: Option<Packing>,
    /// With --train head: number of last blocks that are trained with the head [default: 0 to
    /// classify, 1 to generate]. A ResNet has no blocks.
    #[arg(long, value_name = "N")]
    pub blocks: Option<usize>,
    /// Expected size of a logical batch, in rows, or in users with --user.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub batch_size: usize,
    /// Maximum number of rows or users in memory at once. It changes only speed, memory, and
    /// rounding.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub physical_batch_size: usize,
    /// Recompute cheap operations in the backward pass instead of keeping their results: less
    /// memory on long texts, and more time. It changes only these two, and rounding.
    #[arg(long)]
    pub gradient_checkpointing: bool,
    /// Precision of the forward and backward passes; everything else is in single precision.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    #[serde(serialize_with = "as_typed")]
    pub precision: Precision,
    /// Length of the training in passes over the data.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub epochs: usize,
    /// Length of the training in steps, in place of --epochs.
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    pub steps: Option<usize>,
    /// Rule that turns gradients into updates.
    #[arg(long, value_enum, default_value_t = OptimizerName::Adam)]
    #[serde(serialize_with = "as_typed")]
    pub optimizer: OptimizerName,
    /// Learning rate; it falls linearly to zero [default: 0.0005; 0.005 for lora, bias, head and
    /// probe].
    #[arg(long)]
    pub lr: Option<f64>,
    /// Clipping threshold of the gradient of a row or a user.
    #[arg(long, value_name = "C", default_value_t = 0.1)]
    pub max_grad_norm: f64,
    /// Seed for new parameters, generated texts and canaries. It never affects the noise or which
    /// rows are drawn.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// With adapters: merge them, and write the whole model instead of the adapters.
    #[arg(long)]
    pub merge: bool,
}

fn as_typed<C: ValueEnum, S: Serializer>(choice: &C, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&typed(choice.clone()))
}

/// What is trained.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All parameters.
    Full,
    /// The biases, and the head of a classifier.
    Bias,
    /// The head, and the last blocks with --blocks. A language model has no head of its own: its
    /// last norm and its last block.
    Head,
    /// Low-rank adapters, and the head of a classifier.
    Lora,
    /// The head of a classifier, on features that are computed once.
    Probe,
}

/// The type of packed weights.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packing {
    /// Eight bits.
    Int8,
    /// Four bits, where the backend packs them; eight in memory on a CPU.
    Int4,
}

/// The loss of a text.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The mean over its tokens.
    Mean,
    /// The sum over its tokens: long texts are clipped more.
    Sum,
}

impl From<Loss> for ExampleReduction {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Mean => Self::Mean,
            Loss::Sum => Self::Sum,
        }
    }
}

/// Options of the comparison.
#[derive(Args, Debug, Clone)]
pub struct CheckOptions {
    /// Python with torch, torchvision, transformers, tokenizers, peft and safetensors.
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Write the comparison as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        Finetune::command().debug_assert();
    }
}
