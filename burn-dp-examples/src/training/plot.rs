//! Figures as SVG.

use std::path::Path;

use plotters::prelude::*;

use super::TrainError;

/// A line of a figure.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws several lines over one another.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn lines(
    path: &Path,
    [title, x, y]: [&str; 3],
    series: &[Series],
) -> Result<(), TrainError> {
    let points = || series.iter().flat_map(|series| &series.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        let high = points().map(of).fold(f64::NEG_INFINITY, f64::max);
        let margin = (0.05 * (high - low)).max(1e-6);
        low - margin..high + margin
    };
    if points().next().is_none() {
        return Ok(());
    }
    draw(path, || {
        let area = SVGBackend::new(path, (800, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(range(|point| point.0), range(|point| point.1))?;
        chart.configure_mesh().x_desc(x).y_desc(y).draw()?;
        for (index, Series { name, points }) in series.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            chart.draw_series(line)?.label(name).legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2))
            });
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        area.present()?;
        Ok(())
    })
}

/// Draws one bar for each named value.
///
/// # Errors
///
/// When the file cannot be written.
pub(crate) fn bars(
    path: &Path,
    [title, x]: [&str; 2],
    values: &[(String, f64)],
) -> Result<(), TrainError> {
    draw(path, || {
        let height = 90 + 22 * values.len() as u32;
        let area = SVGBackend::new(path, (800, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let most = values.iter().map(|value| value.1).fold(1e-9, f64::max);
        let rows = values.len() as i32;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(260)
            .build_cartesian_2d(0.0..1.05 * most, (0..rows).into_segmented())?;
        let label = |segment: &SegmentValue<i32>| match segment {
            SegmentValue::CenterOf(row) => {
                values.get((rows - 1 - row) as usize).map_or(String::new(), |value| value.0.clone())
            }
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(values.len())
            .y_label_formatter(&label)
            .x_desc(x)
            .draw()?;
        chart.draw_series((0..rows).map(|row| {
            let value = values[(rows - 1 - row) as usize].1;
            let corners = [(0.0, SegmentValue::Exact(row)), (value, SegmentValue::Exact(row + 1))];
            let mut bar = Rectangle::new(corners, BLUE.mix(0.6).filled());
            bar.set_margin(3, 3, 0, 0);
            bar
        }))?;
        area.present()?;
        Ok(())
    })
}

type Drawing = Result<(), Box<dyn std::error::Error>>;

fn draw(path: &Path, draw: impl FnOnce() -> Drawing) -> Result<(), TrainError> {
    draw().map_err(|error| TrainError::Io {
        path: path.into(),
        source: std::io::Error::other(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_and_bars_are_written_with_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.svg");
        let series =
            |name: &str| Series { name: name.into(), points: vec![(0.0, 1.0), (5.0, 3.0)] };
        lines(&path, ["title", "rounds", "loss"], &[series("first"), series("second")]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("<svg") && text.contains("second") && text.contains("rounds"));

        let path = folder.path().join("bars.svg");
        bars(&path, ["title", "norm"], &[("a.weight".into(), 0.5), ("b".into(), 2.0)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("a.weight") && text.contains("norm"));
        assert!(bars(&folder.path().join("none/x.svg"), ["t", "x"], &[("a".into(), 1.0)]).is_err());
    }
}
