//! A figure of a paper: series of measured values, and verdicts on the paper's claims.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use burn_dp_examples::plot::{self, Series};
use burn_dp_examples::training::{BackendName, TrainError, files, typed};
use serde::{Deserialize, Serialize};

/// How much of the paper's setting to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Minutes on two cores.
    Quick,
    /// The setting of the paper.
    Paper,
}

/// What an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name of the experiment.
    pub experiment: String,
    /// Paper and figure.
    pub figure: String,
    /// How much of the paper's setting was run.
    pub preset: Preset,
    /// Name of the backend that it was run on.
    #[serde(default = "flex")]
    pub backend: String,
    /// Time of all measurements in seconds.
    pub seconds: f64,
    /// Commits of the code that measured, as far as they are known.
    pub commits: Vec<String>,
    /// What was run, in a sentence.
    pub setting: String,
    /// Title, and labels of the horizontal and the vertical axis.
    pub labels: [String; 3],
    /// The measured lines.
    pub series: Vec<FigureSeries>,
    /// The paper's claims, and whether they hold here.
    pub verdicts: Vec<Verdict>,
}

/// The backend of figures that name none.
fn flex() -> String {
    typed(BackendName::Flex)
}

/// Returns the name of a backend for a sentence, if it is not the usual one.
pub(super) fn on(backend: &str) -> String {
    if backend == flex() { String::new() } else { format!(" on {backend}") }
}

/// What an experiment found: a [`Figure`] without the facts that are the same for every experiment.
pub(super) struct Findings {
    pub(super) figure: String,
    pub(super) setting: String,
    pub(super) labels: [String; 3],
    pub(super) series: Vec<FigureSeries>,
    pub(super) verdicts: Vec<Verdict>,
}

/// A line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureSeries {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<FigurePoint>,
}

/// A point of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigurePoint {
    /// Position.
    pub x: f64,
    /// Mean over the seeds; of times, the median of the steps.
    pub y: f64,
    /// Smallest value; of times, the lower quartile.
    pub low: f64,
    /// Largest value; of times, the upper quartile.
    pub high: f64,
}

/// A claim, and whether it holds here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The claim as a sentence.
    pub claim: String,
    /// Whether the numbers agree with it.
    pub holds: bool,
    /// The numbers that decide the verdict.
    pub numbers: BTreeMap<String, f64>,
}

impl FigurePoint {
    /// Returns the point of one value.
    pub fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    /// Returns the point for the values of several seeds; `None` if there are none.
    pub fn of(x: f64, values: &[f64]) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { x, y: mean, low, high })
    }
}

impl FigureSeries {
    /// Returns a line of exact values.
    pub fn exact(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| FigurePoint::exact(x, y)).collect();
        Self { name: name.into(), points }
    }

    /// Returns the value at `x`, if there is a point.
    pub fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|point| point.x == x).map(|point| point.y)
    }
}

impl Verdict {
    /// Returns the verdict on a claim.
    pub fn new<'a>(
        claim: impl Into<String>,
        holds: bool,
        numbers: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> Self {
        let numbers = numbers.into_iter().map(|(name, value)| (name.to_string(), value));
        Self { claim: claim.into(), holds, numbers: numbers.collect() }
    }
}

