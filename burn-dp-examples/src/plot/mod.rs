//! Figures as SVG.

mod axis;
mod bars;
mod error;
mod intervals;
mod marked;

use std::path::Path;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use axis::Axis;
pub(crate) use bars::bars;
pub use bars::{Bar, BarPanel, ratio_bars};
pub use intervals::{Interval, Spread, intervals};
use marked::Marked;

use crate::incomplete::Incomplete;
pub use error::PlotError;

/// A line of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Smallest and largest value at each point, drawn as bars; empty without repetitions.
    pub ranges: Vec<[f64; 2]>,
}

impl Series {
    /// Creates a line of values without repetitions.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), points: points.into_iter().collect(), ranges: Vec::new() }
    }

    /// Adds the smallest and the largest value at each point.
    pub fn with_ranges(self, ranges: impl IntoIterator<Item = [f64; 2]>) -> Self {
        Self { ranges: ranges.into_iter().collect(), ..self }
    }
}

/// Maximum number of points of a line whose points are marked. A line of one point is only a mark.
const MARKED: usize = 30;

/// Colors that people with color blindness can distinguish (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Dashes and gaps of lines after the first seven, in pixels.
const DASHES: [(u32, u32); 2] = [(6, 4), (2, 2)];

/// Width of a figure, and of a legend next to it, in pixels.
const WIDTH: u32 = 800;
const LEGEND: u32 = 240;

/// Lines that share a vertical axis.
pub(crate) struct Panel<'a> {
    pub(crate) y: &'a str,
    pub(crate) series: &'a [Series],
}

impl Panel<'_> {
    /// Returns whether a legend would cover the lines.
    fn has_many_lines(&self) -> bool {
        self.series.len() > COLORS.len()
    }
}

/// Draws several lines into one figure. Values that span orders of magnitude, and places that grow
/// by factors, get a logarithmic axis.
///
/// # Errors
///
/// Returns [`PlotError`] if the file cannot be written.
pub fn lines(path: &Path, [title, x, y]: [&str; 3], series: &[Series]) -> Result<(), PlotError> {
    panels(path, [title, x], &[Panel { y, series }])
}

/// Draws panels below one another, with the same horizontal axis. A panel without points stays
/// empty.
///
/// # Errors
///
/// Returns [`PlotError`] if the file cannot be written.
pub(crate) fn panels(
    path: &Path,
    [title, x]: [&str; 2],
    panels: &[Panel<'_>],
) -> Result<(), PlotError> {
    let points = || panels.iter().flat_map(|panel| panel.series).flat_map(|series| &series.points);
    if points().next().is_none() {
        return Ok(());
    }
    let places = || points().map(|point| point.0);
    let xs = Axis::of_places(places());
    draw(path, |path| {
        let height = if panels.len() == 1 { 520 } else { 320 * panels.len() as u32 };
        let is_wide = panels.iter().any(Panel::has_many_lines);
        let width = WIDTH + if is_wide { LEGEND } else { 0 };
        let area = SVGBackend::new(path, (width, height)).into_drawing_area();
        area.fill(&WHITE)?;
        for (index, area) in area.split_evenly((panels.len(), 1)).iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            draw_panel(area, [title, x], (&xs, xs.coordinate(places())), &panels[index])?;
        }
        area.present()?;
        Ok(())
    })
}

