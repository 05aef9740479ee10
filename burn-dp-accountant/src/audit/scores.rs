//! The scores of the canaries.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::AccountantError;
use crate::strict_json::Unrepeated;

/// Scores of canaries that were part of the training (`in`) and that were not (`out`). A higher
/// score means "in".
///
/// Which canaries are included must be decided by independent coins (for the one-run estimators:
/// fair coins), and a score must be computed without knowledge of its coin. The score may come from
/// any attack on any training run, for example the negative loss of the final model, or the product
/// of the released updates with the gradient of the canary.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditScores {
    /// Scores of the included canaries, as given: a split of the canaries must not depend on the
    /// order of their scores.
    #[serde(rename = "in")]
    included_as_given: Vec<f64>,
    /// Scores of the excluded canaries, as given.
    #[serde(rename = "out")]
    excluded_as_given: Vec<f64>,
    /// Both, ascending.
    #[serde(skip)]
    included: Vec<f64>,
    #[serde(skip)]
    excluded: Vec<f64>,
}

impl AuditScores {
    /// Creates the scores of an audit. Infinite scores are allowed.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a list is empty or holds NaN.
    pub fn new(included: Vec<f64>, excluded: Vec<f64>) -> Result<Self, AccountantError> {
        let sorted = |name: &'static str, mut scores: Vec<f64>| {
            if scores.is_empty() {
                return Err(AccountantError::invalid(name, "must hold at least one score, got []"));
            }
            if let Some(index) = scores.iter().position(|score| score.is_nan()) {
                let reason = format!("must hold numbers, but score {index} is NaN; {WAY_OUT}");
                return Err(AccountantError::invalid(name, reason));
            }
            scores.sort_by(f64::total_cmp);
            Ok(scores)
        };
        Ok(Self {
            included: sorted("in", included.clone())?,
            excluded: sorted("out", excluded.clone())?,
            included_as_given: included,
            excluded_as_given: excluded,
        })
    }

    /// Reads scores from JSON: `{"in": [..], "out": [..]}`. Other fields are ignored.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Format`] if the text is not such JSON or has a repeated field,
    /// and the errors of [`new`](Self::new).
    pub fn from_json(text: &str) -> Result<Self, AccountantError> {
        let Unrepeated(value) = serde_json::from_str(text).map_err(|source| {
            let token = token_at(text, source.line(), source.column());
            let reason = match token {
                Some(token) => format!("the scores hold {token}, which is not JSON; {WAY_OUT}"),
                None if source.is_data() => "the scores are ambiguous".into(),
                None => "the scores are not JSON".into(),
            };
            AccountantError::Format { reason, source: Some(source) }
        })?;
        Self::new(list(&value, "in")?, list(&value, "out")?)
    }

    /// Reads scores from a JSON file; see [`from_json`](Self::from_json).
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Io`] if the file cannot be read, and the errors of
    /// [`from_json`](Self::from_json).
    pub fn load(path: &Path) -> Result<Self, AccountantError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| AccountantError::Io { path: path.to_path_buf(), source })?;
        Self::from_json(&text)
    }

    /// Returns the scores of the included canaries, ascending.
    pub fn included(&self) -> &[f64] {
        &self.included
    }

    /// Returns the scores of the excluded canaries, ascending.
    pub fn excluded(&self) -> &[f64] {
        &self.excluded
    }

    /// Returns the scores of the included and of the excluded canaries, in the order in which they
    /// were given.
    pub(super) fn as_given(&self) -> [&[f64]; 2] {
        [&self.included_as_given, &self.excluded_as_given]
    }

    /// Returns the number of canaries.
    pub fn canaries(&self) -> usize {
        self.included.len() + self.excluded.len()
    }

    /// Returns the empirical ROC curve: `(false positive rate, true positive rate)` for each
    /// threshold, from (0, 0) to (1, 1).
    pub fn roc(&self) -> Vec<(f64, f64)> {
        let (n_in, n_out) = (self.included.len(), self.excluded.len());
        let rate = |errors: &Errors| {
            let (positives, false_positives) = (n_in - errors.misses, errors.false_alarms);
            (false_positives as f64 / n_out as f64, positives as f64 / n_in as f64)
        };
        self.thresholds().iter().rev().map(rate).collect()
    }

    /// Returns every threshold with a different result, ascending; the last one is infinite and
    /// means "out" for every canary.
    pub(super) fn thresholds(&self) -> Vec<Errors> {
        let mut values: Vec<f64> = self.included.iter().chain(&self.excluded).copied().collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let mut thresholds: Vec<_> = values.into_iter().map(|value| self.errors(value)).collect();
        let all = (self.included.len(), 0);
        thresholds.push(Errors { threshold: None, misses: all.0, false_alarms: all.1 });
        thresholds
    }

    /// Returns the errors of the decision "in if the score is at least `threshold`".
    pub(super) fn errors(&self, threshold: f64) -> Errors {
        let below = |scores: &[f64]| scores.partition_point(|&score| score < threshold);
        Errors {
            threshold: Some(threshold),
            misses: below(&self.included),
            false_alarms: self.excluded.len() - below(&self.excluded),
        }
    }
}

const WAY_OUT: &str = "give every canary without a score one fixed score, in or out";

/// The errors of one threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Errors {
    /// `None`: above all scores.
    pub(super) threshold: Option<f64>,
    /// Included canaries below the threshold.
    pub(super) misses: usize,
    /// Excluded canaries at or above it.
    pub(super) false_alarms: usize,
}

fn list(value: &Value, name: &'static str) -> Result<Vec<f64>, AccountantError> {
    let Some(list) = value.get(name).and_then(Value::as_array) else {
        return Err(AccountantError::invalid(
            name,
            r#"must be a list of numbers: {"in": [..], "out": [..]}"#,
        ));
    };
    let numbers = list.iter().enumerate().map(|(index, value)| {
        value.as_f64().ok_or_else(|| {
            let reason = format!(
                "must hold numbers, but score {index} is {value} (many programs write NaN as \
                 null); {WAY_OUT}"
            );
            AccountantError::invalid(name, reason)
        })
    });
    numbers.collect()
}

/// Returns the number that JSON does not support and at which a parser stopped.
fn token_at(text: &str, line: usize, column: usize) -> Option<&'static str> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    let rest = line.get(column.checked_sub(1)?..)?;
    // A minus sign is consumed before the parser stops.
    ["NaN", "Infinity", "-Infinity"]
        .into_iter()
        .find(|token| rest.starts_with(token) || rest.starts_with(&token[1..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn scores_that_are_not_numbers_are_named() {
        let error = |text: &str| AuditScores::from_json(text).unwrap_err().to_string();
        assert!(AuditScores::new(vec![1.0, f64::NAN], vec![0.0]).is_err());
        for (text, part) in [
            (r#"{"in": [1, NaN], "out": [0]}"#, "NaN"),
            (r#"{"in": [1], "out": [-Infinity]}"#, "Infinity"),
            (r#"{"in": [1, null], "out": [0]}"#, "in must hold numbers, but score 1 is null"),
            (r#"{"in": [1], "out": ["a"]}"#, r#"out must hold numbers, but score 0 is "a""#),
            (r#"{"in": [], "out": [0]}"#, "in must hold at least one score"),
            (r#"{"in": [1], "out": []}"#, "out must hold at least one score"),
            (r#"{"in": [1]}"#, "out must be a list"),
            ("[", "not JSON"),
            (r#"{"in": [1], "out": [0], "in": [2]}"#, "the scores are ambiguous"),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
    }

    #[test]
    fn each_distinct_score_is_a_threshold_and_ties_stay_together() {
        let scores = AuditScores::new(vec![2.0, 1.0, 1.0], vec![1.0, 0.0]).unwrap();
        let errors: Vec<_> = scores
            .thresholds()
            .iter()
            .map(|errors| (errors.threshold, errors.misses, errors.false_alarms))
            .collect();
        let expected = [(Some(0.0), 0, 2), (Some(1.0), 0, 1), (Some(2.0), 2, 0), (None, 3, 0)];
        assert_eq!(errors, expected);
        let roc = [(0.0, 0.0), (0.0, 1.0 / 3.0), (0.5, 1.0), (1.0, 1.0)];
        assert_eq!(scores.roc(), roc);
    }

    #[test]
    fn equal_scores_have_one_threshold() {
        let scores = AuditScores::new(vec![0.0; 5], vec![-0.0; 4]).unwrap();
        assert_eq!(scores.roc(), [(0.0, 0.0), (1.0, 1.0)]);
    }
}
