//! Made-up film reviews, and their conversion to numbers.

use burn_dp_examples::data::{TextBatcher, TextDataset, TextItem, Vocabulary};

/// Number of words that the network reads of a review.
const LENGTH: usize = 8;

const SUBJECTS: [&str; 6] = ["plot", "cast", "music", "ending", "script", "camera"];
const GOOD: [&str; 5] = ["great", "moving", "clever", "funny", "brilliant"];
const BAD: [&str; 5] = ["dull", "weak", "boring", "awful", "tired"];
const FILLERS: [&str; 4] = ["the", "was", "and", "really"];

/// Returns the vocabulary: a public list.
///
/// # Privacy
///
/// A vocabulary collected from the private reviews would reveal which words somebody wrote, and ε
/// would not count it.
pub fn vocabulary() -> Vocabulary {
    let words = [&SUBJECTS[..], &GOOD, &BAD, &FILLERS].concat();
    Vocabulary::listed(words.into_iter().map(String::from))
}

/// Returns the batcher that turns reviews into tensors.
pub fn batcher() -> TextBatcher {
    TextBatcher { length: LENGTH, vocabulary: vocabulary().len() }
}

/// Returns `items` reviews, every second one positive. Reviews of another `offset` are different.
pub fn reviews(offset: usize, items: usize) -> TextDataset {
    let vocabulary = vocabulary();
    let review = |index: usize| {
        let label = index % 2;
        // Well mixed, and the same in every run.
        let number = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word =
            |shift: u32, words: &[&'static str]| words[(number >> shift) as usize % words.len()];
        let opinion = if label == 1 { GOOD } else { BAD };
        let text = format!(
            "the {} was really {} and the {} was {}",
            word(20, &SUBJECTS),
            word(30, &opinion),
            word(40, &SUBJECTS),
            word(50, &opinion),
        );
        TextItem { tokens: vocabulary.encode(&text).into(), label: label as u16 }
    };
    TextDataset::new((offset..offset + items).map(review).collect())
}
