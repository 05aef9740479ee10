//! Losses of texts of several lengths: what padding may change, and what it may not.

#![allow(clippy::unwrap_used)]

use burn::module::Module;
use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::loss::CrossEntropyLossConfig as BurnLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use crate::DpError;
use crate::grads::check_independence;
use crate::losses::{CrossEntropyLossConfig, ExampleReduction};
use crate::nn::{IntoPrivate, MhaInput, Private};
use crate::test_devices::devices;

/// Number of words; the last of them is the padding.
const WORDS: usize = 7;
const PADDING: usize = WORDS - 1;

#[derive(Module, Debug)]
struct Reader {
    words: Private<Embedding>,
    attention: Private<MultiHeadAttention>,
    next: Private<Linear>,
}

fn reader(device: &Device) -> Reader {
    let attention = MultiHeadAttentionConfig::new(4, 2).with_dropout(0.0);
    Reader {
        words: EmbeddingConfig::new(WORDS, 4).init(device).private(),
        attention: attention.init(device).private(),
        next: LinearConfig::new(4, WORDS).init(device).private(),
    }
}

/// Texts padded to the longest of them, and the next word at each position.
struct Texts {
    words: Tensor<2, Int>,
    next: Tensor<2, Int>,
    mask_pad: Tensor<2, Bool>,
}

impl Texts {
    fn of(texts: &[Vec<usize>], device: &Device) -> Self {
        let longest = texts.iter().map(Vec::len).max().unwrap() - 1;
        let table = |value: &dyn Fn(&[usize], usize) -> i64| {
            let row = |text: &Vec<usize>| -> Vec<i64> {
                (0..longest).map(|at| value(text, at)).collect()
            };
            let values: Vec<i64> = texts.iter().flat_map(row).collect();
            Tensor::<2, Int>::from_data(TensorData::new(values, [texts.len(), longest]), device)
        };
        let word = |text: &[usize], at| text.get(at).copied().unwrap_or(PADDING) as i64;
        Self {
            words: table(&|text, at| {
                if at + 1 < text.len() { word(text, at) } else { PADDING as i64 }
            }),
            next: table(&|text, at| word(text, at + 1)),
            mask_pad: table(&|text, at| i64::from(at + 1 >= text.len())).equal_scalar(1),
        }
    }
}

impl Reader {
    /// The scores of the next words, with or without the mask of the padding.
    fn scores(&self, texts: &Texts, masked: bool) -> Tensor<3> {
        let input = MhaInput::self_attn(self.words.forward(texts.words.clone()));
        let input = if masked { input.mask_pad(texts.mask_pad.clone()) } else { input };
        self.next.forward(self.attention.forward(input).context)
    }
}

fn texts() -> Vec<Vec<usize>> {
    (0..8).map(|unit| (0..2 + unit % 5).map(|at| (3 * unit + 2 * at) % PADDING).collect()).collect()
}

type Losses = fn(&Reader, &Texts) -> Tensor<1>;

fn check(device: &Device, losses: Losses) -> Result<(), DpError> {
    check_independence(&reader(device), &texts(), |model, texts| {
        losses(model, &Texts::of(&texts, device))
    })
}

fn loss(reduction: ExampleReduction) -> CrossEntropyLossConfig {
    CrossEntropyLossConfig::new().with_reduction(reduction)
}

#[test]
fn losses_of_padded_texts_are_independent_of_their_batch() {
    let ways: [Losses; 3] = [
        |model, texts| {
            let loss = loss(ExampleReduction::Mean).with_pad_tokens(Some(vec![PADDING as i64]));
            loss.init().forward_sequence(model.scores(texts, true), texts.next.clone())
        },
        |model, texts| {
            let (scores, mask) = (model.scores(texts, true), texts.mask_pad.clone());
            let loss = loss(ExampleReduction::Mean).init();
            loss.forward_masked_sequence(scores, texts.next.clone(), mask)
        },
        |model, texts| {
            let (scores, mask) = (model.scores(texts, true), texts.mask_pad.clone());
            let loss = loss(ExampleReduction::Sum).init();
            loss.forward_masked_sequence(scores, texts.next.clone(), mask)
        },
    ];
    for device in devices() {
        for losses in ways {
            check(&device.clone().autodiff(), losses).unwrap();
        }
    }
}

#[test]
fn losses_of_padded_texts_that_depend_on_their_batch_are_refused() {
    let traps: [(&str, Losses); 5] = [
        ("the mean over the longest text", |model, texts| {
            let loss = loss(ExampleReduction::Mean).init();
            loss.forward_sequence(model.scores(texts, true), texts.next.clone())
        }),
        ("the mean over the tokens of the batch", |model, texts| {
            let (scores, mask) = (model.scores(texts, true), texts.mask_pad.clone());
            let sums = loss(ExampleReduction::Sum).init();
            let sums = sums.forward_masked_sequence(scores, texts.next.clone(), mask.clone());
            sums / mask.bool_not().float().sum()
        }),
        ("Burn's mean over the batch for every text", |model, texts| {
            let scores = model.scores(texts, true);
            let [batch_size, positions, _] = scores.dims();
            let loss = BurnLossConfig::new().with_pad_tokens(Some(vec![PADDING]));
            let rows = scores.reshape([batch_size * positions, WORDS]);
            let next = texts.next.clone().reshape([batch_size * positions]);
            loss.init(&rows.device()).forward(rows, next).expand([batch_size])
        }),
        ("the sum over padding and text", |model, texts| {
            let loss = loss(ExampleReduction::Sum).init();
            loss.forward_sequence(model.scores(texts, true), texts.next.clone())
        }),
        ("attention to the padding", |model, texts| {
            let (scores, mask) = (model.scores(texts, false), texts.mask_pad.clone());
            let loss = loss(ExampleReduction::Mean).init();
            loss.forward_masked_sequence(scores, texts.next.clone(), mask)
        }),
    ];
    for device in devices() {
        for (name, losses) in traps {
            let error = check(&device.clone().autodiff(), losses).expect_err(name);
            assert!(matches!(error, DpError::NotPerExample { .. }), "{name}: {error}");
        }
    }
}
