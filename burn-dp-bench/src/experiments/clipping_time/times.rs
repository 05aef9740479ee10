//! Seconds for an epoch at the places of a figure, and ratios of such times.

use burn_dp_examples::training::{TrainError, typed};

use crate::bench::{Algorithm, InputName, Network, Sizes, step_times};
use crate::experiments::figure::{Figure, FigurePoint, FigureSeries, Findings};
use crate::experiments::measured::Measured;

pub(super) const NON_PRIVATE: &str = "NonPrivate";
pub(super) const NXBP: &str = "nxBP";
pub(super) const MULTI_LOSS: &str = "multiLoss";
pub(super) const REWEIGHT: &str = "ReweightGP";
pub(super) const BOOK_KEEPING: &str = "book-keeping";

/// The algorithms with their names in the paper.
pub(in crate::experiments) const ALGORITHMS: [(Algorithm, &str); 5] = [
    (Algorithm::NonPrivate, NON_PRIVATE),
    (Algorithm::Nxbp, NXBP),
    (Algorithm::Materialize, MULTI_LOSS),
    (Algorithm::Reweight, REWEIGHT),
    (Algorithm::BookKeeping, BOOK_KEEPING),
];

/// Counted images of LSUN. The paper does not say how many of the 59 million are an epoch.
pub(super) const LSUN_IMAGES: f64 = 60_000.0;

/// Returns the number of training examples of the data set with these inputs; Fashion-MNIST has as
/// many as MNIST.
pub(super) fn training_examples(inputs: InputName) -> f64 {
    match inputs {
        InputName::Mnist => 60_000.0,
        InputName::Cifar10 => 50_000.0,
        InputName::Imdb => 25_000.0,
    }
}

/// A point of a line: its position, and what is measured there.
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) network: Network,
    pub(super) sizes: Sizes,
    pub(super) batch: usize,
    /// Examples of an epoch.
    pub(super) epoch: f64,
}

/// Places that are one line for each algorithm.
pub(super) struct Panel {
    /// Start of the names of the lines; empty if the figure has one panel.
    pub(super) name: String,
    pub(super) places: Vec<Place>,
}

/// A figure of times.
pub(super) struct Times {
    pub(super) figure: &'static str,
    pub(super) setting: String,
    pub(super) title: &'static str,
    pub(super) x: &'static str,
    pub(super) panels: Vec<Panel>,
}

/// Title of a figure whose epochs have the size of the data sets.
pub(super) const EPOCH: &str = "Seconds for an epoch";

impl Times {
    /// Measures seconds for an epoch.
    pub(super) fn measure(self, measured: &mut Measured) -> Result<Findings, TrainError> {
        let algorithms = ALGORITHMS.map(|(algorithm, _)| algorithm);
        measured.expect(self.panels.iter().map(|panel| panel.places.len()).sum());
        let mut series = Vec::new();
        for panel in self.panels {
            let mut lines =
                ALGORITHMS.map(|(_, name)| FigureSeries::exact(panel_line(&panel.name, name), []));
            for place in panel.places {
                let Place { x, network, sizes, batch, epoch } = place;
                // How long each algorithm runs.
                let ms = if measured.quick() { 1_000.0 } else { 10_000.0 };
                let times = measured.measure(&place.name(), |device| {
                    step_times(network, sizes, batch, &algorithms, ms, device)
                })?;
                for (line, quartiles) in lines.iter_mut().zip(times) {
                    let [low, y, high] = quartiles.map(|ms: f64| ms / 1e3 * epoch / batch as f64);
                    line.points.push(FigurePoint { x, y, low, high });
                }
            }
            series.extend(lines);
        }
        Ok(Findings {
            figure: self.figure.into(),
            setting: format!("{} Median of the steps, with their quartiles.", self.setting),
            labels: [self.title, self.x, "seconds"].map(String::from),
            series,
            facts: Vec::new(),
        })
    }
}

impl Place {
    /// Returns the name of the measurement. It has no size of the epoch, which scales the result.
    fn name(&self) -> String {
        let Self { network, sizes, batch, .. } = self;
        let size = sizes.image_size.map_or(String::new(), |size| format!(", {size} pixels"));
        let depth = sizes.depth.map_or(String::new(), |depth| format!(", depth {depth}"));
        let inputs = sizes.inputs.map_or(String::new(), |name| format!(" on {}", typed(name)));
        format!("{}{inputs}{size}{depth}, batch {batch}", typed(*network))
    }
}

