//! The estimators together, and their results.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::band::Band;
use super::checks::{check_delta, check_significance};
use super::clopper_pearson::{
    AtThreshold, ThresholdRule, of_all_thresholds, of_fixed_threshold, of_split,
};
use super::gaussian_bound::{GaussianLowerBound, mu_of_all_thresholds};
use super::guesses::wrong_guesses;
use super::one_run::{OneRunGuesses, epsilon_of_all_numbers};

use super::roc::{area, area_lower, epsilon_of_area, rate_at};
use super::scores::{AuditScores, Errors};
use crate::AccountantError;
use crate::domain::check_probability;
use crate::rounded::Rounded;

/// How a lower bound on ε was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Estimator {
    /// Error rates of a threshold.
    ClopperPearson,
    /// Correct guesses about the canaries of one run.
    OneRun,
    /// Correct guesses about the canaries of one run, for a Gaussian trade-off function.
    OneRunFdp,
    /// Error rates of all thresholds, for a Gaussian trade-off function.
    Gdp,
    /// Area under the ROC curve.
    Auc,
    /// True positive rate at a small false positive rate.
    TprAtFpr,
}

/// A lower bound on ε with its confidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AuditEstimate {
    /// The estimator.
    pub estimator: Estimator,
    /// The lower bound. It exceeds the ε of the training with a probability of at most
    /// `significance`, if its [assumptions](Self::assumes) hold.
    pub epsilon_lower: f64,
    /// δ of the bound.
    pub delta: f64,
    /// Probability that the bound is wrong. The estimates of one audit are not independent: divide
    /// it by the number of estimates that you choose from.
    pub significance: f64,
    /// How the threshold or the number of guesses was chosen, and how the choice is paid for.
    pub threshold_rule: String,
    /// The assumptions of the bound beyond the definition of (ε, δ).
    pub assumes: &'static str,
    /// The measured values, by name: rates, counts, areas.
    #[serde(flatten)]
    pub measured: BTreeMap<&'static str, f64>,
}

impl fmt::Display for AuditEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "epsilon >= {} at delta = {:e} (confidence {} %)",
            Rounded::down(self.epsilon_lower),
            self.delta,
            Rounded::down(100.0 * (1.0 - self.significance))
        )
    }
}

const INDEPENDENT: &str = "the scores of different canaries are independent";
const GAUSSIAN: &str =
    "the scores of different canaries are independent, and the trade-off function is Gaussian";
const COINS: &str = "each canary was included by a fair coin of its own";
const GAUSSIAN_COINS: &str = "each canary was included by a fair coin of its own, and the \
                              trade-off function is Gaussian";

/// Maximum number of canaries for which the number of guesses is chosen afterwards.
const CHOOSABLE: usize = 10_000;

/// Maximum share of the significance that δ may use for that choice.
const SHARE_OF_DELTA: f64 = 0.5;

/// Lower bounds on ε from the scores of canaries.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::audit::{Audit, AuditScores};
///
/// let included: Vec<f64> = (0..200).map(|i| 3.0 + f64::from(i % 10)).collect();
/// let excluded: Vec<f64> = (0..200).map(|i| f64::from(i % 10)).collect();
/// let scores = AuditScores::new(included, excluded)?;
/// let audit = Audit::new(&scores, 1e-5)?.with_significance(0.01)?;
/// println!("{}", audit.clopper_pearson());
/// assert!(audit.clopper_pearson().epsilon_lower > 0.5);
/// # Ok::<(), burn_dp_accountant::AccountantError>(())
/// ```
pub struct Audit<'a> {
    scores: &'a AuditScores,
    delta: f64,
    significance: f64,
    rule: ThresholdRule,
    false_positive_rates: Vec<f64>,
    thresholds: Vec<Errors>,
    misses: Band,
    false_alarms: Band,
    wrong: Vec<u64>,
}

impl fmt::Debug for Audit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit")
            .field("delta", &self.delta)
            .field("significance", &self.significance)
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

impl<'a> Audit<'a> {
    /// Creates an audit of an ε at `delta`, with a significance of 0.05.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not in `[0, 1)`.
    pub fn new(scores: &'a AuditScores, delta: f64) -> Result<Self, AccountantError> {
        check_delta(delta)?;
        let significance = 0.05;
        let [misses, false_alarms] = bands(scores, significance);
        Ok(Self {
            scores,
            delta,
            significance,
            rule: ThresholdRule::All,
            false_positive_rates: vec![0.01],
            thresholds: scores.thresholds(),
            misses,
            false_alarms,
            wrong: wrong_guesses(scores),
        })
    }

