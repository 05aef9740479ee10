//! The figures, the fitted exponents, and their table and picture.

use std::path::Path;

use burn_dp_examples::plot::{self, Bar, BarPanel};
use burn_dp_examples::training::TrainError;
use comfy_table::Table;
use serde::Serialize;

use super::fit::exponent;

/// One algorithm at one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Name of the size that is changed.
    pub axis: String,
    /// Name of the network.
    pub model: String,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Number of threads.
    pub threads: usize,
    /// The size.
    pub value: usize,
    /// Median time of a step, in milliseconds.
    pub ms: f64,
    /// Shortest time of a step, in milliseconds.
    pub ms_min: f64,
    /// CPU time of a step on all threads, in milliseconds.
    pub cpu_ms: Option<f64>,
    /// Peak memory of the process, in MiB.
    pub peak_mib: Option<f64>,
    /// Peak memory minus the memory that the program itself uses, in MiB.
    pub step_mib: Option<f64>,
}

/// How time and memory of an algorithm grow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// Name of the size that is changed.
    pub axis: String,
    /// Name of the network.
    pub model: String,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Number of threads.
    pub threads: usize,
    /// The median time grows like the size to this power.
    pub ms_exponent: Option<f64>,
    /// The CPU time grows like the size to this power.
    pub cpu_exponent: Option<f64>,
    /// The memory without the program grows like the size to this power.
    pub mib_exponent: Option<f64>,
}

/// The file of the figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScalingFigures {
    /// What was measured.
    pub points: Vec<Point>,
    /// What was fitted.
    pub growth: Vec<Growth>,
}

impl ScalingFigures {
    /// Fits the exponents of every algorithm along every axis.
    pub(super) fn new(points: Vec<Point>) -> Self {
        let mut growth: Vec<Growth> = Vec::new();
        for point in &points {
            let name = |point: &Point| {
                let Point { axis, algorithm, threads, .. } = point;
                (axis.clone(), algorithm.clone(), *threads)
            };
            let same: Vec<_> = points.iter().filter(|other| name(other) == name(point)).collect();
            if same.first().is_none_or(|first| *first != point) {
                continue;
            }
            let of = |measure: fn(&Point) -> Option<f64>| {
                let pair = |point: &&Point| Some((point.value as f64, measure(point)?));
                exponent(&same.iter().map(pair).collect::<Option<Vec<_>>>()?)
            };
            growth.push(Growth {
                axis: point.axis.clone(),
                model: point.model.clone(),
                algorithm: point.algorithm.clone(),
                threads: point.threads,
                ms_exponent: of(|point| Some(point.ms)),
                cpu_exponent: of(|point| point.cpu_ms),
                mib_exponent: of(|point| point.step_mib),
            });
        }
        Self { points, growth }
    }

    /// Returns the figures and the exponents as two tables.
    pub(super) fn tables(&self) -> String {
        let text = |value: Option<f64>| value.map(|v| format!("{v:.2}")).unwrap_or_default();
        let mut points = Table::new();
        points.set_header([
            "axis",
            "model",
            "size",
            "threads",
            "algorithm",
            "ms",
            "ms min",
            "CPU ms",
            "peak MiB",
            "step MiB",
        ]);
        for point in &self.points {
            let numbers =
                [Some(point.ms), Some(point.ms_min), point.cpu_ms, point.peak_mib, point.step_mib];
            let mut cells = vec![
                point.axis.clone(),
                point.model.clone(),
                point.value.to_string(),
                point.threads.to_string(),
                point.algorithm.clone(),
            ];
            cells.extend(numbers.map(text));
            points.add_row(cells);
        }
        let mut growth = Table::new();
        growth.set_header([
            "axis",
            "model",
            "threads",
            "algorithm",
            "time",
            "CPU time",
            "memory of the step",
        ]);
        for row in &self.growth {
            let mut cells = vec![
                row.axis.clone(),
                row.model.clone(),
                row.threads.to_string(),
                row.algorithm.clone(),
            ];
            cells.extend([row.ms_exponent, row.cpu_exponent, row.mib_exponent].map(text));
            growth.add_row(cells);
        }
        format!("{points}\nExponents: the figures grow like the size to this power\n{growth}")
    }

