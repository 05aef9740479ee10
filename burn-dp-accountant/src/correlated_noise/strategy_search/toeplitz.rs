//! The search for the coefficients of a banded Toeplitz strategy, or of its inverse.

use super::super::series;
use super::StrategySearch;
use super::minimizer::minimize;
use super::slopes::{error_slope, majorant_slope, sensitivity_slope, through_inverse};

/// The matrix that has the bands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BandedMatrix {
    /// `C`.
    Strategy,
    /// `C^-1`.
    Inverse,
}

/// The sensitivity in the loss.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Participations {
    /// The sensitivity of decreasing coefficients or separate columns, which is smooth.
    Regular,
    /// The bound from the majorant of the coefficients.
    Majorant,
}

/// Returns the best coefficients, beginning with 1. The loss does not depend on their scale.
pub(super) fn search(
    search: &StrategySearch,
    start: &[f64],
    side: BandedMatrix,
    participations: Participations,
) -> Vec<f64> {
    let lags = start.len();
    if lags == 1 {
        return vec![1.0];
    }
    // The loss does not depend on the scale.
    let start: Vec<f64> = start.iter().map(|c| c / start[0]).collect();
    let with_first = |rest: &[f64]| [&[1.0], rest].concat();
    let (rest, _) = minimize(&start[1..], |rest| {
        value_and_gradient(search, &with_first(rest), side, participations)
            .map(|(value, gradient)| (value, gradient[1..].to_vec()))
    });
    with_first(&rest)
}

/// Returns the logarithm of the loss, and its gradient with respect to the coefficients.
pub(super) fn value_and_gradient(
    search: &StrategySearch,
    coefficients: &[f64],
    side: BandedMatrix,
    participations: Participations,
) -> Option<(f64, Vec<f64>)> {
    let n = search.len();
    let inverse = series::inverse(coefficients, n);
    if !inverse.iter().all(|value| value.abs() < 1e100) {
        return None;
    }
    let mut own = coefficients.to_vec();
    own.resize(n, 0.0);
    let (strategy, noise) = match side {
        BandedMatrix::Strategy => (&own, &inverse),
        BandedMatrix::Inverse => (&inverse, &own),
    };
    let error = error_slope(search, noise);
    let sensitivity = match participations {
        Participations::Regular => sensitivity_slope(search, strategy),
        Participations::Majorant => majorant_slope(search, strategy),
    };
    let (direct, indirect) = match side {
        BandedMatrix::Strategy => (&sensitivity, &error),
        BandedMatrix::Inverse => (&error, &sensitivity),
    };
    let through = through_inverse(coefficients, &inverse, &indirect.gradient, coefficients.len());
    let gradient = direct.gradient.iter().zip(&through);
    let gradient = gradient.map(|(a, b)| a / direct.value + b / indirect.value).collect();
    Some((error.value.ln() + sensitivity.value.ln(), gradient))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::workload::Workload;
    use super::super::Objective;
    use super::*;

    #[test]
    fn gradient_agrees_with_differences() {
        let coefficients = [1.0, -0.3, -0.4, 0.1];
        let momentum = Workload::prefix_sums().with_momentum(0.7).unwrap();
        let rates: Vec<f64> = (0..17).map(|t| 1.0 / (1.0 + 0.2 * f64::from(t))).collect();
        let rated = momentum.clone().with_decay(0.9).unwrap().with_learning_rates(&rates).unwrap();
        for (workload, objective, times, separation) in [
            (&momentum, Objective::Mean, 1, 1),
            (&momentum, Objective::Max, 3, 2),
            (&rated, Objective::Mean, 3, 2),
            (&rated, Objective::Max, 1, 1),
        ] {
            let search = StrategySearch::new(17).unwrap().with_objective(objective);
            let search = search.with_participation(times, separation).unwrap();
            let search = search.with_workload(workload.clone()).unwrap();
            for (side, participations) in [
                (BandedMatrix::Strategy, Participations::Regular),
                (BandedMatrix::Inverse, Participations::Regular),
                (BandedMatrix::Strategy, Participations::Majorant),
                (BandedMatrix::Inverse, Participations::Majorant),
            ] {
                let at = |x: &[f64]| value_and_gradient(&search, x, side, participations).unwrap();
                let gradient = at(&coefficients).1;
                for i in 0..4 {
                    let moved = |by: f64| {
                        let mut moved = coefficients;
                        moved[i] += by;
                        at(&moved).0
                    };
                    let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                    assert!((gradient[i] - difference).abs() < 1e-8, "{i}: {gradient:?}");
                }
            }
        }
    }
}
