//! Comparison of audit estimates with golden tables.
//!
//! Two rows are copied here. The whole table is checked if `BURN_DP_GOLDEN` names its folder or the
//! folder is next to the repository. It is of jax_privacy 2.0.0, recomputed independently.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden_rows;

use burn_dp_accountant::audit::{Audit, AuditScores, OneRunGuesses};
use golden_rows::number;
use serde_json::{Value, json};

/// Rows p038 (`separated_100`) and p044 (`tiny_5_5`), then the table.
fn rows() -> Vec<Value> {
    let copied = json!([{
        "name": "separated_100",
        "in_scores": (1000..=1099).collect::<Vec<u32>>(),
        "out_scores": (0..=99).collect::<Vec<u32>>(),
        "frontier": {"fn": [0, 0, 100], "tn": [0, 100, 100]},
        "auroc_mann_whitney": 1.0, "explicit_threshold": 549.5,
        "one_run": [
            {"significance": 0.05, "delta": 1e-3, "eps_explicit": 2.846500482970789},
            {"significance": 0.1, "delta": 1e-3, "eps_explicit": 3.328140622806702},
        ],
    }, {
        "name": "tiny_5_5",
        "in_scores": [5.0, 4.0, 3.0, 2.0, 0.0],
        "out_scores": [1.0, 2.0, -1.0, -2.0, 3.0],
        "frontier": {"fn": [0, 0, 3, 5], "tn": [0, 2, 5, 5]},
        "auroc_mann_whitney": 0.8, "explicit_threshold": 2.0,
        "one_run": [],
    }]);
    golden_rows::rows(copied, "auditing.json", "scores")
}

fn list(row: &Value, key: &str) -> Vec<f64> {
    row[key].as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).collect()
}

fn scores(row: &Value) -> AuditScores {
    AuditScores::new(list(row, "in_scores"), list(row, "out_scores")).unwrap()
}

#[test]
fn area_under_the_curve_is_the_golden_one() {
    for row in rows() {
        let scores = scores(&row);
        let found = Audit::new(&scores, 0.0).unwrap().auc().measured["auc"];
        let truth = number(&row, "auroc_mann_whitney");
        assert!((found - truth).abs() < 1e-12, "{}: {found} {truth}", row["name"]);
    }
}

#[test]
fn true_positive_rate_is_golden_at_every_corner_of_the_hull() {
    for row in rows() {
        let scores = scores(&row);
        let audit = Audit::new(&scores, 0.0).unwrap();
        let (included, excluded) = (scores.included().len() as f64, scores.excluded().len() as f64);
        let frontier = &row["frontier"];
        let corners: Vec<_> = list(frontier, "fn").into_iter().zip(list(frontier, "tn")).collect();
        for &(_, rejections) in &corners {
            // Of the corners with this rate, the one with the fewest misses.
            let same = corners.iter().filter(|corner| corner.1 == rejections);
            let misses = same.map(|corner| corner.0).fold(included, f64::min);
            // Half a canary more, so that rounding loses none.
            let rate = ((excluded - rejections + 0.5) / excluded).min(1.0);
            let (found, truth) = (audit.tpr_at_fpr(rate).measured["tpr"], 1.0 - misses / included);
            assert!((found - truth).abs() < 1e-12, "{} {rate}: {found} {truth}", row["name"]);
        }
    }
}

/// The canaries from the explicit threshold on are guessed to be in; the others are not guessed.
#[test]
fn one_run_bounds_of_the_explicit_threshold_are_golden() {
    let mut compared = 0;
    for row in rows() {
        let scores = scores(&row);
        let threshold = number(&row, "explicit_threshold");
        let is_in = |score: &&f64| **score >= threshold;
        let from = |list: &[f64]| list.iter().filter(is_in).count() as u64;
        let (correct, wrong) = (from(scores.included()), from(scores.excluded()));
        let canaries = scores.canaries() as u64;
        for golden in row["one_run"].as_array().unwrap() {
            let (delta, level) = (number(golden, "delta"), number(golden, "significance"));
            let guesses = OneRunGuesses::new(canaries, correct + wrong, correct).unwrap();
            let found = guesses.epsilon_lower(delta, level).unwrap();
            let truth = number(golden, "eps_explicit");
            assert!((found - truth).abs() < 1e-5, "{} {golden}: {found}", row["name"]);
            compared += 1;
        }
    }
    assert!(compared > 0);
}
