//! Comparison of audit estimates with golden tables.
//!
//! A few rows are copied here. The whole table is checked if `BURN_DP_GOLDEN` names its folder or
//! the folder is next to the repository. It is of jax_privacy 2.0.0, recomputed independently.
//!
//! The golden bounds of all thresholds try the corners of the hull of the ROC curve, each at its
//! share of the significance. The scores determine the number of corners, so our estimators have
//! other rules. They are compared at each corner instead, as if it had been fixed in advance.
//!
//! Not compared: `raw_counts` and `max_accuracy`, for which there is no estimator, and `auroc`, the
//! area under the hull.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden_rows;

use burn_dp_accountant::GaussianDp;
use burn_dp_accountant::audit::{Audit, AuditEstimate, AuditScores, OneRunGuesses, ThresholdRule};
use golden_rows::number;
use serde_json::{Value, json};

/// Rows p034 (`ties_one_decimal`), p036 (`binary_scores`), p038 (`separated_100`) and p044
/// (`tiny_5_5`), then the table.
fn rows() -> Vec<Value> {
    let binary = |ones: usize| [vec![1.0; ones], vec![0.0; 40 - ones]].concat();
    let copied = json!([{
        "name": "ties_one_decimal",
        "in_scores": [
            -1.4, -1.0, -0.7, -0.6, -0.4, -0.3, -0.2, -0.2, -0.1, -0.0, 0.1, 0.1, 0.2, 0.2, 0.3,
            0.4, 0.4, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.8, 0.9, 0.9, 0.9, 1.0, 1.0, 1.1,
            1.1, 1.1, 1.2, 1.2, 1.3, 1.3, 1.4, 1.4, 1.5, 1.5, 1.5, 1.6, 1.6, 1.7, 1.8, 1.8, 1.9,
            1.9, 2.0, 2.1, 2.2, 2.2, 2.3, 2.4, 2.6, 2.7, 3.0, 3.4,
        ],
        "out_scores": [
            -2.4, -2.0, -1.7, -1.6, -1.4, -1.3, -1.2, -1.2, -1.1, -1.0, -0.9, -0.9, -0.8, -0.8,
            -0.7, -0.6, -0.6, -0.5, -0.5, -0.5, -0.4, -0.4, -0.3, -0.3, -0.2, -0.2, -0.1, -0.1,
            -0.1, -0.0, 0.0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4, 0.5, 0.5, 0.5, 0.6, 0.6,
            0.7, 0.8, 0.8, 0.9, 0.9, 1.0, 1.1, 1.2, 1.2, 1.3, 1.4, 1.6, 1.7, 2.0, 2.4,
        ],
        "frontier": {
            "thresholds": [
                -2.4, -1.4, -0.7, -0.4, -0.2, 0.1, 0.2, 0.4, 0.7, 0.9, 1.0, 1.3, 1.5, 1.8, 2.6,
                "inf",
            ],
            "fn": [0, 0, 2, 4, 6, 10, 12, 15, 22, 26, 29, 36, 40, 46, 56, 60],
            "tn": [0, 4, 14, 20, 24, 31, 34, 38, 45, 48, 50, 54, 56, 58, 60, 60],
        },
        "fpr": [0.01, 0.1, 0.5], "tpr_at_fpr": [0.11666666666666667, 0.4, 0.8428571428571429],
        "auroc_mann_whitney": 0.7601388888888889, "explicit_threshold": 0.5,
        "clopper_pearson": [
            {"significance": 0.05, "delta": 1e-5, "one_sided": true, "eps": 0.0,
             "eps_explicit": 0.22650171449354872},
            {"significance": 0.05, "delta": 1e-5, "one_sided": false, "eps": 0.0,
             "eps_explicit": 0.25182279624697057},
        ],
        "one_run": [{"significance": 0.05, "delta": 1e-5, "eps": 0.1716214047057554,
                     "eps_explicit": 0.2936408439916018}],
        "one_run_fdp": [{"significance": 0.05, "delta": 1e-5, "eps": 0.23096367606608964}],
        "from_gdp": [{"significance": 0.1, "delta": 0.1, "eps": 0.0}],
    }, {
        "name": "binary_scores",
        "in_scores": binary(30), "out_scores": binary(8),
        "frontier": {"thresholds": [0.0, 1.0, "inf"], "fn": [0, 10, 40], "tn": [0, 32, 40]},
        "fpr": [0.0, 0.5, 1.0], "tpr_at_fpr": [0.0, 0.84375, 1.0],
        "auroc_mann_whitney": 0.775, "explicit_threshold": 0.0,
        "clopper_pearson": [{"significance": 0.01, "delta": 0.01, "one_sided": false,
                             "eps": 0.14038678817028638, "eps_explicit": 0.0}],
        "one_run": [{"significance": 0.1, "delta": 1e-3, "eps": 0.47724378282636726,
                     "eps_explicit": 0.0}],
        "one_run_fdp": [{"significance": 0.1, "delta": 1e-3, "eps": 0.6748509756375467}],
        "from_gdp": [{"significance": 0.05, "delta": 0.01, "eps": 0.7082566531975122}],
    }, {
        "name": "separated_100",
        "in_scores": (1000..=1099).collect::<Vec<u32>>(),
        "out_scores": (0..=99).collect::<Vec<u32>>(),
        "frontier": {"thresholds": [0.0, 1000.0, "inf"], "fn": [0, 0, 100], "tn": [0, 100, 100]},
        "fpr": [0.0], "tpr_at_fpr": [1.0],
        "auroc_mann_whitney": 1.0, "explicit_threshold": 549.5,
        "clopper_pearson": [{"significance": 0.05, "delta": 0.0, "one_sided": false,
                             "eps": 3.0151305990165507, "eps_explicit": 3.2813463490987878}],
        "one_run": [
            {"significance": 0.05, "delta": 1e-3, "eps_explicit": 2.846500482970789,
             "eps": 1.5719581419864594},
            {"significance": 0.1, "delta": 1e-3, "eps_explicit": 3.328140622806702,
             "eps": 2.446530530338786},
        ],
        "one_run_fdp": [{"significance": 0.05, "delta": 1e-5, "eps": 5.924591194447461}],
        "from_gdp": [{"significance": 0.05, "delta": 1e-5, "eps": 19.29048897879593}],
    }, {
        "name": "tiny_5_5",
        "in_scores": [5.0, 4.0, 3.0, 2.0, 0.0],
        "out_scores": [1.0, 2.0, -1.0, -2.0, 3.0],
        "frontier": {"thresholds": [-2.0, 0.0, 4.0, "inf"], "fn": [0, 0, 3, 5], "tn": [0, 2, 5, 5]},
        "fpr": [0.0], "tpr_at_fpr": [0.4],
        "auroc_mann_whitney": 0.8, "explicit_threshold": 2.0,
        "clopper_pearson": [], "one_run": [], "one_run_fdp": [], "from_gdp": [],
    }]);
    golden_rows::rows(copied, "auditing.json", "scores")
}

