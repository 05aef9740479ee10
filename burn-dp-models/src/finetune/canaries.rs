//! Canaries: made-up texts with random digits, and how much a model prefers them to others.

use std::collections::HashSet;

use burn_dp::losses::{CrossEntropyLossConfig, ExampleReduction};
use burn_dp_examples::training::progress::{counted, significant};
use burn_dp_examples::training::{TrainError, checks, device, files};
use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::Serialize;

use super::encoding::Encoding;
use super::options::{CanaryOptions, ExposureOptions};
use super::read::language_model;
use super::task::EVALUATED;
use super::writer::{MOST_TEXTS, Writer};
use crate::{Sequence, Tokens};

/// The text before the digits.
const TEMPLATE: &str = "The secret number is";

/// Number of random digits.
const DIGITS: usize = 6;

/// Number of texts that can be canaries.
const TEXTS: usize = 10_usize.pow(DIGITS as u32);

/// Canaries, and other texts of the same form.
///
/// # Privacy
///
/// All texts are derived from a public seed, and none from the data.
#[derive(Debug)]
pub(super) struct Canaries {
    canaries: Vec<Canary>,
    others: Vec<Canary>,
    /// Rows of each canary.
    pub(super) repetitions: usize,
}

/// A made-up text.
#[derive(Debug, Clone)]
pub(super) struct Canary {
    pub(super) text: String,
    pub(super) sequence: Sequence,
}

impl Canaries {
    /// Draws texts without repetition, or returns `None` if no canary is requested. The canaries
    /// depend only on `seed`: the canaries for a smaller number are a subset of those for a larger
    /// one.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if a number is impossible, or if the model cannot distinguish
    /// the texts.
    pub(super) fn draw(
        options: &CanaryOptions,
        encoding: &Encoding,
        seed: u64,
    ) -> Result<Option<Self>, TrainError> {
        let CanaryOptions { canaries, canary_repetitions, canary_candidates, canary_texts } =
            *options;
        checks::at_least_one([
            ("--canary-repetitions", canary_repetitions),
            ("--canary-candidates", canary_candidates),
        ])?;
        checks::at_most("--canary-repetitions", canary_repetitions, TEXTS, "")?;
        checks::at_most("--canary-texts", canary_texts, MOST_TEXTS, " texts")?;
        let wanted = canaries.saturating_add(canary_candidates);
        if wanted > TEXTS {
            let reason = format!(
                "must be at most {TEXTS} together with --canaries, the number of different texts, \
                 got {canary_candidates} and {canaries}"
            );
            return Err(TrainError::option("--canary-candidates", reason));
        }
        if canaries == 0 {
            return Ok(None);
        }
        check(encoding)?;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut drawn = HashSet::new();
        let mut next = || {
            loop {
                let number = (random.next_u64() % TEXTS as u64) as usize;
                if drawn.insert(number) {
                    let text = text(number);
                    let sequence = encoding.generated("", &text)?;
                    return Ok::<_, TrainError>(Canary { text, sequence });
                }
            }
        };
        let canaries = (0..canaries).map(|_| next()).collect::<Result<_, _>>()?;
        let others = (0..canary_candidates).map(|_| next()).collect::<Result<_, _>>()?;
        Ok(Some(Self { canaries, others, repetitions: canary_repetitions }))
    }

    /// Returns the canaries.
    pub(super) fn texts(&self) -> &[Canary] {
        &self.canaries
    }

    /// Returns the exposure of each canary in a model, and which canaries it writes.
    ///
    /// # Arguments
    ///
    /// - `together`: number of texts in memory at once
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the first words of a canary leave no room for digits.
    pub(super) fn expose(
        &self,
        writer: &Writer,
        options: &CanaryOptions,
        together: usize,
    ) -> Result<Exposures, TrainError> {
        let canaries = self.canaries.iter().map(|canary| &canary.sequence).collect::<Vec<_>>();
        let of_canaries = losses(writer, &canaries, together);
        let others: Vec<&Sequence> = self.others.iter().map(|other| &other.sequence).collect();
        let of_others = losses(writer, &others, together);
        let ranked = self.canaries.iter().zip(of_canaries).map(|(canary, loss)| {
            let rank = rank(loss, &of_others);
            let candidates = 1.0 + of_others.len() as f64;
            let exposure = (candidates / rank).log2();
            Exposure { text: canary.text.clone(), loss, rank, exposure }
        });
        let canaries: Vec<Exposure> = ranked.collect();
        let candidates = 1 + of_others.len();
        Ok(Exposures {
            repetitions: self.repetitions,
            candidates,
            largest: (candidates as f64).log2(),
            by_chance: by_chance(candidates),
            mean: canaries.iter().map(|canary| canary.exposure).sum::<f64>()
                / canaries.len() as f64,
            canaries,
            written: self.written(writer, options.canary_texts, together)?,
        })
    }

