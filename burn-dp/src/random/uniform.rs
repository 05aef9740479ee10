//! Uniform words, and choices with an exact probability.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::DpError;
use crate::random::NoiseStream;
use crate::random::keystream::{GROUP_BLOCKS, GROUP_WORDS, Group, Keystream};

/// Groups that one task computes.
const TASK_GROUPS: usize = 64;
/// Words that one task computes.
const TASK_WORDS: usize = TASK_GROUPS * GROUP_WORDS;

impl NoiseStream {
    /// Includes each of `0..number` independently with probability `probability`, and returns who
    /// is included, in increasing order.
    ///
    /// The word of an index is compared with `probability · 2^64`, rounded down to an integer:
    /// exact from 2^-12 on, where a double is a multiple of 2^-64, and below it too small by less
    /// than 2^-64.
    ///
    /// # Privacy
    ///
    /// Amplification by sampling holds for the true probability, which is never above the declared
    /// one; the guarantee of a Poisson-sampled mechanism does not get worse when the probability
    /// gets smaller. Who is included, and how many, is private.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] when `probability` is not in `[0, 1]`.
    pub fn bernoulli(self, number: usize, probability: f64) -> Result<Vec<usize>, DpError> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(DpError::invalid(
                "probability",
                format!("must be between 0 and 1, got {probability}"),
            ));
        }
        if probability == 1.0 {
            return Ok((0..number).collect());
        }
        let threshold = (probability * 2f64.powi(64)) as u64;
        let keystream = self.into_keystream();
        let parts: Vec<Vec<usize>> = (0..number.div_ceil(TASK_WORDS))
            .into_par_iter()
            .map(|task| {
                let start = task * TASK_WORDS;
                let end = number.min(start + TASK_WORDS);
                let expected = (end - start) as f64 * probability;
                let mut included = Vec::with_capacity((1.2 * expected) as usize + 16);
                for_each_group(&keystream, start, end, |first, words| {
                    for (index, &word) in words.iter().enumerate() {
                        if word < threshold {
                            included.push(first + index);
                        }
                    }
                });
                included
            })
            .collect();
        Ok(parts.concat())
    }

    /// Fills `out` with uniform 64-bit words.
    pub fn words(self, out: &mut [u64]) {
        self.fill(out, |word| word);
    }

    /// Fills `out` with uniform values in the open interval (0, 1): odd multiples of 2^-53, so
    /// that `x` and `1 - x` are equally likely and both ends are out of reach.
    pub fn uniform(self, out: &mut [f64]) {
        self.fill(out, |word| ((word >> 12) as f64 + 0.5) / 2f64.powi(52));
    }

    fn fill<T: Send>(self, out: &mut [T], convert: impl Fn(u64) -> T + Sync) {
        let keystream = self.into_keystream();
        out.par_chunks_mut(TASK_WORDS).enumerate().for_each(|(task, out)| {
            let start = task * TASK_WORDS;
            for_each_group(&keystream, start, start + out.len(), |first, words| {
                for (out, &word) in out[first - start..].iter_mut().zip(words) {
                    *out = convert(word);
                }
            });
        });
    }
}

/// Visits the words `start..end` of a keystream, a group at a time with the position of its first
/// word; `start` is the first of a group.
fn for_each_group(
    keystream: &Keystream,
    start: usize,
    end: usize,
    mut visit: impl FnMut(usize, &[u64]),
) {
    let arch = Arch::new();
    let mut words = Zeroizing::new([0; GROUP_WORDS]);
    for first in (start..end).step_by(GROUP_WORDS) {
        let index = (first / GROUP_WORDS) as u64;
        arch.dispatch(Words { keystream, index, words: &mut words });
        visit(first, &words[..GROUP_WORDS.min(end - first)]);
    }
}

/// The words of group `index`: word `i` is word `i / 16` of block `i % 16`.
struct Words<'a> {
    keystream: &'a Keystream,
    index: u64,
    words: &'a mut [u64; GROUP_WORDS],
}