    /// Draws the exponents of time and memory, with one panel for each axis and number of threads.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if the file cannot be written.
    pub(super) fn draw(&self, path: &Path) -> Result<(), TrainError> {
        let mut panels: Vec<BarPanel> = Vec::new();
        for Growth { axis, model, algorithm, threads, ms_exponent, mib_exponent, .. } in
            &self.growth
        {
            let title = format!("{axis} of {model}, threads: {threads}");
            let bar = |what: &str, kind, value: f64| Bar {
                name: format!("{what}, {algorithm}"),
                value,
                text: format!("power {value:.2}"),
                kind,
            };
            let time = ms_exponent.map(|value| bar("time", 0, value));
            let memory = mib_exponent.map(|value| bar("memory", 1, value));
            let bars = [time, memory].into_iter().flatten();
            match panels.last_mut() {
                Some(panel) if panel.title == title => panel.bars.extend(bars),
                _ => panels.push(BarPanel { title, bars: bars.collect() }),
            }
        }
        panels.retain(|panel| !panel.bars.is_empty());
        let title = "Growth of time and memory of a step";
        plot::ratio_bars(path, [title, "exponent of the power law"], &panels)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn point(axis: &str, algorithm: &str, value: usize, ms: f64, mib: Option<f64>) -> Point {
        Point {
            axis: axis.into(),
            model: "mlp".into(),
            algorithm: algorithm.into(),
            threads: 1,
            value,
            ms,
            ms_min: ms,
            cpu_ms: Some(2.0 * ms),
            peak_mib: mib,
            step_mib: mib,
        }
    }

    fn figures() -> ScalingFigures {
        ScalingFigures::new(vec![
            point("width", "non-private", 1, 1.0, Some(2.0)),
            point("width", "book-keeping", 1, 2.0, None),
            point("width", "non-private", 2, 4.0, Some(4.0)),
            point("width", "book-keeping", 2, 4.0, Some(1.0)),
            point("depth", "non-private", 3, 1.0, Some(1.0)),
        ])
    }

    #[test]
    fn exponents_are_fitted_for_each_algorithm_along_each_axis() {
        let figures = figures();
        let found = figures.growth.iter().map(|growth| {
            let rounded = |value: Option<f64>| value.map(|value| value.round());
            (
                growth.axis.as_str(),
                growth.algorithm.as_str(),
                rounded(growth.ms_exponent),
                rounded(growth.cpu_exponent),
                rounded(growth.mib_exponent),
            )
        });
        let expected = [
            ("width", "non-private", Some(2.0), Some(2.0), Some(1.0)),
            ("width", "book-keeping", Some(1.0), Some(1.0), None),
            ("depth", "non-private", None, None, None),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_tables_and_the_picture_have_the_exponents() {
        let folder = tempfile::tempdir().unwrap();
        let (path, figures) = (folder.path().join("scaling.svg"), figures());
        assert!(figures.tables().contains("2.00"));
        figures.draw(&path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["width of mlp", "time, book-keeping", "power 2.00", "memory, non-private"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("depth of mlp"), "{svg}");
    }

    #[test]
    fn the_file_has_the_points_and_the_growth() {
        let value = serde_json::to_value(figures()).unwrap();
        let names = |value: &serde_json::Value| {
            let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(names(&value), "growth points");
        assert_eq!(
            names(&value["points"][0]),
            "algorithm axis cpu_ms model ms ms_min peak_mib step_mib threads value"
        );
        assert_eq!(
            names(&value["growth"][0]),
            "algorithm axis cpu_exponent mib_exponent model ms_exponent threads"
        );
    }
}
