//! The lines of fixed thresholds and of an adaptive one at several ε.

use super::figure::{Figure, FigurePoint, FigureSeries};

const FIXED: &str = "fixed";
const ADAPTIVE: &str = "adaptive";

fn name(what: &str, epsilon: f64) -> String {
    format!("{what}, ε = {epsilon}")
}

/// Returns the lines of an ε: the accuracies with fixed thresholds, and a constant one.
pub(super) fn lines(
    epsilon: f64,
    fixed: Vec<FigurePoint>,
    adaptive: FigurePoint,
) -> [FigureSeries; 2] {
    let ends = [fixed.first(), fixed.last()].into_iter().flatten();
    let constant = ends.map(|end| FigurePoint { x: end.x, ..adaptive }).collect();
    [
        FigureSeries { name: name(FIXED, epsilon), points: fixed },
        FigureSeries { name: name(ADAPTIVE, epsilon), points: constant },
    ]
}

/// Returns the accuracies with the fixed thresholds and the adaptive one at an ε.
pub(super) fn accuracies(figure: &Figure, epsilon: f64) -> (&[FigurePoint], FigurePoint) {
    (figure.line(&name(FIXED, epsilon)), figure.end(&name(ADAPTIVE, epsilon)))
}

/// Returns a figure with the same accuracies at every ε, for tests of verdicts.
#[cfg(test)]
pub(super) fn figure_of(epsilons: &[f64], fixed: &[(f64, f64)], adaptive: f64) -> Figure {
    let fixed: Vec<_> = fixed.iter().map(|&(x, y)| FigurePoint::exact(x, y)).collect();
    let adaptive = FigurePoint::exact(1.0, adaptive);
    Figure::of_lines(epsilons.iter().flat_map(|&epsilon| lines(epsilon, fixed.clone(), adaptive)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_adaptive_accuracy_is_a_constant_line_over_the_grid() {
        let figure = figure_of(&[1.0, 4.0], &[(0.1, 0.3), (1.0, 0.4)], 0.5);
        let (fixed, adaptive) = accuracies(&figure, 4.0);
        assert_eq!((fixed.len(), adaptive.x, adaptive.y), (2, 1.0, 0.5));
        assert_eq!(figure.line("adaptive, ε = 1")[0], FigurePoint::exact(0.1, 0.5));
        assert!(accuracies(&figure, 2.0).1.y.is_nan());
    }
}
