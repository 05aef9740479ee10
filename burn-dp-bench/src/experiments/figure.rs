//! A figure of a paper: series of measured values, and verdicts on the paper's claims.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use burn_dp_examples::plot::{self, Series};
use burn_dp_examples::training::{BackendName, TrainError, files, typed};
use serde::{Deserialize, Serialize};

pub use super::point::FigurePoint;
use super::verdict::Verdict;

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
    /// Numbers of the verdicts that no line shows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, f64>,
    /// The paper's claims, and whether they hold here: computed from the lines and the facts.
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
    /// Numbers of the verdicts that no line shows.
    pub(super) facts: Vec<(String, f64)>,
}

/// A line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureSeries {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<FigurePoint>,
}

impl FigureSeries {
    /// Returns a line of exact values.
    pub fn exact(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| FigurePoint::exact(x, y)).collect();
        Self { name: name.into(), points }
    }
}

impl Figure {
    /// Returns a figure of the quick preset with nothing but these lines, for tests of verdicts.
    #[cfg(test)]
    pub(super) fn of_lines(lines: impl IntoIterator<Item = FigureSeries>) -> Self {
        Self {
            experiment: String::new(),
            figure: String::new(),
            preset: Preset::Quick,
            backend: flex(),
            seconds: 0.0,
            commits: vec![],
            setting: String::new(),
            labels: Default::default(),
            series: lines.into_iter().collect(),
            facts: BTreeMap::new(),
            verdicts: vec![],
        }
    }

    /// Returns the points of a line, none if there is no such line.
    pub(super) fn line(&self, name: &str) -> &[FigurePoint] {
        let line = self.series.iter().find(|line| line.name == name);
        line.map_or(&[], |line| &line.points)
    }

    /// Returns the point of a line at `x`.
    pub(super) fn at(&self, line: &str, x: f64) -> FigurePoint {
        let point = self.line(line).iter().find(|point| point.x == x);
        point.copied().unwrap_or(FigurePoint::MISSING)
    }

    /// Returns the last point of a line.
    pub(super) fn end(&self, line: &str) -> FigurePoint {
        self.line(line).last().copied().unwrap_or(FigurePoint::MISSING)
    }

    /// Returns a fact, NaN if it is not known.
    pub(super) fn fact(&self, name: &str) -> f64 {
        self.facts.get(name).copied().unwrap_or(f64::NAN)
    }

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn figure() -> Figure {
        Figure {
            experiment: "name".into(),
            figure: "A paper, figure 1".into(),
            seconds: 1.5,
            commits: vec!["1a2b3c4d".into()],
            setting: "Two points.".into(),
            labels: ["title", "x", "y"].map(String::from),
            facts: [("a fact".to_string(), 7.0)].into(),
            verdicts: vec![Verdict::new("It rises.", true, [("rise", 1.0)])],
            ..Figure::of_lines([FigureSeries::exact("line", [(1.0, 2.0), (2.0, 3.0)])])
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
    fn what_was_not_measured_is_missing() {
        let figure = figure();
        assert_eq!((figure.at("line", 1.0).y, figure.end("line").y), (2.0, 3.0));
        assert_eq!(figure.fact("a fact"), 7.0);
        assert!(figure.at("line", 9.0).y.is_nan() && figure.end("other").y.is_nan());
        assert!(figure.fact("other").is_nan());
    }
}