fn entries<'a>(row: &'a Value, key: &str) -> std::slice::Iter<'a, Value> {
    row[key].as_array().unwrap().iter()
}

fn list(row: &Value, key: &str) -> Vec<f64> {
    entries(row, key).map(|score| score.as_f64().unwrap()).collect()
}

fn scores(row: &Value) -> AuditScores {
    AuditScores::new(list(row, "in_scores"), list(row, "out_scores")).unwrap()
}

/// Returns the thresholds at the corners of the hull of the ROC curve.
fn corners(row: &Value) -> Vec<f64> {
    let thresholds = entries(&row["frontier"], "thresholds");
    thresholds.map(|threshold| threshold.as_f64().unwrap_or(f64::INFINITY)).collect()
}

/// Returns the audit and its estimate at each threshold, as if it had been fixed in advance, at its
/// share of the significance.
fn at_thresholds<'a>(
    audit: Audit<'a>,
    thresholds: &[f64],
    significance: f64,
) -> (Audit<'a>, Vec<AuditEstimate>) {
    let mut audit = audit.with_significance(significance / thresholds.len() as f64).unwrap();
    let mut estimates = Vec::new();
    for &threshold in thresholds {
        audit = audit.with_threshold_rule(ThresholdRule::Fixed { threshold }).unwrap();
        estimates.push(audit.clopper_pearson());
    }
    (audit, estimates)
}