impl Figure {
    /// Writes `NAME.json` and `NAME.svg` into `folder`.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] or [`TrainError::Plot`](TrainError) if a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), TrainError> {
        let at = |ending: &str| folder.join(format!("{}.{ending}", self.experiment));
        let series: Vec<Series> = self
            .series
            .iter()
            .map(|FigureSeries { name, points }| {
                let line = Series::new(name, points.iter().map(|point| (point.x, point.y)));
                line.with_ranges(points.iter().map(|point| [point.low, point.high]))
            })
            .collect();
        let [title, x, y] = &self.labels;
        plot::lines(&at("svg"), [title, x, y], &series)?;
        files::write_json(&at("json"), self)
    }

    /// Returns the figure as a section of Markdown, with its verdicts and the picture.
    pub fn markdown(&self, picture: &str) -> String {
        let commits = match &self.commits[..] {
            [] => "an unknown commit".into(),
            commits => format!("commit {}", commits.join(" and ")),
        };
        let on = on(&self.backend);
        let setting = wrapped(&format!("{} Measured{on} at {commits}.", self.setting), "");
        let mut text = format!("## `{}`: {}\n\n{setting}\n", self.experiment, self.figure);
        for verdict in &self.verdicts {
            text.push_str(&wrapped(&format!("- {verdict}"), "  "));
        }
        let _ = write!(text, "\n![{}]({picture})\n", self.labels[0]);
        text
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.holds { "Held" } else { "Not held" };
        write!(f, "**{word}**: {}", self.claim)?;
        let numbers: Vec<String> = self
            .numbers
            .iter()
            .map(|(name, value)| format!("{name} {}", significant(*value)))
            .collect();
        match numbers.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", numbers.join(", ")),
        }
    }
}

/// Maximum width of a line of the page.
const WIDTH: usize = 100;

/// Returns a paragraph as lines, all but the first indented.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            lines.push('\n');
            lines.push_str(indent);
            width = indent.len();
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines + "\n"
}

/// Returns a number with four significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    match digits {
        -6..=8 => {
            let text = format!("{value:.*}", digits.max(0) as usize);
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            }
        }
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn figure() -> Figure {
        Figure {
            experiment: "name".into(),
            figure: "A paper, figure 1".into(),
            preset: Preset::Quick,
            backend: flex(),
            seconds: 1.5,
            commits: vec!["1a2b3c4d".into()],
            setting: "Two points.".into(),
            labels: ["title", "x", "y"].map(String::from),
            series: vec![FigureSeries::exact("line", [(1.0, 2.0), (2.0, 3.0)])],
            verdicts: vec![Verdict::new("It rises.", true, [("rise", 1.0)])],
        }
    }

    #[test]
    fn a_figure_is_written_as_json_and_picture() {
        let folder = tempfile::tempdir().unwrap();
        figure().write(folder.path()).unwrap();
        let json = std::fs::read_to_string(folder.path().join("name.json")).unwrap();
        assert_eq!(serde_json::from_str::<Figure>(&json).unwrap(), figure());
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        for field in ["experiment", "figure", "preset", "seconds", "series", "verdicts"] {
            assert!(!value[field].is_null(), "{field}");
        }
        assert_eq!(value["verdicts"][0]["holds"], true);
        assert!(folder.path().join("name.svg").exists());
    }

    #[test]
    fn markdown_has_the_verdicts_with_their_numbers() {
        let text = figure().markdown("figures/name.svg");
        assert!(text.contains("Two points. Measured at commit 1a2b3c4d."), "{text}");
        assert!(text.contains("- **Held**: It rises. (rise 1)"), "{text}");
        assert!(text.contains("(figures/name.svg)"), "{text}");
        let mut other = Figure { commits: vec![], ..figure() };
        assert!(other.markdown("x").contains("at an unknown commit"));
        other.backend = "cuda".into();
        assert!(other.markdown("x").contains("Measured on cuda at"));
        other.verdicts[0].holds = false;
        assert!(other.markdown("x").contains("- **Not held**"));
    }

    #[test]
    fn no_line_of_the_page_is_wider_than_the_limit() {
        let mut figure = figure();
        figure.setting = "word ".repeat(80);
        figure.verdicts[0].claim = "claim ".repeat(60);
        let text = figure.markdown("x");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.matches("word").count(), 80);
        assert!(text.contains("\n  claim"), "{text}");
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (12.3456, "12.35"),
            (0.00123456, "0.001235"),
            (5e-12, "5.000e-12"),
            (123456.0, "123456"),
        ] {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn a_point_of_several_seeds_has_mean_and_range() {
        let point = FigurePoint::of(2.0, &[1.0, 4.0, 1.0]).unwrap();
        assert_eq!((point.y, point.low, point.high), (2.0, 1.0, 4.0));
        assert_eq!(FigurePoint::of(2.0, &[]), None);
    }
}