    /// Lets the model continue the first words of a canary, and looks for canaries in the texts.
    fn written(
        &self,
        writer: &Writer,
        texts: usize,
        together: usize,
    ) -> Result<Written, TrainError> {
        let of_canary = self.canaries.iter().map(|canary| canary.sequence.ids.len());
        let length = of_canary.max().unwrap_or(0);
        let mut found = HashSet::new();
        let mut left = texts;
        while left > 0 {
            let count = left.min(together);
            left -= count;
            // The distribution of the model itself.
            for text in writer.texts(TEMPLATE, count, length, 1.0)? {
                let words = text.split_whitespace().take(DIGITS);
                found.insert(words.fold(TEMPLATE.to_string(), |text, word| text + " " + word));
            }
        }
        let count = |texts: &[Canary]| texts.iter().filter(|one| found.contains(&one.text)).count();
        Ok(Written { texts, canaries: count(&self.canaries), others: count(&self.others) })
    }
}

/// The canaries in texts that a model wrote, at temperature 1, after the first words of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Number of texts.
    pub texts: usize,
    /// Number of canaries that occur in them.
    pub canaries: usize,
    /// Number of the texts that were not trained on, and that canaries are ranked among, that occur
    /// in them: what chance finds.
    pub others: usize,
}

/// The preference of a model for canaries over other texts of the same form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exposures {
    /// Number of training rows of each canary; 0 if this is not known.
    pub repetitions: usize,
    /// Number of texts that a canary is ranked among: itself and texts that were not trained on.
    pub candidates: usize,
    /// The maximum exposure that this number of texts can show.
    pub largest: f64,
    /// The mean exposure of texts that a model has not seen.
    pub by_chance: f64,
    /// The mean exposure of the canaries.
    pub mean: f64,
    /// The canaries.
    pub canaries: Vec<Exposure>,
    /// The canaries that the model writes.
    pub written: Written,
}

/// The preference of a model for one canary.
///
/// # References
///
/// Carlini et al., The secret sharer: evaluating and testing unintended memorization in neural
/// networks, 2019, section 4.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exposure {
    /// The text.
    pub text: String,
    /// Logarithm of its perplexity: the sum of the losses of its tokens.
    pub loss: f64,
    /// 1 if no other text has a lower perplexity. Among equal ones, the middle.
    pub rank: f64,
    /// Base-2 logarithm of the number of texts, minus the base-2 logarithm of the rank.
    pub exposure: f64,
}

impl Exposures {
    /// Prints the canaries and their mean.
    pub(super) fn print(&self) {
        for Exposure { text, rank, exposure, .. } in &self.canaries {
            let candidates = self.candidates;
            burn_dp_examples::print_line!(
                "canary {text:?}: rank {rank} of {candidates}, exposure {exposure:.2}"
            );
        }
        burn_dp_examples::print_line!(
            "mean exposure {:.2} of at most {:.2}; {} without memorization",
            self.mean,
            self.largest,
            significant(self.by_chance, 3)
        );
        let Written { texts, canaries, others } = self.written;
        if texts > 0 {
            burn_dp_examples::print_line!(
                "{} that begin with \"{TEMPLATE}\" contain {canaries} of the {} canaries, and \
                 {others} of the {} texts that were not trained on",
                counted(texts, "written text"),
                self.canaries.len(),
                self.candidates - 1
            );
        }
    }

    /// Returns the canaries in one sentence.
    pub(super) fn fact(&self) -> String {
        format!(
            "{} (\"{TEMPLATE} ...\"), each repeated in {}; canaries count as rows or users",
            counted(self.canaries.len(), "synthetic canary text"),
            counted(self.repetitions, "row")
        )
    }
}

/// Measures an existing model, prints the exposures, and writes them.
///
/// # Errors
///
/// Returns [`TrainError`] if the model cannot be read or is not a GPT-2, an option is impossible,
/// or the file cannot be written.
pub(super) fn run(options: &ExposureOptions) -> Result<(), TrainError> {
    options.json.as_deref().map_or(Ok(()), |path| checks::file("--json", path, None))?;
    checks::at_least_one([("--canaries", options.canaries)])?;
    let device = device(options.backend)?;
    let (config, model) = language_model(&options.model, &device)?;
    let encoding = Encoding::read(&options.model, &config, config.max_length())?;
    let drawn = CanaryOptions {
        canaries: options.canaries,
        canary_repetitions: 1,
        canary_candidates: options.canary_candidates,
        canary_texts: options.canary_texts,
    };
    let Some(canaries) = Canaries::draw(&drawn, &encoding, options.seed)? else { return Ok(()) };
    // The model's files do not say how often it has seen them.
    let writer = Writer { model, encoding: &encoding, device };
    writer.device.seed(options.seed);
    let exposures = canaries.expose(&writer, &drawn, EVALUATED)?;
    let exposures = Exposures { repetitions: 0, ..exposures };
    exposures.print();
    options.json.as_deref().map_or(Ok(()), |path| files::write_json(path, &exposures))
}

/// Returns the text of a number.
fn text(number: usize) -> String {
    let digits = format!("{number:0DIGITS$}");
    // Spaces prevent a tokenizer from joining digits into one token.
    digits.chars().fold(TEMPLATE.to_string(), |text, digit| format!("{text} {digit}"))
}

