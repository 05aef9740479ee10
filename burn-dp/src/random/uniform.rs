//! Exactly uniform integers and permutations.

/// Returns a number below `bound`, exactly uniform if the words are.
///
/// # References
///
/// D. Lemire, "Fast Random Integer Generation in an Interval", 2019, section 4.
pub(crate) fn below(words: &mut impl Iterator<Item = u64>, bound: u64) -> u64 {
    debug_assert!(bound > 0, "bound must be positive");
    let rejected_below = bound.wrapping_neg() % bound; // 2^64 mod bound
    words
        .map(|word| u128::from(word) * u128::from(bound))
        .find(|&product| product as u64 >= rejected_below)
        .map_or(0, |product| (product >> 64) as u64)
}

/// Returns a permutation of `0..length`; each has the same probability if the words are uniform.
///
/// # References
///
/// R. Durstenfeld, "Algorithm 235: Random Permutation", 1964.
pub(crate) fn permutation(words: &mut impl Iterator<Item = u64>, length: usize) -> Vec<usize> {
    let mut permutation: Vec<usize> = (0..length).collect();
    for last in (1..length).rev() {
        permutation.swap(last, below(words, last as u64 + 1) as usize);
    }
    permutation
}

/// Keeps `count` of the items, in ascending order; each set of them has the same probability if the
/// words are uniform.
pub(crate) fn choose_without_replacement(
    words: &mut impl Iterator<Item = u64>,
    items: &mut Vec<usize>,
    count: usize,
) {
    // The first places of a permutation.
    for place in 0..count {
        let left = (items.len() - place) as u64;
        items.swap(place, place + below(words, left) as usize);
    }
    items.truncate(count);
    items.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::statistics::{assert_chi_squared, chi_squared};
    use crate::random::{Domain, InsecureSeed, Key, Stream, Words};

    fn words(seed: u64, step: u64, position: u64) -> Words {
        Stream::new(&InsecureSeed(seed).into(), Domain::Shuffling, step, position).into_words()
    }

    #[test]
    fn bounded_integers_are_uniform_with_error_rate_1e_6() {
        let mut words = words(2, 0, 0);
        let (bound, draws) = (48, 100_000);
        let mut counts = vec![0.0; bound];
        for _ in 0..draws {
            counts[below(&mut words, bound as u64) as usize] += 1.0;
        }
        let expected = vec![draws as f64 / bound as f64; bound];
        assert_chi_squared(chi_squared(&counts, &expected), bound - 1);
    }

    #[test]
    fn every_permutation_is_equally_likely_with_error_rate_1e_6() {
        let mut counts = vec![0.0; 24];
        for step in 0..24_000 {
            let found = permutation(&mut words(3, step, 5), 4);
            let rank = |at: usize| (at..4).filter(|&i| found[i] < found[at]).count();
            counts[rank(0) * 6 + rank(1) * 2 + rank(2)] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[1000.0; 24]), 23);
    }

    #[test]
    fn a_permutation_depends_on_key_step_and_position() {
        let of = |seed, step, position| permutation(&mut words(seed, step, position), 50);
        assert_eq!(of(3, 0, 5), of(3, 0, 5));
        for other in [of(4, 0, 5), of(3, 1, 5), of(3, 0, 6)] {
            assert_ne!(of(3, 0, 5), other);
        }
        assert!(permutation(&mut words(3, 0, 0), 0).is_empty());
        let key = Key::from(InsecureSeed(3));
        let mini_sets = Stream::new(&key, Domain::MiniSets, 0, 5);
        assert_ne!(of(3, 0, 5), permutation(&mut mini_sets.into_words(), 50));
    }

    #[test]
    fn words_that_would_favor_an_integer_are_rejected() {
        // 2^64 = 1 mod 3, so exactly one word, 0, has to be rejected.
        let below_3 = |words: &[u64]| below(&mut words.iter().copied(), 3);
        let third = u64::MAX / 3;
        assert_eq!(below_3(&[0, 1]), 0);
        assert_eq!(below_3(&[0, third + 1]), 1);
        assert_eq!(below_3(&[third]), 0);
        assert_eq!(below_3(&[u64::MAX]), 2);
    }
}
