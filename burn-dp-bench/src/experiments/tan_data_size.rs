//! ε against the size of the data set, with everything else constant.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! section 4 (impact of the data set size).

use burn_dp::DpError;
use burn_dp_accountant::{Accountant, DpEvent, ExactAccountant, NeighboringRelation};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigureSeries, Findings};
use super::measured::Measured;
use super::verdict::Verdict;

pub(super) const NAME: &str = "tan-data-size";

/// The paper's training run on ImageNet.
const BATCH: f64 = 32_768.0;
const SIGMA: f64 = 2.5;
const STEPS: u64 = 18_000;
const SIZE: f64 = 1_281_167.0;
const DELTA: f64 = 8e-7;

/// The measured line.
const EXACT: &str = "exact ε";

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let factors: Vec<f64> =
        (0..if measured.quick() { 6 } else { 9 }).map(|i| 2f64.powi(i)).collect();
    measured.expect(factors.len());
    let mut points = Vec::new();
    for &factor in &factors {
        let name = format!("{factor} times the data");
        points.push((factor, measured.measure(&name, |_| epsilon(SIZE * factor))?));
    }
    let halved =
        points.iter().map(|&(factor, _)| (factor, points[0].1 / factor)).collect::<Vec<_>>();
    Ok(Findings {
        figure: "TAN Without a Burn, section 4: the size of the data set".into(),
        setting: format!(
            "B = {BATCH}, σ = {SIGMA}, {STEPS} steps, δ = {DELTA:e}; the data set is a multiple of \
             ImageNet."
        ),
        labels: ["ε and the size of the data set", "times the data", "ε"].map(String::from),
        series: vec![
            FigureSeries::exact(EXACT, points),
            FigureSeries::exact("halved with each doubling", halved),
        ],
        facts: Vec::new(),
    })
}

/// Compares each ε with the one for twice the data.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let ratios = figure.line(EXACT).windows(2).map(|pair| pair[0].y / pair[1].y);
    let (least, most) =
        ratios.fold((f64::INFINITY, 0.0f64), |(low, high), r| (low.min(r), high.max(r)));
    vec![Verdict::new(
        "Twice the data about halves ε, with the same batch size, noise and number of steps.",
        1.8 < least && least <= most && most < 2.3,
        [("smallest ratio", least), ("largest ratio", most)],
    )]
}

fn epsilon(size: f64) -> Result<f64, TrainError> {
    let event = DpEvent::dp_sgd_step(BATCH / size, SIGMA);
    let relation = NeighboringRelation::AddOrRemoveOne;
    let exact = ExactAccountant::new([(&event, STEPS)], relation).map_err(DpError::from)?;
    Ok(exact.epsilon(DELTA).map_err(DpError::from)?.estimate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_doubling_has_to_halve_epsilon() {
        let holds = |epsilons: &[f64]| {
            let points = (0..).map(f64::from).zip(epsilons.iter().copied());
            judge(&Figure::of_lines([FigureSeries::exact(EXACT, points)]))[0].holds
        };
        assert!(holds(&[8.0, 3.7, 1.8]));
        assert!(!holds(&[8.0, 3.7, 3.0]) && !holds(&[8.0, 3.0, 1.4]) && !holds(&[]));
    }
}
