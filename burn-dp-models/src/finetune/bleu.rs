//! The BLEU score of generated texts.

use std::collections::HashMap;

/// Longest n-gram.
const ORDER: usize = 4;

/// Returns the BLEU score of a corpus, between 0 and 1: the geometric mean of the precisions of
/// n-grams of one to four words, times the penalty for short texts.
///
/// Words are separated by white space. Each text has one reference. Without a match of some length
/// the score is zero, as in the definition.
///
/// # References
///
/// Papineni et al., BLEU: a method for automatic evaluation of machine translation, 2002, section
/// 2.3.
pub(super) fn bleu(pairs: &[(String, String)]) -> f64 {
    let (mut matched, mut total) = ([0_usize; ORDER], [0_usize; ORDER]);
    let (mut words, mut expected) = (0, 0);
    for (found, reference) in pairs {
        let found: Vec<_> = found.split_whitespace().collect();
        let reference: Vec<_> = reference.split_whitespace().collect();
        words += found.len();
        expected += reference.len();
        for order in 1..=ORDER {
            let reference = counts(&reference, order);
            for (ngram, count) in counts(&found, order) {
                total[order - 1] += count;
                matched[order - 1] += count.min(reference.get(ngram).copied().unwrap_or(0));
            }
        }
    }
    if matched.contains(&0) {
        return 0.0;
    }
    let precisions = matched.iter().zip(total).map(|(m, t)| (*m as f64 / t as f64).ln());
    let penalty = (1.0 - expected as f64 / words as f64).min(0.0);
    (precisions.sum::<f64>() / ORDER as f64 + penalty).exp()
}

fn counts<'a, 'b>(words: &'a [&'b str], order: usize) -> HashMap<&'a [&'b str], usize> {
    let mut counts = HashMap::new();
    for ngram in words.windows(order) {
        *counts.entry(ngram).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(found: &str, reference: &str) -> (String, String) {
        (found.into(), reference.into())
    }

    #[test]
    fn a_copy_scores_one_and_other_words_zero() {
        let text = "the cat is on the mat";
        assert!((bleu(&[pair(text, text)]) - 1.0).abs() < 1e-12);
        assert_eq!(bleu(&[pair("a dog", text)]), 0.0);
        assert_eq!(bleu(&[]), 0.0);
    }

    #[test]
    fn the_score_equals_a_computation_by_hand() {
        // 5 of 6 words, 4 of 5 pairs, 3 of 4 triples, 2 of 3 quadruples; no penalty.
        let found = bleu(&[pair("the cat is on the rug", "the cat is on the mat")]);
        let expected = (5.0 / 6.0 * 4.0 / 5.0 * 3.0 / 4.0 * 2.0 / 3.0_f64).powf(0.25);
        assert!((found - expected).abs() < 1e-12, "{found}");
        // A repeated word counts as often as in the reference, and short texts are penalized.
        let found = bleu(&[pair("the cat is on", "the cat is on the mat")]);
        assert!((found - (1.0 - 6.0 / 4.0_f64).exp()).abs() < 1e-12, "{found}");
    }
}
