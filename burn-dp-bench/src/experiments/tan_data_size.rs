//! ε against the size of the data set, with everything else constant.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! section 4 (impact of the data set size).

use burn_dp::DpError;
use burn_dp_accountant::{Accountant, DpEvent, ExactAccountant, NeighboringRelation};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};

pub(super) const NAME: &str = "tan-data-size";

/// The paper's training run on ImageNet.
const BATCH: f64 = 32_768.0;
const SIGMA: f64 = 2.5;
const STEPS: u64 = 18_000;
const SIZE: f64 = 1_281_167.0;
const DELTA: f64 = 8e-7;

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let factors: Vec<f64> =
        (0..if measured.quick() { 6 } else { 9 }).map(|i| 2f64.powi(i)).collect();
    measured.expect(factors.len());
    let mut points = Vec::new();
    for &factor in &factors {
        let name = format!("{factor} times the data");
        points.push((factor, measured.measure(&name, |_| epsilon(SIZE * factor))?));
    }
    let ratios = points.windows(2).map(|pair| pair[0].1 / pair[1].1);
    let (least, most) =
        ratios.fold((f64::INFINITY, 0.0f64), |(low, high), r| (low.min(r), high.max(r)));
    let halved =
        points.iter().map(|&(factor, _)| (factor, points[0].1 / factor)).collect::<Vec<_>>();
    measured.finish(Findings {
        figure: "TAN Without a Burn, section 4: the size of the data set".into(),
        setting: format!(
            "B = {BATCH}, σ = {SIGMA}, {STEPS} steps, δ = {DELTA:e}; the data set is a multiple of \
             ImageNet."
        ),
        labels: ["ε and the size of the data set", "times the data", "ε"].map(String::from),
        verdicts: vec![Verdict::new(
            "Twice the data about halves ε, with the same batch size, noise and number of steps.",
            least > 1.8 && most < 2.3,
            [("smallest ratio", least), ("largest ratio", most)],
        )],
        series: vec![
            FigureSeries::exact("exact ε", points),
            FigureSeries::exact("halved with each doubling", halved),
        ],
    })
}

fn epsilon(size: f64) -> Result<f64, TrainError> {
    let event = DpEvent::dp_sgd_step(BATCH / size, SIGMA);
    let relation = NeighboringRelation::AddOrRemoveOne;
    let exact = ExactAccountant::new([(&event, STEPS)], relation).map_err(DpError::from)?;
    Ok(exact.epsilon(DELTA).map_err(DpError::from)?.estimate)
}
