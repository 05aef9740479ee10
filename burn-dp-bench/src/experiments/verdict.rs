//! A paper's claim, and whether it holds here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::point::{FigurePoint, significant};

/// A claim, and whether it holds here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The claim as a sentence.
    pub claim: String,
    /// Whether the numbers agree with it; of several seeds, their means.
    pub holds: bool,
    /// Whether the answer depends on which of the seeds are compared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_average: bool,
    /// The numbers that decide the verdict.
    pub numbers: BTreeMap<String, f64>,
}

/// A comparison of two named values, each of several seeds: one is larger than the other plus a
/// margin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Above<'a> {
    larger: (&'a str, FigurePoint),
    smaller: (&'a str, FigurePoint),
    margin: f64,
}

impl<'a> Above<'a> {
    /// Compares `larger` with `smaller`.
    pub(super) fn new(larger: (&'a str, FigurePoint), smaller: (&'a str, FigurePoint)) -> Self {
        Self { larger, smaller, margin: 0.0 }
    }

    /// Demands a difference of more than `margin`; a negative margin allows `larger` to be below.
    pub(super) fn by(self, margin: f64) -> Self {
        Self { margin, ..self }
    }

    fn holds(&self, of: [fn(&FigurePoint) -> f64; 2]) -> bool {
        of[0](&self.larger.1) > of[1](&self.smaller.1) + self.margin
    }
}

impl Verdict {
    /// Returns the verdict on a claim.
    pub fn new<'a>(
        claim: impl Into<String>,
        holds: bool,
        numbers: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Self {
        let numbers = numbers.into_iter().map(|(name, value)| (name.to_string(), value));
        Self { claim: claim.into(), holds, on_average: false, numbers: numbers.collect() }
    }

    /// Returns the verdict on a claim that is true if all comparisons are. Means decide; if some
    /// choice of seeds decides otherwise, the verdict says so.
    pub(super) fn comparing(claim: impl Into<String>, comparisons: &[Above<'_>]) -> Self {
        let all = |of| comparisons.iter().all(|comparison| comparison.holds(of));
        let holds = all([|point| point.y, |point| point.y]);
        let for_every_seed = all([|point| point.low, |point| point.high]);
        let for_some_seed = all([|point| point.high, |point| point.low]);
        let numbers = comparisons.iter().flat_map(|comparison| {
            [comparison.larger, comparison.smaller].map(|(name, point)| (name, point.y))
        });
        let on_average = if holds { !for_every_seed } else { for_some_seed };
        Self { on_average, ..Self::new(claim, holds, numbers) }
    }

    /// Demands a condition too, which does not depend on seeds.
    pub(super) fn and(mut self, condition: bool) -> Self {
        self.holds &= condition;
        self.on_average &= condition;
        self
    }

    /// Adds numbers.
    pub(super) fn with<N: Into<String>>(
        mut self,
        numbers: impl IntoIterator<Item = (N, f64)>,
    ) -> Self {
        self.numbers.extend(numbers.into_iter().map(|(name, value)| (name.into(), value)));
        self
    }
}

/// Returns which verdicts hold, for tests.
#[cfg(test)]
pub(super) fn held(verdicts: &[Verdict]) -> Vec<bool> {
    verdicts.iter().map(|verdict| verdict.holds).collect()
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.holds { "Held" } else { "Not held" };
        let on_average = if self.on_average { " on average" } else { "" };
        write!(f, "**{word}{on_average}**: {}", self.claim)?;
        let numbers: Vec<String> = self
            .numbers
            .iter()
            .map(|(name, value)| format!("{name} {}", significant(*value)))
            .collect();
        match numbers.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", numbers.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn compared(larger: &[f64], smaller: &[f64], margin: f64) -> (bool, bool) {
        let [larger, smaller] = [larger, smaller].map(|values| FigurePoint::of(1.0, values));
        let comparison = Above::new(("a", larger.unwrap()), ("b", smaller.unwrap())).by(margin);
        let verdict = Verdict::comparing("", &[comparison]);
        (verdict.holds, verdict.on_average)
    }

    #[test]
    fn means_decide_and_seeds_that_decide_otherwise_are_mentioned() {
        assert_eq!(compared(&[0.8, 0.9], &[0.6, 0.7], 0.0), (true, false));
        assert_eq!(compared(&[0.8, 0.9], &[0.6, 0.82], 0.0), (true, true));
        assert_eq!(compared(&[0.6, 0.82], &[0.8, 0.9], 0.0), (false, true));
        assert_eq!(compared(&[0.6, 0.7], &[0.8, 0.9], 0.0), (false, false));
        // The margin is a part of the comparison.
        assert_eq!(compared(&[0.8, 0.9], &[0.6, 0.7], 0.15), (true, true));
        assert_eq!(compared(&[0.6, 0.7], &[0.8, 0.9], -0.35), (true, false));
        // One seed has no spread, and what is missing holds for none.
        assert_eq!(compared(&[0.8], &[0.7], 0.0), (true, false));
        assert_eq!(compared(&[f64::NAN], &[0.7], 0.0), (false, false));
    }

    #[test]
    fn all_comparisons_have_to_hold() {
        let [low, high] = [0.1, 0.2].map(|y| FigurePoint::exact(1.0, y));
        let above = Above::new(("high", high), ("low", low));
        let below = Above::new(("low", low), ("high", high));
        assert!(Verdict::comparing("", &[above, above]).holds);
        let verdict = Verdict::comparing("", &[above, below]);
        assert!(
            !verdict.holds && verdict.numbers == [("high".into(), 0.2), ("low".into(), 0.1)].into()
        );
    }

    #[test]
    fn a_condition_decides_regardless_of_the_seeds() {
        let verdict = Verdict { on_average: true, ..Verdict::new("", true, []) };
        let [met, not_met] = [true, false].map(|condition| verdict.clone().and(condition));
        assert_eq!((met.holds, met.on_average), (true, true));
        assert_eq!((not_met.holds, not_met.on_average), (false, false));
        assert_eq!(verdict.with([("a", 1.0)]).numbers, [("a".into(), 1.0)].into());
    }

    #[test]
    fn the_sentence_says_whether_it_holds_only_on_average() {
        let verdict = Verdict::new("It rises.", true, [("rise", 1.0)]);
        assert_eq!(verdict.to_string(), "**Held**: It rises. (rise 1)");
        let verdict = Verdict { holds: false, on_average: true, ..verdict };
        assert_eq!(verdict.to_string(), "**Not held on average**: It rises. (rise 1)");
    }
}