/// Returns the name of the line of an algorithm.
pub(super) fn panel_line(panel: &str, algorithm: &str) -> String {
    if panel.is_empty() { algorithm.into() } else { format!("{panel}, {algorithm}") }
}

/// Returns the ratios of the times of one algorithm to the times of another, at every place.
pub(super) fn ratios(figure: &Figure, one: &str, other: &str) -> Vec<f64> {
    let lines = figure.series.iter().filter_map(|line| Some((line, line.name.strip_suffix(one)?)));
    let of_line = |(line, panel): (&FigureSeries, &str)| {
        let others = figure.line(&format!("{panel}{other}"));
        let ratio = |(one, other): (&FigurePoint, &FigurePoint)| one.y / other.y;
        line.points.iter().zip(others).map(ratio).collect::<Vec<_>>()
    };
    lines.flat_map(of_line).collect()
}

/// Returns the ratio of the last time to the first one, for each line of an algorithm.
pub(super) fn changes(figure: &Figure, algorithm: &str) -> Vec<f64> {
    let lines = figure.series.iter().filter(|line| line.name.ends_with(algorithm));
    let change = |line: &FigureSeries| Some(line.points.last()?.y / line.points.first()?.y);
    lines.filter_map(change).collect()
}

/// Returns the geometric mean, NaN of none.
pub(super) fn geometric_mean(ratios: &[f64]) -> f64 {
    let logarithms = ratios.iter().map(|ratio| ratio.ln());
    (logarithms.sum::<f64>() / ratios.len() as f64).exp()
}

/// Returns the largest ratio, NaN of none.
pub(super) fn largest(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(f64::NAN, f64::max)
}

/// Returns the smallest ratio, NaN of none.
pub(super) fn smallest(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(f64::NAN, f64::min)
}

/// Returns a figure with one line for each algorithm, for tests of verdicts.
///
/// # Arguments
///
/// - `times`: the times of the algorithms in the order of [`ALGORITHMS`]
#[cfg(test)]
pub(super) fn figure_of(panels: &[(&str, [&[f64]; 5])]) -> Figure {
    let lines = panels.iter().flat_map(|(panel, times)| {
        ALGORITHMS.iter().zip(times).map(|((_, name), times)| {
            let points = (1..).map(f64::from).zip(times.iter().copied());
            FigureSeries::exact(panel_line(panel, name), points)
        })
    });
    Figure::of_lines(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_between_lines_of_the_same_panel() {
        let one: [&[f64]; 5] = [&[1.0, 2.0], &[9.0, 4.0], &[1.0, 1.0], &[1.0, 1.0], &[2.0, 6.0]];
        let figure = figure_of(&[("A", one), ("B", [&[1.0]; 5])]);
        let found = ratios(&figure, BOOK_KEEPING, NON_PRIVATE);
        assert_eq!(found, [2.0, 3.0, 1.0]);
        assert!((geometric_mean(&found) - 6f64.cbrt()).abs() < 1e-12);
        assert_eq!((smallest(&found), largest(&found)), (1.0, 3.0));
        assert_eq!(changes(&figure, NXBP), [4.0 / 9.0, 1.0]);
    }

    #[test]
    fn nothing_is_larger_or_smaller_than_what_was_not_measured() {
        let found = ratios(&Figure::of_lines([]), NXBP, NON_PRIVATE);
        assert!(geometric_mean(&found).is_nan());
        assert!(largest(&found).is_nan() && smallest(&found).is_nan());
    }

    #[test]
    fn the_name_of_a_measurement_has_its_sizes() {
        let sizes = Sizes { inputs: Some(InputName::Cifar10), depth: Some(2), ..Sizes::default() };
        let place = Place { x: 1.0, network: Network::Mlp, sizes, batch: 16, epoch: 50_000.0 };
        assert_eq!(place.name(), "mlp on cifar10, depth 2, batch 16");
        let sizes = Sizes { image_size: Some(64), ..Sizes::default() };
        assert_eq!(Place { sizes, ..place }.name(), "mlp, 64 pixels, batch 16");
    }
}
