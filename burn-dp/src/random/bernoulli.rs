//! Exact Bernoulli trials.

/// A trial that succeeds with a given probability in (0, 1), for every `f64` exactly.
///
/// A trial compares a uniform real number U in [0, 1) with the probability q and succeeds if U < q.
/// Both are written in binary, 64 digits at a time, and compared as integers: an `f64` has finitely
/// many binary digits, all of them are used, and nothing is rounded. The first 64 digits decide
/// except with probability 2^-64.
#[derive(Debug)]
pub(crate) struct Bernoulli {
    /// The first 64 binary digits of the probability.
    first: u64,
    /// The digits after them, 64 at a time, without zeros at the end.
    further: Vec<u64>,
}

impl Bernoulli {
    /// Returns the trial with this probability, which must be in (0, 1).
    pub(crate) fn new(probability: f64) -> Self {
        debug_assert!(probability > 0.0 && probability < 1.0, "{probability} must be in (0, 1)");
        let mut rest = probability;
        // Exact: a product with a power of two, a floor, and a difference that drops leading bits.
        let mut digits = || {
            rest *= 2f64.powi(64);
            let digits = rest.floor();
            rest -= digits;
            digits as u64
        };
        let first = digits();
        // The smallest positive `f64` is 2^-1074, so 17 words contain all digits.
        let mut further: Vec<u64> = (1..17).map(|_| digits()).collect();
        while further.last() == Some(&0) {
            further.pop();
        }
        Self { first, further }
    }

    /// Runs the trial for the number whose first 64 binary digits are `word`; `further` returns the
    /// digits after them.
    #[inline]
    pub(crate) fn succeeds<W: Iterator<Item = u64>>(
        &self,
        word: u64,
        further: impl FnOnce() -> W,
    ) -> bool {
        if word != self.first {
            return word < self.first;
        }
        let digits = self.further.iter().copied();
        further().zip(digits).find(|(word, digits)| word != digits).is_some_and(|(w, d)| w < d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn succeeds(probability: f64, words: &[u64]) -> bool {
        Bernoulli::new(probability).succeeds(words[0], || words[1..].iter().copied())
    }

    #[test]
    fn the_comparison_has_no_rounding_at_its_edge() {
        // q = 1/2: exactly the words below 2^63.
        assert!(succeeds(0.5, &[(1 << 63) - 1]));
        assert!(!succeeds(0.5, &[1 << 63, 0]));
        // q = 2^-65: the first word must be 0 and the second below 2^63.
        let q = 2f64.powi(-65);
        assert!(!succeeds(q, &[1, 0]));
        assert!(succeeds(q, &[0, (1 << 63) - 1]));
        assert!(!succeeds(q, &[0, 1 << 63]));
    }

    #[test]
    fn a_probability_next_to_one_excludes_only_the_largest_words() {
        let below = 1.0 - f64::EPSILON / 2.0;
        assert!(succeeds(below, &[u64::MAX - 2048]));
        assert!(!succeeds(below, &[u64::MAX - 2047, 0]));
    }

    #[test]
    fn the_digits_of_a_probability_add_up_to_it() {
        for q in [0.1, 1.0 / 3.0, 0.999_999_999, 1e-5, 1e-18, 1e-30, 1e-300, f64::from_bits(1)] {
            let Bernoulli { first, further } = Bernoulli::new(q);
            let mut sum = 0.0;
            for (place, digits) in (1..).zip([first].into_iter().chain(further)) {
                // In two factors, since 2^-1088 is below all positive numbers.
                let half = 2f64.powi(-32 * place);
                sum += digits as f64 * half * half;
            }
            assert_eq!(sum, q);
        }
    }
}