/// Returns the guesses that the canaries from a threshold on are in. The others are not guessed.
fn guesses(scores: &AuditScores, threshold: f64) -> OneRunGuesses {
    let from = |list: &[f64]| list.iter().filter(|&&score| score >= threshold).count() as u64;
    let (correct, wrong) = (from(scores.included()), from(scores.excluded()));
    OneRunGuesses::new(scores.canaries() as u64, correct + wrong, correct).unwrap()
}

fn largest(bounds: impl Iterator<Item = f64>) -> f64 {
    bounds.fold(0.0, f64::max)
}

fn check(row: &Value, golden: &Value, key: &str, found: f64, tolerance: f64) {
    let error = (found - number(golden, key)).abs();
    assert!(error < tolerance, "{} {key} of {golden}: {found}", row["name"]);
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

/// The hull allows a random choice between two thresholds, which our estimator does not.
#[test]
fn true_positive_rate_is_at_most_the_golden_one_of_the_hull() {
    for row in rows() {
        let scores = scores(&row);
        let audit = Audit::new(&scores, 0.0).unwrap();
        for (rate, hull) in list(&row, "fpr").into_iter().zip(list(&row, "tpr_at_fpr")) {
            let found = audit.tpr_at_fpr(rate).measured["tpr"];
            assert!(found <= hull + 1e-12, "{} {rate}: {found} {hull}", row["name"]);
        }
    }
}

#[test]
fn bounds_from_error_rates_of_fixed_thresholds_are_golden() {
    for row in rows() {
        let scores = scores(&row);
        let explicit = vec![number(&row, "explicit_threshold")];
        let golden = || entries(&row, "clopper_pearson");
        let mut deltas: Vec<_> = golden().map(|golden| number(golden, "delta")).collect();
        deltas.sort_by(f64::total_cmp);
        deltas.dedup();
        if scores.canaries() > 1_000 {
            // Each δ takes a second or two; the largest one is enough.
            deltas.drain(..deltas.len() - 1);
        }
        for delta in deltas {
            let mut audit = Audit::new(&scores, delta).unwrap();
            for (key, thresholds) in [("eps_explicit", &explicit), ("eps", &corners(&row))] {
                for golden in golden().filter(|golden| number(golden, "delta") == delta) {
                    let level = number(golden, "significance");
                    let estimates;
                    (audit, estimates) = at_thresholds(audit, thresholds, level);
                    let bounds = estimates.iter().map(|estimate| {
                        // `one_sided` omits the second inequality; the limits are the same.
                        let first = first_inequality(estimate);
                        assert!(first <= estimate.epsilon_lower + 1e-9, "{golden}: {estimate}");
                        if golden["one_sided"] == true { first } else { estimate.epsilon_lower }
                    });
                    check(&row, golden, key, largest(bounds), 1e-9);
                }
            }
        }
    }
}

/// Returns the limits of the rates of misses and of false alarms.
fn limits(estimate: &AuditEstimate) -> [f64; 2] {
    ["fnr_upper", "fpr_upper"].map(|name| estimate.measured[name])
}

/// Returns the bound from `1 - β <= e^ε α + δ` alone.
fn first_inequality(estimate: &AuditEstimate) -> f64 {
    let [beta, alpha] = limits(estimate);
    ((1.0 - beta - estimate.delta) / alpha).ln().max(0.0)
}

#[test]
fn one_run_bounds_of_fixed_thresholds_are_golden() {
    for row in rows() {
        let scores = scores(&row);
        let explicit = vec![number(&row, "explicit_threshold")];
        for golden in entries(&row, "one_run") {
            let (delta, level) = (number(golden, "delta"), number(golden, "significance"));
            for (key, thresholds) in [("eps_explicit", &explicit), ("eps", &corners(&row))] {
                let share = level / thresholds.len() as f64;
                let bounds = thresholds.iter().map(|&threshold| {
                    guesses(&scores, threshold).epsilon_lower(delta, share).unwrap()
                });
                check(&row, golden, key, largest(bounds), 1e-5);
            }
        }
    }
}

#[test]
fn one_run_bounds_of_a_gaussian_trade_off_are_golden() {
    for row in rows() {
        let (scores, corners) = (scores(&row), corners(&row));
        for golden in entries(&row, "one_run_fdp") {
            let (delta, level) = (number(golden, "delta"), number(golden, "significance"));
            let share = level / corners.len() as f64;
            let bounds = corners.iter().map(|&threshold| {
                let bound = guesses(&scores, threshold).gaussian_bound(delta, share);
                bound.unwrap().epsilon_lower
            });
            check(&row, golden, "eps", largest(bounds), 1e-5);
        }
    }
}

/// Returns the largest μ whose trade-off function is above the limits of both error rates, as
/// [`Audit::gdp`] does for limits that hold for all thresholds.
fn mu_lower(estimate: &AuditEstimate) -> f64 {
    let [beta, alpha] = limits(estimate);
    let (mut low, mut high) = (0.0, 64.0);
    for _ in 0..60 {
        let mu = 0.5 * (low + high);
        let is_contradicted = GaussianDp::new(mu).unwrap().type_two_error(alpha) > beta;
        if is_contradicted { low = mu } else { high = mu }
    }
    low
}

#[test]
fn bounds_from_a_gaussian_trade_off_are_golden() {
    for row in rows() {
        let (scores, corners) = (scores(&row), corners(&row));
        let mut audit = Audit::new(&scores, 0.0).unwrap();
        for golden in entries(&row, "from_gdp") {
            let level = number(golden, "significance");
            let estimates;
            (audit, estimates) = at_thresholds(audit, &corners, level);
            let mu = largest(estimates.iter().map(mu_lower));
            let gdp = (mu > 0.0).then(|| GaussianDp::new(mu).unwrap());
            let found = gdp.map_or(0.0, |gdp| gdp.epsilon(number(golden, "delta")).unwrap());
            check(&row, golden, "eps", found, 1e-5);
        }
    }
}

/// Rows p012, p016 and p020 are copied.
#[test]
fn one_run_bounds_and_their_p_values_are_golden() {
    let copied = json!([{
        "m": 100, "guesses": 100, "correct": 50, "significance": 0.05, "delta": 0.0, "eps": 0.0,
        "p_values": [{"eps": 0.0, "p": 0.5397946186935894}, {"eps": 3.0, "p": 1.0}],
    }, {
        "m": 1000, "guesses": 100, "correct": 98, "significance": 0.05, "delta": 1e-5,
        "eps": 2.7109629220070275,
        "p_values": [
            {"eps": 0.0, "p": 0.0003413167714082022}, {"eps": 1.0, "p": 0.0005996515167432636},
            {"eps": 3.0, "p": 0.14508428746835614},
        ],
    }, {
        "m": 100, "guesses": 100, "correct": 100, "significance": 0.05, "delta": 1e-3,
        "eps": 3.2023037533133016,
        "p_values": [{"eps": 0.5, "p": 0.004194543744743889}],
    }]);
    for row in golden_rows::rows(copied, "auditing.json", "steinke_one_run") {
        let [canaries, guesses, correct] =
            ["m", "guesses", "correct"].map(|key| number(&row, key) as u64);
        let (delta, level) = (number(&row, "delta"), number(&row, "significance"));
        let guesses = OneRunGuesses::new(canaries, guesses, correct).unwrap();
        // Rounded down; the p-values are rounded up.
        let error = number(&row, "eps") - guesses.epsilon_lower(delta, level).unwrap();
        assert!((0.0..3e-6).contains(&error), "{row}: {error}");
        for golden in entries(&row, "p_values") {
            let (found, truth) =
                (guesses.p_value(number(golden, "eps"), delta), number(golden, "p"));
            let error = found / truth - 1.0;
            assert!((-1e-12..1e-8).contains(&error), "{row} {golden}: {error}");
        }
    }
}
