//! ε against σ at a constant total amount of noise.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! section 3.2 and figure 2.

use burn_dp::DpError;
use burn_dp_accountant::{
    Accountant, DpEvent, ExactAccountant, NeighboringRelation, RdpAccountant,
    TAN_APPROXIMATION_LIMIT, TotalAmountOfNoise,
};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::verdict::Verdict;

pub(super) const NAME: &str = "tan-privacy";

/// The setting of the paper: ImageNet with δ = 8e-7, and the η of ε_TAN = 1 and 8.
const DELTA: f64 = 8e-7;
const ETAS: [(f64, f64); 2] = [(0.13, 1.0), (0.95, 8.0)];

/// Each curve of the paper has another number of steps, which its caption does not state; these are
/// the numbers of its runs on CIFAR-10 and ImageNet.
const STEPS: [u64; 3] = [2_500, 18_000, 72_000];
/// The number of steps of the bounds by Rényi divergences.
const RENYI_STEPS: u64 = 18_000;

/// The σ below which ε explodes ("privacy wall"), by eye from the paper's figure.
const WALL: f64 = 0.5;
/// The ends of the axis.
const SIGMAS: [f64; 2] = [0.35, 8.0];

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let points = if measured.quick() { 16 } else { 48 };
    // Evenly spaced in the logarithm.
    let [first, last] = SIGMAS;
    let sigmas: Vec<f64> = (0..points)
        .map(|i| first * (last / first).powf(f64::from(i) / f64::from(points - 1)))
        .collect();
    measured.expect(ETAS.len() * (STEPS.len() + 1) * sigmas.len());
    let mut series = Vec::new();
    for (eta, _) in ETAS {
        for steps in STEPS {
            let mut exact = Vec::new();
            for &sigma in &sigmas {
                let name = format!("exact, eta {eta}, {steps} steps, sigma {sigma:.4}");
                exact.push((sigma, measured.measure(&name, |_| exact_epsilon(eta, sigma, steps))?));
            }
            series.push(FigureSeries::exact(exact_line(eta, steps), exact));
        }
        let mut renyi = Vec::new();
        for &sigma in &sigmas {
            let name = format!("Rényi, eta {eta}, sigma {sigma:.4}");
            renyi.push((sigma, measured.measure(&name, |_| renyi_epsilon(eta, sigma))?));
        }
        let name = format!("Rényi, η = {eta}, S = {RENYI_STEPS}");
        series.push(FigureSeries::exact(name, renyi));
        let total = TotalAmountOfNoise::new(probability(eta, 1.0, RENYI_STEPS), 1.0, RENYI_STEPS);
        let total = total.map_err(DpError::from)?;
        let approximate = total.approximate_epsilon(DELTA).map_err(DpError::from)?;
        let ends = SIGMAS.map(|sigma| (sigma, approximate));
        series.push(FigureSeries::exact(approximate_line(eta), ends));
    }
    // The marks of the paper, from the smallest to the largest ε.
    let all = || series.iter().flat_map(|line| &line.points);
    let ends = [FigurePoint::smallest(all()).y, FigurePoint::largest(all()).y];
    let mark = |name: &str, sigma: f64| {
        FigureSeries::exact(format!("{name}, σ = {sigma}"), ends.map(|epsilon| (sigma, epsilon)))
    };
    let marks = [mark("wall", WALL), mark("approximation from", TAN_APPROXIMATION_LIMIT)];
    series.extend(marks);
    Ok(Findings {
        figure: "TAN Without a Burn, figure 2".into(),
        setting: format!(
            "ε at δ = {DELTA:e} after S steps whose sampling probability follows from σ, S and a \
             constant η. The approximation is meant for σ ≥ {TAN_APPROXIMATION_LIMIT}; the wall is \
             near σ = {WALL}."
        ),
        labels: ["ε at a constant total amount of noise", "σ", "ε"].map(String::from),
        series,
        facts: Vec::new(),
    })
}

/// Compares ε at different σ, for every number of steps.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let verdicts = ETAS.map(|(eta, tan)| {
        let approximate = figure.end(&approximate_line(eta)).y;
        [
            constant(figure, eta, approximate),
            explodes(figure, eta),
            corresponds(eta, tan, approximate),
        ]
    });
    verdicts.into_iter().flatten().collect()
}

/// Compares all ε at a large σ.
fn constant(figure: &Figure, eta: f64, approximate: f64) -> Verdict {
    let far = || {
        let points = STEPS.iter().flat_map(|&steps| figure.line(&exact_line(eta, steps)));
        points.filter(|point| point.x >= TAN_APPROXIMATION_LIMIT)
    };
    let (least, most) = (FigurePoint::smallest(far()).y, FigurePoint::largest(far()).y);
    Verdict::new(
        format!(
            "At η = {eta}, ε hardly depends on σ for σ ≥ {TAN_APPROXIMATION_LIMIT}, nor on the \
             number of steps: it changes by less than 15 %."
        ),
        most < 1.15 * least,
        [("smallest ε", least), ("largest ε", most), ("ε_TAN", approximate)],
    )
}

