//! The ways to train, and the sizes of the public and the private training.

use burn_dp_models::finetune::Way;

/// A way to train.
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// Whether it starts from the pre-trained weights.
    pub(super) is_pretrained: bool,
    pub(super) way: Way,
    /// Other options of the command for a language model.
    pub(super) language: &'static [&'static str],
    /// Other options of the command for a classifier.
    pub(super) encoder: &'static [&'static str],
}

/// The first one trains from scratch.
///
/// The features of a small BERT that is pre-trained for a short time are nearly the same for all
/// texts, and most of a gradient is that common part. With the usual threshold of 0.1 every
/// gradient is clipped, a wrong prediction no longer weighs more than a right one, and the common
/// part drifts; so the thresholds of classifiers are higher.
pub(super) const CONTENDERS: [Contender; 5] = [
    Contender {
        name: "from scratch",
        is_pretrained: false,
        way: Way::Full,
        language: &["--lr", "0.002"],
        encoder: &["--lr", "0.003", "--max-grad-norm", "1"],
    },
    Contender {
        name: "all parameters",
        is_pretrained: true,
        way: Way::Full,
        language: &[],
        encoder: &["--lr", "0.003", "--max-grad-norm", "1"],
    },
    Contender {
        name: "LoRA",
        is_pretrained: true,
        way: Way::Lora,
        language: &["--lora", "8"],
        encoder: &[
            "--lora",
            "8",
            // The pooler was trained for pairs of texts, not for classes.
            "--lora-layers",
            "query,value,pooler.dense",
            "--lr",
            "0.01",
            "--max-grad-norm",
            "3",
        ],
    },
    Contender {
        name: "biases",
        is_pretrained: true,
        way: Way::Bias,
        language: &[],
        encoder: &["--lr", "0.02", "--max-grad-norm", "3"],
    },
    Contender {
        name: "probe",
        is_pretrained: true,
        way: Way::Probe,
        language: &[],
        encoder: &["--lr", "0.05", "--max-grad-norm", "3"],
    },
];

/// Sizes of the public and the private training.
#[derive(Debug)]
pub(super) struct Setting {
    /// Public training of a GPT-2.
    pub(super) language: PublicTraining,
    /// Public training of a BERT, which needs larger batches to learn more than how often tokens
    /// occur.
    pub(super) encoder: PublicTraining,
    pub(super) rows: Length,
    pub(super) users: Length,
    pub(super) classes: Length,
}

/// The public training.
#[derive(Debug)]
pub(super) struct PublicTraining {
    pub(super) steps: &'static str,
    pub(super) positions: &'static str,
    /// Other options of `pretrain`.
    pub(super) options: &'static [&'static str],
}

/// Length of a private training.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub(super) epochs: usize,
    pub(super) batch: usize,
}

pub(super) const QUICK: Setting = Setting {
    language: PublicTraining {
        steps: "1000",
        positions: "64",
        options: &["--layers", "3", "--width", "96"],
    },
    encoder: PublicTraining {
        steps: "10000",
        positions: "64",
        options: &[
            "--layers",
            "2",
            "--width",
            "128",
            "--vocabulary-size",
            "4096",
            "--batch-size",
            "64",
            "--predicted-share",
            "0.3",
            "--lr",
            "0.001",
        ],
    },
    rows: Length { epochs: 2, batch: 256 },
    users: Length { epochs: 8, batch: 64 },
    classes: Length { epochs: 4, batch: 1024 },
};

pub(super) const PAPER: Setting = Setting {
    language: PublicTraining {
        steps: "6000",
        positions: "128",
        options: &["--layers", "6", "--width", "192"],
    },
    encoder: PublicTraining {
        steps: "40000",
        positions: "128",
        options: &[
            "--layers",
            "4",
            "--width",
            "256",
            "--vocabulary-size",
            "8192",
            "--batch-size",
            "128",
            "--predicted-share",
            "0.3",
            "--lr",
            "0.0005",
        ],
    },
    rows: Length { epochs: 4, batch: 256 },
    users: Length { epochs: 20, batch: 64 },
    classes: Length { epochs: 8, batch: 1024 },
};
