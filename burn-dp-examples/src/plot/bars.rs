//! Horizontal bars.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::error::PlotError;
use super::marked::Marked;
use super::{COLORS, Drawing, draw};

/// A bar of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Name to the left of the bar.
    pub name: String,
    /// Length.
    pub value: f64,
    /// Text to the right of the bar.
    pub text: String,
    /// Bars of the same kind have the same color.
    pub kind: usize,
}

/// Bars below one title.
#[derive(Debug, Clone, PartialEq)]
pub struct BarPanel {
    /// Title.
    pub title: String,
    /// Bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// Ratio above which the axis of ratios is logarithmic.
const LOGARITHMIC: f64 = 10.0;

/// Height of a bar, and of the title and the axis of a panel, in pixels.
const ROW: usize = 22;
const AROUND: usize = 80;
const TITLE: usize = 36;

/// Position of values, the same in all panels.
struct Scale {
    /// Whether bars start at 1 and their length is the logarithm of the value.
    logarithmic: bool,
    range: std::ops::Range<f64>,
    marks: Vec<f64>,
    /// Pixels of the names.
    names: u32,
}

/// Draws ratios as bars, in panels below one another with the same horizontal axis. The axis is
/// logarithmic and starts at 1 if a ratio is greater than 10.
///
/// # Errors
///
/// Returns [`PlotError`] if the file cannot be written.
pub fn ratio_bars(
    path: &Path,
    [title, x]: [&str; 2],
    panels: &[BarPanel],
) -> Result<(), PlotError> {
    let bars = || panels.iter().flat_map(|panel| &panel.bars);
    let logarithmic = bars().any(|bar| bar.value > LOGARITHMIC);
    draw_panels(path, [title, x], panels, logarithmic && bars().all(|bar| bar.value > 0.0))
}

/// Draws one bar for each named value.
///
/// # Errors
///
/// Returns [`PlotError`] if the file cannot be written.
pub(crate) fn bars(
    path: &Path,
    [title, x]: [&str; 2],
    values: &[(String, f64)],
) -> Result<(), PlotError> {
    let bar = |(name, value): &(String, f64)| Bar {
        name: name.clone(),
        value: *value,
        text: String::new(),
        kind: 0,
    };
    let panel = BarPanel { title: String::new(), bars: values.iter().map(bar).collect() };
    draw_panels(path, [title, x], &[panel], false)
}

fn draw_panels(
    path: &Path,
    [title, x]: [&str; 2],
    panels: &[BarPanel],
    logarithmic: bool,
) -> Result<(), PlotError> {
    let scale = Scale::of(panels, logarithmic);
    draw(path, |path| {
        let heights = panels.iter().map(|panel| AROUND + ROW * panel.bars.len());
        let ends: Vec<_> = heights
            .scan(TITLE, |end, height| {
                *end += height;
                Some(*end)
            })
            .collect();
        let height = ends.last().map_or(TITLE, |&end| end) as u32;
        let area = SVGBackend::new(path, (800, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let (head, rest) = area.split_vertically(TITLE as i32);
        head.titled(title, ("sans-serif", 20))?;
        let breaks = ends.split_last().map_or(&[][..], |(_, others)| others);
        let breaks: Vec<_> = breaks.iter().map(|&end| (end - TITLE) as i32).collect();
        let areas = rest.split_by_breakpoints::<i32, i32, _, _>([], breaks);
        for (index, (area, panel)) in areas.iter().zip(panels).enumerate() {
            // The description of the axis is the same for all panels.
            let x = if index + 1 == panels.len() { x } else { "" };
            draw_panel(area, x, panel, &scale)?;
        }
        area.present()?;
        Ok(())
    })
}

impl Scale {
    fn of(panels: &[BarPanel], logarithmic: bool) -> Self {
        /// Pixels of a character and of the space around a name.
        const CHARACTER: usize = 7;
        const SPACE: usize = 20;
        let bars = || panels.iter().flat_map(|panel| &panel.bars);
        let at = |value: f64| if logarithmic { value.log10() } else { value };
        let low = bars().map(|bar| at(bar.value)).fold(0.0, f64::min);
        let high = bars().map(|bar| at(bar.value)).fold(low + 1e-9, f64::max);
        // The texts need room after the longest bar.
        let room = if bars().all(|bar| bar.text.is_empty()) { 1.05 } else { 1.9 };
        let range = low..low + room * (high - low);
        let marks = if logarithmic {
            let powers = low.floor() as i32..=high.ceil() as i32;
            let places = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit: f64| (digit, power)));
            let places = places.map(|(digit, power)| digit.log10() + f64::from(power));
            places.filter(|&place| place >= low - 1e-9 && place <= high + 1e-9).collect()
        } else {
            let marks = RangedCoordf64::from(range.clone()).key_points(10);
            marks.into_iter().filter(|&place| place <= room.min(1.1) * high).collect()
        };
        let longest = bars().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let names = (CHARACTER * longest + SPACE).clamp(80, 320) as u32;
        Self { logarithmic, range, marks, names }
    }

    fn at(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    fn label(&self, place: f64) -> String {
        if !self.logarithmic {
            return RangedCoordf64::format(&place);
        }
        let text = format!("{:.3}", 10f64.powf(place));
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    }
}

fn draw_panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    x: &str,
    BarPanel { title, bars }: &BarPanel,
    scale: &Scale,
) -> Drawing {
    let rows = bars.len() as i32;
    let of_row = |row: i32| &bars[(rows - 1 - row) as usize];
    let xs = Marked::new(scale.range.clone(), scale.marks.clone());
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(scale.names)
        .build_cartesian_2d(xs, (0..rows).into_segmented())?;
    let name = |segment: &SegmentValue<i32>| match segment {
        SegmentValue::CenterOf(row) if (0..rows).contains(row) => of_row(*row).name.clone(),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .max_light_lines(1)
        .light_line_style(TRANSPARENT)
        .y_labels(bars.len())
        .x_label_formatter(&|&place| scale.label(place))
        .y_label_formatter(&name)
        .x_desc(x)
        // The default size depends on the height of the panel.
        .label_style(("sans-serif", 12))
        .axis_desc_style(("sans-serif", 12))
        .draw()?;
    chart.draw_series((0..rows).map(|row| {
        let Bar { value, kind, .. } = of_row(row);
        let corners =
            [(0.0, SegmentValue::Exact(row)), (scale.at(*value), SegmentValue::Exact(row + 1))];
        let mut bar = Rectangle::new(corners, COLORS[kind % COLORS.len()].mix(0.6).filled());
        bar.set_margin(3, 3, 0, 0);
        bar
    }))?;
    chart.draw_series((0..rows).map(|row| {
        let Bar { value, text, .. } = of_row(row);
        let style =
            ("sans-serif", 12).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        // Bars of ratios below 1 end to the left of their start.
        let end = (scale.at(*value).max(0.0), SegmentValue::CenterOf(row));
        EmptyElement::at(end) + Text::new(text.clone(), (6, 0), style)
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn bar(name: &str, value: f64, text: &str) -> Bar {
        Bar { name: name.into(), value, text: text.into(), kind: 0 }
    }

    #[test]
    fn bars_are_written_with_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bars.svg");
        bars(&path, ["title", "norm"], &[("a.weight".into(), 0.5), ("b".into(), 2.0)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("a.weight") && text.contains("norm") && text.contains("title"));
        assert!(bars(&folder.path().join("none/x.svg"), ["t", "x"], &[("a".into(), 1.0)]).is_err());
    }

    #[test]
    fn panels_have_their_titles_and_bars_their_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ratios.svg");
        let panel = |title: &str, bars| BarPanel { title: title.into(), bars };
        let panels = [
            panel("mlp", vec![bar("ours", 1.2, "1.2 of it"), bar("theirs", 40.0, "forty")]),
            panel("cnn", vec![bar("other", 0.9, "less")]),
        ];
        ratio_bars(&path, ["price", "times"], &panels).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for part in ["price", "times", "mlp", "cnn", "ours", "theirs", "1.2 of it", "forty"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn ratios_above_ten_are_placed_by_their_logarithm() {
        let panel = |value| BarPanel { title: String::new(), bars: vec![bar("a", value, "")] };
        let scale = Scale::of(&[panel(1.5), panel(40.0)], true);
        let labels: Vec<_> = scale.marks.iter().map(|&mark| scale.label(mark)).collect();
        assert_eq!(labels, ["1", "2", "5", "10", "20"]);
        assert_eq!(scale.at(100.0), 2.0);
    }
}