/// Compares ε on both sides of the wall.
fn explodes(figure: &Figure, eta: f64) -> Verdict {
    let smallest = |low: f64, high: f64| {
        let ratio = |&steps: &u64| {
            let points = figure.line(&exact_line(eta, steps));
            nearest(points, low) / nearest(points, high)
        };
        // A number of steps that was not measured must not be skipped.
        let smaller = |a: f64, b: f64| if a <= b || a.is_nan() { a } else { b };
        STEPS.iter().map(ratio).fold(f64::INFINITY, smaller)
    };
    let (below, above) = (smallest(SIGMAS[0], WALL), smallest(WALL, SIGMAS[1]));
    Verdict::new(
        format!(
            "At η = {eta}, ε explodes below the wall at σ = {WALL}, with every number of steps."
        ),
        below > 2.0 && above > 1.5,
        [
            ("smallest ratio of ε at σ = 0.35 and at 0.5", below),
            ("smallest ratio of ε at σ = 0.5 and at 8", above),
        ],
    )
}

/// Compares the approximation with its value in the paper.
fn corresponds(eta: f64, tan: f64, approximate: f64) -> Verdict {
    Verdict::new(
        format!("η = {eta} corresponds to ε_TAN = {tan}."),
        (approximate - tan).abs() < 0.05 * tan,
        [("ε_TAN", approximate)],
    )
}

/// Returns the value at the point whose σ is nearest.
fn nearest(points: &[FigurePoint], sigma: f64) -> f64 {
    let distance = |point: &FigurePoint| (point.x / sigma).ln().abs();
    let nearest = points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.map_or(f64::NAN, |point| point.y)
}

/// Names of the lines.
fn exact_line(eta: f64, steps: u64) -> String {
    format!("exact, η = {eta}, S = {steps}")
}

fn approximate_line(eta: f64) -> String {
    format!("ε_TAN, η = {eta}")
}

/// Returns the sampling probability of a training run with this η and σ.
fn probability(eta: f64, sigma: f64, steps: u64) -> f64 {
    eta * sigma * (2.0 / steps as f64).sqrt()
}

/// Returns ε of the training run with this η and σ.
fn exact_epsilon(eta: f64, sigma: f64, steps: u64) -> Result<f64, TrainError> {
    let event = DpEvent::dp_sgd_step(probability(eta, sigma, steps), sigma);
    let relation = NeighboringRelation::AddOrRemoveOne;
    let exact = ExactAccountant::new([(&event, steps)], relation).map_err(DpError::from)?;
    Ok(exact.epsilon(DELTA).map_err(DpError::from)?.estimate)
}

/// Returns the bound on ε by Rényi divergences.
fn renyi_epsilon(eta: f64, sigma: f64) -> Result<f64, TrainError> {
    let event = DpEvent::dp_sgd_step(probability(eta, sigma, RENYI_STEPS), sigma);
    let relation = NeighboringRelation::AddOrRemoveOne;
    let rdp = RdpAccountant::new([(&event, RENYI_STEPS)], relation).map_err(DpError::from)?;
    Ok(rdp.epsilon(DELTA).map_err(DpError::from)?.upper)
}

#[cfg(test)]
mod tests {
    use super::super::verdict::held;
    use super::*;

    /// Judges curves of all numbers of steps but the last, and one of the last number of steps.
    fn judged(last: [(f64, f64); 4], approximate: f64) -> Vec<bool> {
        let lines = ETAS.iter().flat_map(|&(eta, _)| {
            let curve = |steps| if steps == STEPS[2] { last } else { CURVE };
            let curves =
                STEPS.map(|steps| FigureSeries::exact(exact_line(eta, steps), curve(steps)));
            let flat = FigureSeries::exact(approximate_line(eta), [(8.0, approximate)]);
            curves.into_iter().chain([flat])
        });
        held(&judge(&Figure::of_lines(lines)))
    }

    const CURVE: [(f64, f64); 4] = [(0.35, 20.0), (0.52, 5.0), (2.2, 1.1), (8.0, 1.0)];

    #[test]
    fn a_curve_with_a_wall_and_a_plateau_holds() {
        assert_eq!(judged(CURVE, 1.01), [true, true, true, true, true, false]);
        assert_eq!(judged(CURVE, 8.1), [true, true, false, true, true, true]);
    }

    #[test]
    fn every_number_of_steps_counts() {
        let [below, wall, _, far] = CURVE;
        let first = |last| judged(last, 1.0)[..2].to_vec();
        assert_eq!(first([below, wall, (2.2, 1.2), far]), [false, true]);
        assert_eq!(first([(0.35, 9.0), wall, (2.2, 1.1), far]), [true, false]);
        assert_eq!(first([below, (0.52, 1.4), (2.2, 1.1), far]), [true, false]);
    }

    #[test]
    fn what_was_not_measured_holds_for_nothing() {
        let verdicts = judge(&Figure::of_lines([]));
        assert!(verdicts.iter().all(|verdict| !verdict.holds));
    }
}
