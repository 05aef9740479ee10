//! The guesses of one run, in the order of their confidence.

use super::scores::AuditScores;

/// Returns, for each r from 1 to m, how many of the r most confident guesses are wrong.
///
/// The highest score is guessed "in", the lowest "out", the second highest "in", and so on to the
/// middle. The order depends only on the scores, never on the coins. Among equal scores, the wrong
/// guesses come first: no order of them that ignores the coins has fewer correct guesses.
pub(super) fn wrong_guesses(scores: &AuditScores) -> Vec<u64> {
    let (included, excluded) = (scores.included(), scores.excluded());
    let descending = |list: &[f64]| list.iter().rev().copied().collect::<Vec<_>>();
    let ascending_of_negated = |list: &[f64]| list.iter().map(|score| -score).collect::<Vec<_>>();
    // Both sides from the most confident score on; wrong guesses win ties.
    let top = wrong_first(&descending(excluded), &descending(included));
    let bottom = wrong_first(&ascending_of_negated(included), &ascending_of_negated(excluded));
    let mut wrong = 0;
    (0..scores.canaries())
        .map(|r| {
            let side = if r % 2 == 0 { &top } else { &bottom };
            wrong += u64::from(side[r / 2]);
            wrong
        })
        .collect()
}

/// Merges two descending lists; returns whether each element is of `wrong`.
fn wrong_first(wrong: &[f64], right: &[f64]) -> Vec<bool> {
    let (mut w, mut r) = (0, 0);
    let mut merged = Vec::with_capacity(wrong.len() + right.len());
    while w < wrong.len() || r < right.len() {
        let is_wrong = w < wrong.len() && (r == right.len() || wrong[w] >= right[r]);
        merged.push(is_wrong);
        if is_wrong { w += 1 } else { r += 1 }
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wrong(included: &[f64], excluded: &[f64]) -> Vec<u64> {
        wrong_guesses(&AuditScores::new(included.to_vec(), excluded.to_vec()).unwrap())
    }

    #[test]
    fn guesses_alternate_between_both_ends() {
        assert_eq!(wrong(&[3.0, 4.0], &[1.0, 2.0]), [0, 0, 0, 0]);
        // in: 9, 5, 1; out: 8, 4. Guesses: 9 in, 1 out (wrong), 8 in (wrong), 4 out, 5 in.
        assert_eq!(wrong(&[9.0, 5.0, 1.0], &[8.0, 4.0]), [0, 1, 2, 2, 2]);
    }

    #[test]
    fn equal_scores_are_guessed_wrong_first() {
        assert_eq!(wrong(&[1.0; 3], &[1.0; 3]), [1, 2, 3, 4, 5, 6]);
        // Two groups: within each, the wrong guesses come first.
        assert_eq!(wrong(&[1.0, 1.0, 0.0], &[1.0, 0.0, 0.0]), [1, 2, 2, 2, 2, 2]);
    }
}