/// Checks that the model reads canaries as a whole, and distinguishes digits.
fn check(encoding: &Encoding) -> Result<(), TrainError> {
    let mut seen = HashSet::new();
    for digit in 0..10 {
        let text = text(digit * (TEXTS - 1) / 9);
        let Sequence { ids, .. } = encoding.generated("", &text)?;
        if ids.last().copied() != encoding.end() {
            let reason = format!(
                "must be greater for canaries: {text:?} has more than {} tokens",
                encoding.max_length()
            );
            return Err(TrainError::option("--max-length", reason));
        }
        if !seen.insert(ids) {
            let reason = format!(
                "needs a tokenizer that distinguishes digits: {text:?} has the tokens of another \
                 canary; leave --canaries out for this model"
            );
            return Err(TrainError::option("--canaries", reason));
        }
    }
    Ok(())
}

/// Returns the sum of the losses of the tokens of each text.
fn losses(writer: &Writer, texts: &[&Sequence], together: usize) -> Vec<f64> {
    let config = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![Tokens::IGNORED]));
    let loss = config.with_reduction(ExampleReduction::Sum).init();
    let chunk = |texts: &[&Sequence]| {
        let tokens = Tokens::new(texts, &writer.device);
        let losses = loss.forward_sequence(writer.model.forward(&tokens), tokens.next);
        losses.into_data().iter::<f64>().collect::<Vec<_>>()
    };
    texts.chunks(together).flat_map(chunk).collect()
}

/// Returns the rank of a loss among the losses of other texts. A loss that is NaN is the last one.
fn rank(loss: f64, others: &[f64]) -> f64 {
    let count = |ordering| others.iter().filter(|other| other.total_cmp(&loss) == ordering).count();
    1.0 + count(std::cmp::Ordering::Less) as f64 + 0.5 * count(std::cmp::Ordering::Equal) as f64
}

/// Returns the mean exposure if all ranks are equally likely.
fn by_chance(candidates: usize) -> f64 {
    let exposure = |rank: usize| (candidates as f64 / rank as f64).log2();
    (1..=candidates).map(exposure).sum::<f64>() / candidates as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::Config;

    #[test]
    fn the_rank_counts_lower_losses_and_half_of_the_equal_ones() {
        let others = [3.0, 1.0, 2.0, 2.0, f64::NAN];
        let ranks = [0.5, 1.5, 2.0, 9.0, f64::NAN].map(|loss| rank(loss, &others));
        assert_eq!(ranks, [1.0, 2.0, 3.0, 5.0, 5.5]);
    }

    #[test]
    fn the_exposure_by_chance_tends_to_the_mean_of_an_exponential_variable() {
        assert_eq!(by_chance(1), 0.0);
        assert!((by_chance(2) - 0.5).abs() < 1e-12);
        let limit = 1.0 / std::f64::consts::LN_2;
        assert!((by_chance(100_000) - limit).abs() < 1e-3, "{}", by_chance(100_000));
    }

    #[test]
    fn a_canary_keeps_its_leading_zeros() {
        assert_eq!(text(1230), "The secret number is 0 0 1 2 3 0");
    }

    // Its tokenizer has 40 words and no digit.
    #[test]
    fn a_tokenizer_without_digits_is_refused_where_canaries_are_asked_for() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gpt2-generate");
        let config = Config::read(&folder).unwrap();
        let encoding = Encoding::read(&folder, &config, 12).unwrap();
        let draw = |canaries, repetitions, candidates| {
            let options = CanaryOptions {
                canaries,
                canary_repetitions: repetitions,
                canary_candidates: candidates,
                canary_texts: 0,
            };
            Canaries::draw(&options, &encoding, 0).map_err(|error| error.to_string())
        };
        assert!(draw(0, 1, 9).unwrap().is_none());
        let error = draw(2, 1, 9).unwrap_err();
        assert!(error.contains("--canaries needs a tokenizer that distinguishes"), "{error}");
        assert!(draw(2, 0, 9).unwrap_err().contains("--canary-repetitions"));
        let error = draw(2, usize::MAX, 9).unwrap_err();
        assert!(error.contains("--canary-repetitions must be at most 1000000"), "{error}");
        assert!(draw(2, 1, 999_999).unwrap_err().contains("at most 1000000 together"));
        let options = CanaryOptions {
            canaries: 0,
            canary_repetitions: 1,
            canary_candidates: 9,
            canary_texts: usize::MAX,
        };
        let error = Canaries::draw(&options, &encoding, 0).unwrap_err().to_string();
        assert!(error.contains("--canary-texts must be at most 1000000 texts, got"), "{error}");
        let short = Encoding::read(&folder, &config, 8).unwrap();
        let options = CanaryOptions {
            canaries: 1,
            canary_repetitions: 1,
            canary_candidates: 9,
            canary_texts: 0,
        };
        let error = Canaries::draw(&options, &short, 0).unwrap_err().to_string();
        assert!(error.contains("--max-length must be greater for canaries"), "{error}");
    }
}