fn draw_panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    [title, x]: [&str; 2],
    (xs, coordinate): (&Axis, Marked),
    panel @ Panel { y, series }: &Panel<'_>,
) -> Drawing {
    let points = || series.iter().flat_map(|series| &series.points);
    if points().next().is_none() {
        return Ok(());
    }
    let ends = series.iter().flat_map(|series| &series.ranges).flatten().copied();
    let ys = Axis::of(points().map(|point| point.1).chain(ends), true);
    let (area, legend) = if panel.has_many_lines() {
        let (area, legend) = area.split_horizontally(WIDTH);
        (area, Some(legend))
    } else {
        (area.clone(), None)
    };
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(coordinate, ys.range())?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .light_line_style(TRANSPARENT)
        .y_labels(ys.labels())
        .x_label_formatter(&|&at| xs.mark(at))
        .y_label_formatter(&|&at| ys.label(at))
        .x_desc(x)
        .y_desc(*y)
        .draw()?;
    for (index, Series { name, points, ranges }) in series.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let placed: Vec<_> = points.iter().map(|&(x, y)| (xs.at(x), ys.at(y))).collect();
        let spread = placed.iter().zip(ranges).filter(|(_, [low, high])| low < high);
        let spreads: Vec<_> =
            spread.map(|(&(x, _), range)| range.map(|end| (x, ys.at(end)))).collect();
        chart.draw_series(spreads.iter().map(|&ends| PathElement::new(ends, color)))?;
        let cap = |&end| EmptyElement::at(end) + PathElement::new(vec![(-4, 0), (4, 0)], color);
        chart.draw_series(spreads.iter().flatten().map(cap))?;
        if placed.len() <= MARKED {
            let mark = |&point: &(f64, f64)| Circle::new(point, 3, color.filled());
            chart.draw_series(placed.iter().map(mark))?;
        }
        let style = color.stroke_width(2);
        let drawn = match dashes(index) {
            None => chart.draw_series(LineSeries::new(placed, style))?,
            Some((dash, gap)) => {
                chart.draw_series(DashedLineSeries::new(placed, dash, gap, style))?
            }
        };
        if legend.is_none() {
            drawn
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], style));
        }
    }
    if let Some(legend) = legend {
        return draw_legend(&legend, series);
    }
    chart
        .configure_series_labels()
        .position(emptiest_corner(xs, &ys, series))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}

/// Returns dash and gap of a line; `None` for the first line of each color, which is solid.
fn dashes(index: usize) -> Option<(u32, u32)> {
    let before = (index / COLORS.len()).checked_sub(1)?;
    Some(DASHES[before % DASHES.len()])
}

/// Draws the names of the lines below one another.
fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>, series: &[Series]) -> Drawing {
    for (index, Series { name, .. }) in series.iter().enumerate() {
        let (style, y) = (COLORS[index % COLORS.len()].stroke_width(2), 48 + 16 * index as i32);
        let line = [(0, y), (24, y)];
        match dashes(index) {
            None => area.draw(&PathElement::new(line, style))?,
            Some((dash, gap)) => area.draw(&DashedPathElement::new(line, dash, gap, style))?,
        }
        area.draw(&Text::new(name.as_str(), (32, y - 6), ("sans-serif", 12)))?;
    }
    Ok(())
}

/// Returns the corner with the fewest points.
fn emptiest_corner(xs: &Axis, ys: &Axis, series: &[Series]) -> SeriesLabelPosition {
    use SeriesLabelPosition::{LowerLeft, LowerRight, UpperLeft, UpperRight};
    /// Number of points that represent the line between two points.
    const BETWEEN: usize = 16;
    let height = (0.1 + 0.04 * series.len() as f64).min(0.5);
    let inside = |right: bool, upper: bool| {
        let taken = |x: f64, y: f64| {
            (if right { x > 0.65 } else { x < 0.35 })
                && (if upper { y > 1.0 - height } else { y < height })
        };
        let place = |&(x, y): &(f64, f64)| (xs.part(x), ys.part(y));
        let of_line = |points: &[(f64, f64)]| {
            let ends = points.iter().zip(points.iter().skip(1).chain(points.last()));
            let between = ends.flat_map(|(a, b)| {
                let (a, b) = (place(a), place(b));
                (0..BETWEEN).map(move |step| {
                    let part = step as f64 / BETWEEN as f64;
                    (a.0 + part * (b.0 - a.0), a.1 + part * (b.1 - a.1))
                })
            });
            between.filter(|&(x, y)| taken(x, y)).count()
        };
        series.iter().map(|series| of_line(&series.points)).sum::<usize>()
    };
    [
        (inside(true, true), UpperRight),
        (inside(true, false), LowerRight),
        (inside(false, true), UpperLeft),
        (inside(false, false), LowerLeft),
    ]
    .into_iter()
    .min_by_key(|(points, _)| *points)
    .map_or(UpperRight, |(_, corner)| corner)
}

