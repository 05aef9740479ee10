//! The choice of the examples of a unit that a step uses.

use crate::random::{Domain, Key, Stream, choose_without_replacement};

/// Chooses some of the examples of a unit in one step: a function of the key of the run, the step
/// and the unit, so that a resumed run makes the same choices.
///
/// # Privacy
///
/// As secret as the draws. Each subset is equally likely, for uniform words, independently in each
/// step and for each unit.
#[derive(Clone)]
pub struct ExampleChoice {
    key: Key,
    step: u64,
}

impl ExampleChoice {
    pub(crate) fn new(key: &Key, step: u64) -> Self {
        Self { key: key.clone(), step }
    }

    /// Returns the positions of the chosen examples, ascending: all of them if the unit owns at
    /// most `max_examples`.
    pub(super) fn of_unit(&self, unit: usize, owned: usize, max_examples: usize) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..owned).collect();
        if owned > max_examples {
            let stream = Stream::new(&self.key, Domain::Examples, self.step, unit as u64);
            let mut words = stream.into_words();
            choose_without_replacement(&mut words, &mut positions, max_examples);
        }
        positions
    }
}

opaque_debug!(ExampleChoice, |this| step: this.step);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::InsecureSeed;
    use crate::random::statistics::{assert_chi_squared, chi_squared};

    fn choice(step: u64) -> ExampleChoice {
        ExampleChoice::new(&InsecureSeed(21).into(), step)
    }

    // 10 pairs of 5 examples in two consecutive steps: 100 cells.
    #[test]
    fn choices_are_uniform_and_independent_between_steps_with_error_rate_1e_6() {
        let mut counts = vec![0.0; 100];
        let pair = |positions: Vec<usize>| match positions[..] {
            [0, second] => second - 1,
            [1, second] => second + 2,
            [2, second] => second + 4,
            _ => 9,
        };
        for run in 0..40_000 {
            let of = |step| pair(choice(step).of_unit(7, 5, 2));
            counts[of(2 * run) * 10 + of(2 * run + 1)] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[400.0; 100]), 99);
    }

    #[test]
    fn units_choose_independently_with_error_rate_1e_6() {
        let mut counts = [0.0; 9];
        for run in 0..18_000 {
            let of = |unit| choice(run).of_unit(unit, 3, 1)[0];
            counts[of(0) * 3 + of(1)] += 1.0;
        }
        assert_chi_squared(chi_squared(&counts, &[2000.0; 9]), 8);
    }

    #[test]
    fn a_unit_with_few_examples_uses_all_of_them() {
        assert_eq!(choice(0).of_unit(3, 4, 4), [0, 1, 2, 3]);
        assert!(choice(0).of_unit(3, 0, 4).is_empty());
        let many = choice(5).of_unit(3, 1000, 10);
        assert!(many.len() == 10 && many.is_sorted_by(|a, b| a < b));
        assert_eq!(many, choice(5).of_unit(3, 1000, 10));
        assert!(!format!("{:?}", choice(5)).contains("key"));
    }
}
