//! Repeated measurements over a logarithmic axis.

use std::path::Path;

use plotters::prelude::*;

use super::axis::Axis;
use super::error::PlotError;
use super::marked::Marked;
use super::{COLORS, draw};

/// Mean and range of repeated measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
}

impl Spread {
    /// Returns the mean and the range of values; `None` for no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        Some(Self { mean, low, high })
    }
}

/// Repeated measurements at one place of the horizontal axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Place, greater than 0.
    pub x: f64,
    /// What was measured.
    pub spread: Spread,
}

/// Draws means with bars from the smallest to the largest value, over a logarithmic axis, and a
/// horizontal line for a reference. Without measurements there is no figure.
///
/// # Arguments
///
/// - `name`: name of the measurements in the legend
/// - `measured`: the measurements, from left to right
/// - `reference`: name and values of the reference
///
/// # Errors
///
/// Returns [`PlotError`] if the file cannot be written.
pub fn intervals(
    path: &Path,
    [title, x, y]: [&str; 3],
    name: &str,
    measured: &[Interval],
    (reference_name, reference): (&str, Spread),
) -> Result<(), PlotError> {
    if measured.is_empty() {
        return Ok(());
    }
    let marks = || measured.iter().map(|interval| interval.x);
    let xs = Axis::logarithmic(marks());
    let spreads = || measured.iter().map(|interval| interval.spread).chain([reference]);
    let ys = Axis::of(spreads().flat_map(|spread| [spread.low, spread.high]), false);
    draw(path, |path| {
        let area = SVGBackend::new(path, (800, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let places: Vec<_> = marks().map(|mark| xs.at(mark)).collect();
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(Marked::new(xs.range(), places), ys.range())?;
        let x_label =
            |place: &f64| marks().find(|&mark| xs.at(mark) == *place).map(|mark| mark.to_string());
        chart
            .configure_mesh()
            .max_light_lines(1)
            .light_line_style(TRANSPARENT)
            .y_labels(ys.labels())
            .x_label_formatter(&|place| x_label(place).unwrap_or_default())
            .y_label_formatter(&|&place| ys.label(place))
            .x_desc(x)
            .y_desc(y)
            .draw()?;

        let (color, other) = (COLORS[0], COLORS[1]);
        let (left, right) = (xs.range().start, xs.range().end);
        let band = [(left, reference.low), (right, reference.high)];
        chart.draw_series([Rectangle::new(band, other.mix(0.15).filled())])?;
        let line = [(left, reference.mean), (right, reference.mean)];
        chart
            .draw_series(DashedLineSeries::new(line, 8, 5, other.stroke_width(2)))?
            .label(reference_name)
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 16, y)], other.stroke_width(2))
            });

        let point = |interval: &Interval, y: f64| (xs.at(interval.x), y);
        chart.draw_series(measured.iter().map(|interval| {
            let Spread { low, high, .. } = interval.spread;
            PathElement::new(vec![point(interval, low), point(interval, high)], color)
        }))?;
        let ends = measured.iter().flat_map(|interval| {
            [interval.spread.low, interval.spread.high].map(|end| point(interval, end))
        });
        chart.draw_series(
            ends.map(|end| EmptyElement::at(end) + PathElement::new(vec![(-5, 0), (5, 0)], color)),
        )?;
        let means = || measured.iter().map(|interval| point(interval, interval.spread.mean));
        chart.draw_series(means().map(|mean| Circle::new(mean, 4, color.filled())))?;
        chart.draw_series(LineSeries::new(means(), color.stroke_width(2)))?.label(name).legend(
            move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2)),
        );
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        area.present()?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_spread_is_the_mean_and_the_range() {
        let spread = Spread::of(&[3.0, 1.0, 8.0]);
        assert_eq!(spread, Some(Spread { mean: 4.0, low: 1.0, high: 8.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn intervals_are_drawn_over_the_measured_places() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("intervals.svg");
        let interval = |x, values: &[f64]| Interval { x, spread: Spread::of(values).unwrap() };
        let measured = [interval(0.7, &[80.0, 82.0]), interval(13.0, &[90.0])];
        let reference = ("ordinary training", Spread::of(&[97.0]).unwrap());
        let titles = ["title", "budget", "accuracy"];
        intervals(&path, titles, "private training", &measured, reference).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for part in ["title", "budget", "accuracy", "0.7", "13", "private", "ordinary training"] {
            assert!(text.contains(part), "{part}");
        }
        assert_eq!(text.matches("<circle").count(), measured.len());
        assert!(
            intervals(&folder.path().join("none/x.svg"), titles, "", &measured, reference).is_err()
        );
        intervals(&folder.path().join("empty.svg"), titles, "", &[], reference).unwrap();
        assert!(!folder.path().join("empty.svg").exists());
    }
}