impl WithSimd for Words<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut group = Group::new();
        self.keystream.fill(simd, self.index, &mut group);
        for (index, words) in self.words.chunks_exact_mut(GROUP_BLOCKS).enumerate() {
            for (block, word) in words.iter_mut().enumerate() {
                *word = group.word(index, block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::random::{InsecureSeed, NoiseSource, Purpose};

    fn stream(seed: u64) -> NoiseStream {
        let mut source = NoiseSource::insecure(InsecureSeed(seed));
        source.begin_step(Purpose::Sampling, 0).unwrap().stream(0).unwrap()
    }

    fn words(seed: u64, number: usize) -> Vec<u64> {
        let mut words = vec![0; number];
        stream(seed).words(&mut words);
        words
    }

    #[test]
    fn the_choice_is_the_exact_comparison_of_each_word() {
        let number = 3 * TASK_WORDS + 77;
        let words = words(1, number);
        for probability in [0.0, 1e-4, 0.01, 0.25, 0.999, 1.0] {
            let expected: Vec<usize> = (0..number)
                .filter(|&i| (words[i] as u128) < (probability * 2f64.powi(64)) as u128)
                .collect();
            assert_eq!(stream(1).bernoulli(number, probability).unwrap(), expected);
        }
    }

    #[test]
    fn a_probability_next_to_one_excludes_and_one_includes_everybody() {
        let below = 1.0 - f64::EPSILON / 2.0;
        assert_eq!((below * 2f64.powi(64)) as u64, u64::MAX - 2047);
        assert_eq!(stream(2).bernoulli(1000, 1.0).unwrap().len(), 1000);
        assert!(stream(2).bernoulli(1000, 0.0).unwrap().is_empty());
        assert!(stream(2).bernoulli(0, 0.5).unwrap().is_empty());
    }

    #[test]
    fn the_share_of_included_units_is_the_probability() {
        // Error rate 1e-6 each: 4.892 standard deviations, two-sided.
        for (seed, probability) in [(3, 0.001), (4, 0.03), (5, 0.5), (6, 0.9)] {
            let number = 2_000_000;
            let count = stream(seed).bernoulli(number, probability).unwrap().len() as f64;
            let mean = number as f64 * probability;
            let deviation = (mean * (1.0 - probability)).sqrt();
            assert!((count - mean).abs() < 4.892 * deviation, "{count} of {mean}");
        }
    }

    #[test]
    fn neighbours_and_steps_are_chosen_independently() {
        // Both in with probability 1/4; error rate 1e-6.
        let number = 1 << 20;
        let mut source = NoiseSource::insecure(InsecureSeed(8));
        let mut draw = |step| {
            let mut step = source.begin_step(Purpose::Sampling, step).unwrap();
            let mut present = vec![false; number];
            for index in step.stream(0).unwrap().bernoulli(number, 0.5).unwrap() {
                present[index] = true;
            }
            present
        };
        let (first, second) = (draw(0), draw(1));
        let bound = 4.892 * (number as f64 * 3.0 / 16.0).sqrt();
        let both = first.iter().zip(&second).filter(|(a, b)| **a && **b).count() as f64;
        assert!((both - number as f64 / 4.0).abs() < bound);
        for lag in [1, 16, 128] {
            // Disjoint pairs, so that they are independent.
            let pairs = (0..number).filter(|i| (i / lag) % 2 == 0);
            let both = pairs.filter(|&i| first[i] && first[i + lag]).count() as f64;
            let bound = 4.892 * (number as f64 / 2.0 * 3.0 / 16.0).sqrt();
            assert!((both - number as f64 / 8.0).abs() < bound, "lag {lag}");
        }
    }

    #[test]
    fn the_draw_does_not_depend_on_the_number_of_threads_and_extends_to_more_units() {
        let number = 5 * TASK_WORDS + 3;
        let reference = stream(9).bernoulli(number, 0.1).unwrap();
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let draw = pool.install(|| stream(9).bernoulli(number, 0.1).unwrap());
            assert_eq!(draw, reference);
        }
        let fewer = stream(9).bernoulli(1000, 0.1).unwrap();
        assert_eq!(reference[..fewer.len()], fewer);
    }

    #[test]
    fn uniform_values_are_uniform_and_never_reach_the_ends() {
        let mut values = vec![0.0; 1 << 18];
        stream(10).uniform(&mut values);
        assert!(values.iter().all(|&x| x > 0.0 && x < 1.0));
        values.sort_by(f64::total_cmp);
        // Kolmogorov-Smirnov, error rate 1e-6: √(ln(2/1e-6)/2) = 2.6935.
        let n = values.len() as f64;
        let distance = values.iter().enumerate().fold(0f64, |worst, (i, &x)| {
            worst.max((x - i as f64 / n).abs()).max(((i + 1) as f64 / n - x).abs())
        });
        assert!(distance < 2.6935 / n.sqrt(), "{distance}");
    }

    #[test]
    fn impossible_probabilities_are_refused() {
        for probability in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let error = stream(11).bernoulli(10, probability).unwrap_err();
            assert!(matches!(error, DpError::InvalidArgument { name: "probability", .. }));
            assert!(error.to_string().contains(&probability.to_string()));
        }
    }
}
