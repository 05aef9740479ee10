//! The trade-off curve, the ROC curve and the errors of a strategy as SVGs.

use std::ops::Range;
use std::path::Path;

use burn_dp_accountant::audit::{AuditEstimate, AuditScores, Estimator};
use burn_dp_accountant::{AccountantError, TradeoffCurve};
use plotters::prelude::*;

/// Draws the trade-off curve and the line of perfect privacy.
///
/// # Errors
///
/// Returns [`AccountantError::Io`] with the path if the file cannot be written.
pub(crate) fn tradeoff(curve: &TradeoffCurve, path: &Path) -> Result<(), AccountantError> {
    let points = (0..=400).map(|k| {
        let alpha = f64::from(k) / 400.0;
        (alpha, curve.type_two_error(alpha))
    });
    let perfect_privacy = [(0.0, 1.0), (1.0, 0.0)];
    let labels = ["", "type I error", "type II error"];
    unit_square(labels, perfect_privacy, &[(points.collect(), BLUE)], path)
}

/// Draws the ROC curve of the scores, the line of perfect privacy, and the largest curve that the
/// lower bound of the error rates allows.
///
/// # Errors
///
/// Returns [`AccountantError::Io`] with the path if the file cannot be written.
pub(crate) fn roc(
    scores: &AuditScores,
    estimates: &[AuditEstimate],
    path: &Path,
) -> Result<(), AccountantError> {
    let mut curves = vec![(steps(&scores.roc()), BLUE)];
    let bound = estimates.iter().find(|found| found.estimator == Estimator::ClopperPearson);
    let title = bound.map_or(String::new(), |found| {
        let (epsilon, delta) = (found.epsilon_lower, found.delta);
        // The curve of (ε, δ): 1 - max(1 - δ - e^ε α, e^-ε (1 - δ - α), 0).
        let largest = (0..=400).map(|k| {
            let alpha = f64::from(k) / 400.0;
            let left =
                (1.0 - delta - epsilon.exp() * alpha).max((-epsilon).exp() * (1.0 - delta - alpha));
            (alpha, 1.0 - left.max(0.0))
        });
        curves.push((largest.collect(), RED));
        let rule = &found.threshold_rule;
        format!("red: the largest ROC curve that the lower bound allows\n{found}\n{rule}")
    });
    let labels = [title.as_str(), "false positive rate", "true positive rate"];
    unit_square(labels, [(0.0, 0.0), (1.0, 1.0)], &curves, path)
}

/// Draws the root of the loss of each step, for independent noise in gray.
///
/// # Errors
///
/// Returns [`AccountantError::Io`] with the path if the file cannot be written.
pub(crate) fn errors(
    title: &str,
    losses: &[f64],
    independent: &[f64],
    path: &Path,
) -> Result<(), AccountantError> {
    // A picture has fewer pixels than a long run has steps.
    let every = losses.len().div_ceil(2_000);
    let line = |values: &[f64]| -> Vec<(f64, f64)> {
        let points = values.iter().enumerate().step_by(every);
        points.map(|(step, loss)| (step as f64 + 1.0, loss.sqrt())).collect()
    };
    let (line, gray) = (line(losses), line(independent));
    let highest = line.iter().chain(&gray).map(|(_, y)| *y).fold(0.0, f64::max);
    let ranges = [1.0..(losses.len() as f64).max(2.0), 0.0..1.05 * highest];
    let labels = [title, "step", "error at equal privacy (gray: independent noise)"];
    chart(labels, ranges, gray, &[(line, BLUE)], path)
}

/// Returns the corners of a curve of steps.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.windows(2).flat_map(|pair| [pair[0], (pair[0].0, pair[1].1), pair[1]]).collect()
}

/// Draws curves over a gray line, between 0 and 1.
fn unit_square(
    labels: [&str; 3],
    line: [(f64, f64); 2],
    curves: &[(Vec<(f64, f64)>, RGBColor)],
    path: &Path,
) -> Result<(), AccountantError> {
    chart(labels, [0.0..1.0, 0.0..1.0], line.to_vec(), curves, path)
}

/// Draws curves over a gray line. The labels are title, x and y; the title may have several lines.
fn chart(
    [title, x, y]: [&str; 3],
    [horizontal, vertical]: [Range<f64>; 2],
    line: Vec<(f64, f64)>,
    curves: &[(Vec<(f64, f64)>, RGBColor)],
    path: &Path,
) -> Result<(), AccountantError> {
    let failed = |error: &dyn std::fmt::Display| AccountantError::Io {
        path: path.to_path_buf(),
        source: std::io::Error::other(error.to_string()),
    };
    let mut area = SVGBackend::new(path, (640, 640)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    for line in title.lines() {
        area = area.titled(line, ("sans-serif", 14)).map_err(|e| failed(&e))?;
    }
    let mut builder = ChartBuilder::on(&area);
    builder.margin(16).x_label_area_size(40).y_label_area_size(50);
    let mut chart = builder.build_cartesian_2d(horizontal, vertical).map_err(|e| failed(&e))?;
    chart.configure_mesh().x_desc(x).y_desc(y).draw().map_err(|e| failed(&e))?;
    chart.draw_series(LineSeries::new(line, BLACK.mix(0.3))).map_err(|e| failed(&e))?;
    for (points, color) in curves {
        let series = LineSeries::new(points.iter().copied(), color.stroke_width(2));
        chart.draw_series(series).map_err(|e| failed(&e))?;
    }
    area.present().map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::audit::{Audit, ThresholdRule};

    use super::*;

    #[test]
    fn a_roc_curve_names_the_confidence_and_the_rule_of_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roc.svg");
        let scores = AuditScores::new(vec![1.0; 50], vec![0.0; 50]).unwrap();
        for (rule, words) in [
            (ThresholdRule::All, "all thresholds"),
            (ThresholdRule::Split { seed: 3 }, "seed 3"),
            (ThresholdRule::Fixed { threshold: 0.5 }, "fixed in advance: 0.5"),
        ] {
            let audit = Audit::new(&scores, 1e-5).unwrap().with_significance(0.1).unwrap();
            let estimates = audit.with_threshold_rule(rule).unwrap().estimates();
            roc(&scores, &estimates, &path).unwrap();
            let drawn = std::fs::read_to_string(&path).unwrap();
            for words in ["lower bound", "at delta = 1e-5 (confidence 90", words] {
                assert!(drawn.contains(words), "{words}: {drawn}");
            }
        }
    }
}
