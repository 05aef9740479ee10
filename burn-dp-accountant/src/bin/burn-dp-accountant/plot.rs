//! The trade-off curve as an SVG.

use std::path::Path;

use burn_dp_accountant::{AccountantError, TradeoffCurve};
use plotters::prelude::*;

/// Draws the curve and the line of perfect privacy.
///
/// # Errors
///
/// Returns [`AccountantError::Io`] with the path if the file cannot be written.
pub(crate) fn tradeoff(curve: &TradeoffCurve, path: &Path) -> Result<(), AccountantError> {
    let failed = |error: &dyn std::fmt::Display| AccountantError::Io {
        path: path.to_path_buf(),
        source: std::io::Error::other(error.to_string()),
    };
    let area = SVGBackend::new(path, (640, 640)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..1.0, 0.0..1.0)
        .map_err(|e| failed(&e))?;
    chart
        .configure_mesh()
        .x_desc("type I error")
        .y_desc("type II error")
        .draw()
        .map_err(|e| failed(&e))?;
    let points = (0..=400).map(|k| {
        let alpha = f64::from(k) / 400.0;
        (alpha, curve.type_two_error(alpha))
    });
    let perfect_privacy = LineSeries::new([(0.0, 1.0), (1.0, 0.0)], BLACK.mix(0.3));
    chart.draw_series(perfect_privacy).map_err(|e| failed(&e))?;
    chart.draw_series(LineSeries::new(points, BLUE.stroke_width(2))).map_err(|e| failed(&e))?;
    area.present().map_err(|e| failed(&e))
}