type Drawing = Result<(), Box<dyn std::error::Error>>;

/// Draws into a file that is complete before it replaces an earlier one.
fn draw(path: &Path, draw: impl FnOnce(&Path) -> Drawing) -> Result<(), PlotError> {
    let drawn = Incomplete::filled(path, draw).and_then(|file| Ok(file.publish()?));
    drawn.map_err(|error| PlotError {
        path: path.into(),
        source: std::io::Error::other(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_legend_is_put_where_the_lines_are_not() {
        let corner = |points: &[(f64, f64)]| {
            let of = |value: fn(&(f64, f64)) -> f64| points.iter().map(value);
            let (xs, ys) = (Axis::of(of(|p| p.0), false), Axis::of(of(|p| p.1), true));
            emptiest_corner(&xs, &ys, &[Series::new("one", points.to_vec())])
        };
        let falling = [(0.0, 5.0), (10.0, 1.0)];
        assert!(matches!(corner(&falling), SeriesLabelPosition::UpperRight));
        let rising = [(0.0, 1.0), (10.0, 5.0)];
        assert!(matches!(corner(&rising), SeriesLabelPosition::LowerRight));
    }

    #[test]
    fn a_line_of_one_point_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.svg");
        let series = Series::new("one", [(1.0, 0.25)]);
        lines(&path, ["title", "epoch", "accuracy"], &[series]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("<circle"), "{text}");
    }

    #[test]
    fn a_bar_is_drawn_where_values_differ() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bars.svg");
        let series = Series::new("seeds", [(1.0, 1.0), (2.0, 9.0)]);
        let number = |series: Series| {
            lines(&path, ["title", "x", "y"], &[series]).unwrap();
            std::fs::read_to_string(&path).unwrap().matches("<polyline").count()
        };
        let [without, equal, one] = [vec![], vec![[1.0, 1.0], [9.0, 9.0]], vec![[1.0, 9.0]]]
            .map(|ranges| number(series.clone().with_ranges(ranges)));
        // The bar and its two ends.
        assert_eq!((equal, one), (without, without + 3));
    }

    #[test]
    fn lines_of_the_same_color_are_dashed_differently() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.svg");
        let drawn = |count: usize| {
            let line = |index: usize| {
                Series::new(format!("line {index}"), [(0.0, index as f64), (9.0, index as f64)])
            };
            lines(&path, ["title", "x", "y"], &(0..count).map(line).collect::<Vec<_>>()).unwrap();
            std::fs::read_to_string(&path).unwrap().matches("<polyline").count()
        };
        let [seven, eight] = [COLORS.len(), COLORS.len() + 1].map(drawn);
        assert!(eight > seven + 20, "{eight} {seven}");
        let [all, more] = [2 * COLORS.len(), 2 * COLORS.len() + 1].map(drawn);
        assert!(more - all > eight - seven, "{more} {all}");
    }

    #[test]
    fn panels_have_an_axis_each_below_one_title() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("panels.svg");
        let one = |name: &str| [Series::new(name, [(0.0, 1.0), (9.0, 2.0)])];
        let (upper, lower) = (one("accuracy"), one("epsilon"));
        let both =
            [Panel { y: "share", series: &upper }, Panel { y: "epsilon spent", series: &lower }];
        panels(&path, ["title", "step"], &both).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for part in ["title", "share", "epsilon spent", "accuracy"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn lines_are_written_with_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.svg");
        let series = |name: &str| Series::new(name, [(0.0, 1.0), (5.0, 3.0)]);
        lines(&path, ["title", "rounds", "loss"], &[series("first"), series("second")]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("<svg") && text.contains("second") && text.contains("rounds"));
    }
}