    /// Sets the probability that a bound may be wrong.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if it is not in (0, 1/2).
    pub fn with_significance(mut self, significance: f64) -> Result<Self, AccountantError> {
        check_significance(significance)?;
        if significance != self.significance {
            self.significance = significance;
            [self.misses, self.false_alarms] = bands(self.scores, significance);
        }
        Ok(self)
    }

    /// Sets how [`clopper_pearson`](Self::clopper_pearson) chooses the threshold. Default:
    /// [`ThresholdRule::All`].
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a fixed threshold is NaN.
    pub fn with_threshold_rule(mut self, rule: ThresholdRule) -> Result<Self, AccountantError> {
        if matches!(rule, ThresholdRule::Fixed { threshold } if threshold.is_nan()) {
            return Err(AccountantError::invalid("threshold", "must be a number, got NaN"));
        }
        self.rule = rule;
        Ok(self)
    }

    /// Sets the false positive rates of [`tpr_at_fpr`](Self::tpr_at_fpr). Default: 0.01.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a rate is not in `[0, 1]`.
    pub fn with_false_positive_rates(mut self, rates: Vec<f64>) -> Result<Self, AccountantError> {
        rates.iter().try_for_each(|&rate| check_probability("false_positive_rate", rate))?;
        self.false_positive_rates = rates;
        Ok(self)
    }

    /// Returns all estimates, each at the whole significance.
    pub fn estimates(&self) -> Vec<AuditEstimate> {
        let mut estimates = vec![
            self.clopper_pearson(),
            self.one_run(),
            self.one_run_fdp(),
            self.gdp(),
            self.auc(),
        ];
        estimates.extend(self.false_positive_rates.iter().map(|&rate| self.tpr_at_fpr(rate)));
        estimates
    }

    /// Returns the bound from the error rates of a threshold: `(1 - β - δ) / α` and
    /// `(1 - α - δ) / β` are at most `e^ε`.
    ///
    /// # References
    ///
    /// - M. Jagielski, J. Ullman, A. Oprea, "Auditing Differentially Private Machine Learning: How
    ///   Private is Private SGD?", 2020.
    /// - M. Nasr et al., "Tight Auditing of Differentially Private Machine Learning", 2023.
    pub fn clopper_pearson(&self) -> AuditEstimate {
        let (delta, significance) = (self.delta, self.significance);
        let found = match self.rule {
            ThresholdRule::All => {
                of_all_thresholds(&self.thresholds, &self.misses, &self.false_alarms, delta)
            }
            ThresholdRule::Split { seed } => of_split(self.scores, seed, delta, significance),
            ThresholdRule::Fixed { threshold } => {
                of_fixed_threshold(self.scores, threshold, delta, significance)
            }
        };
        let AtThreshold { epsilon_lower, threshold, miss_rate, false_alarm_rate } = found;
        let measured = [("fnr_upper", miss_rate), ("fpr_upper", false_alarm_rate)];
        self.estimate(Estimator::ClopperPearson, epsilon_lower, self.rule.to_string(), INDEPENDENT)
            .with(measured)
            .with_threshold(threshold)
    }

    /// Returns the bound from guesses about the canaries, in order of confidence: highest score in,
    /// lowest score out, and so on.
    ///
    /// The number of guesses is chosen afterwards, and the exact distribution of the best choice
    /// pays for it, if m canaries and δ leave half of the significance (`m δ <= significance / 2`)
    /// and m is at most 10,000. Otherwise all canaries are guessed. Which of the two applies does
    /// not depend on the scores.
    ///
    /// # References
    ///
    /// T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", 2023.
    pub fn one_run(&self) -> AuditEstimate {
        let (canaries, delta, significance) = (self.wrong.len(), self.delta, self.significance);
        let all = OneRunGuesses::of_most_confident(&self.wrong, canaries);
        let measured =
            [("canaries", all.canaries() as f64), ("correct_of_all", all.correct() as f64)];
        let chosen =
            canaries <= CHOOSABLE && canaries as f64 * delta <= SHARE_OF_DELTA * significance;
        let (epsilon_lower, rule) = if chosen {
            let rule = "all numbers of guesses: exact distribution of the smallest p-value";
            (epsilon_of_all_numbers(&self.wrong, delta, significance), rule)
        } else {
            // The arguments were checked.
            let bound = all.epsilon_lower(delta, significance).unwrap_or(0.0);
            (bound, "all canaries are guessed: the upper half in, the lower half out")
        };
        self.estimate(Estimator::OneRun, epsilon_lower, rule.into(), COINS).with(measured)
    }

    /// Returns the bound from guesses about the canaries under a Gaussian trade-off function. The
    /// number of guesses is the best of m, m/2, m/4, ..., each tested at its share of the
    /// significance.
    ///
    /// # References
    ///
    /// S. Mahloujifar, L. Melis, K. Chaudhuri, "Auditing f-Differential Privacy in One Run", 2024.
    pub fn one_run_fdp(&self) -> AuditEstimate {
        let (guesses, mu) = OneRunGuesses::best_of_halves(&self.wrong, self.significance);
        let fit = GaussianLowerBound::new(mu, self.delta);
        let rule = "the best of m, m/2, m/4, ... guesses, each at its share of the significance";
        self.estimate(Estimator::OneRunFdp, fit.epsilon_lower, rule.into(), GAUSSIAN_COINS).with([
            ("mu_lower", fit.mu_lower),
            ("canaries", guesses.canaries() as f64),
            ("guesses", guesses.guesses() as f64),
            ("correct", guesses.correct() as f64),
        ])
    }

    /// Returns the bound from the error rates of all thresholds under a Gaussian trade-off
    /// function: `-Φ⁻¹(α) - Φ⁻¹(β)` is at most μ.
    ///
    /// # References
    ///
    /// M. Nasr et al., "Tight Auditing of Differentially Private Machine Learning", 2023.
    pub fn gdp(&self) -> AuditEstimate {
        let (mu, threshold) =
            mu_of_all_thresholds(&self.thresholds, &self.misses, &self.false_alarms);
        let fit = GaussianLowerBound::new(mu, self.delta);
        let rule = ThresholdRule::All.to_string();
        self.estimate(Estimator::Gdp, fit.epsilon_lower, rule, GAUSSIAN)
            .with([("mu_lower", fit.mu_lower)])
            .with_threshold(threshold)
    }

    /// Returns the area under the ROC curve, its lower limit, and the ε below which no attack has
    /// such an area.
    pub fn auc(&self) -> AuditEstimate {
        let lower = area_lower(&self.thresholds, &self.misses, &self.false_alarms);
        let rule = ThresholdRule::All.to_string();
        self.estimate(Estimator::Auc, epsilon_of_area(lower, self.delta), rule, INDEPENDENT)
            .with([("auc", area(self.scores)), ("auc_lower", lower)])
    }

    /// Returns the true positive rate at a false positive rate, its lower limit, and the bound at
    /// only this threshold.
    ///
    /// # References
    ///
    /// N. Carlini et al., "Membership Inference Attacks From First Principles", 2022.
    pub fn tpr_at_fpr(&self, false_positive_rate: f64) -> AuditEstimate {
        let found = rate_at(self.scores, false_positive_rate, self.delta, self.significance);
        let rule = "fixed in advance: the rank among the excluded canaries";
        self.estimate(Estimator::TprAtFpr, found.epsilon_lower, rule.into(), INDEPENDENT).with([
            ("fpr", false_positive_rate),
            ("tpr", found.rate),
            ("tpr_lower", found.rate_lower),
        ])
    }

    fn estimate(
        &self,
        estimator: Estimator,
        epsilon_lower: f64,
        threshold_rule: String,
        assumes: &'static str,
    ) -> AuditEstimate {
        AuditEstimate {
            estimator,
            epsilon_lower,
            delta: self.delta,
            significance: self.significance,
            threshold_rule,
            assumes,
            measured: BTreeMap::new(),
        }
    }
}

impl AuditEstimate {
    fn with<const N: usize>(mut self, measured: [(&'static str, f64); N]) -> Self {
        self.measured.extend(measured);
        self
    }

    fn with_threshold(mut self, threshold: Option<f64>) -> Self {
        // JSON has no infinity.
        let threshold = threshold.filter(|threshold| threshold.is_finite());
        self.measured.extend(threshold.map(|threshold| ("threshold", threshold)));
        self
    }
}

/// Returns the limits of the misses and of the false alarms, each at half of the significance.
fn bands(scores: &AuditScores, significance: f64) -> [Band; 2] {
    [scores.included(), scores.excluded()].map(|list| Band::new(list.len(), 0.5 * significance))
}
