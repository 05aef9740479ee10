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

use super::figure::{Figure, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};

pub(super) const NAME: &str = "tan-privacy";

/// The setting of the paper: ImageNet with δ = 8e-7, and the η of ε_TAN = 1 and 8.
const DELTA: f64 = 8e-7;
const ETAS: [(f64, f64); 2] = [(0.13, 1.0), (0.95, 8.0)];
const STEPS: u64 = 18_000;

/// The σ below which ε explodes ("privacy wall"), by eye from the paper's figure.
const WALL: f64 = 0.5;

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let points = if measured.quick() { 16 } else { 48 };
    // From σ = 0.35 to 8, evenly spaced in the logarithm.
    let sigmas: Vec<f64> = (0..points)
        .map(|i| 0.35 * (8.0f64 / 0.35).powf(f64::from(i) / f64::from(points - 1)))
        .collect();
    measured.expect(ETAS.len() * sigmas.len());
    let (mut series, mut verdicts) = (Vec::new(), Vec::new());
    for (eta, tan) in ETAS {
        let (mut exact, mut rdp) = (Vec::new(), Vec::new());
        for &sigma in &sigmas {
            let [by_integral, by_divergence] = measured
                .measure(&format!("eta {eta}, sigma {sigma:.4}"), |_| epsilons(eta, sigma))?;
            exact.push((sigma, by_integral));
            rdp.push((sigma, by_divergence));
        }
        let total = TotalAmountOfNoise::new(probability(eta, 1.0), 1.0, STEPS);
        let total = total.map_err(DpError::from)?;
        let approximate = total.approximate_epsilon(DELTA).map_err(DpError::from)?;
        let far = exact.iter().filter(|(sigma, _)| *sigma >= TAN_APPROXIMATION_LIMIT);
        let (least, most) = far.fold((f64::INFINITY, 0.0f64), |(low, high), (_, epsilon)| {
            (low.min(*epsilon), high.max(*epsilon))
        });
        verdicts.push(Verdict::new(
            format!(
                "At η = {eta}, ε hardly depends on σ for σ ≥ {TAN_APPROXIMATION_LIMIT}: it changes \
                 by less than 15 %."
            ),
            most < 1.15 * least,
            [("smallest ε", least), ("largest ε", most), ("ε_TAN", approximate)],
        ));
        let at = |sigma: f64| {
            let nearest = |point: &&(f64, f64)| (point.0 / sigma).ln().abs();
            exact.iter().min_by(|a, b| nearest(a).total_cmp(&nearest(b))).map_or(f64::NAN, |p| p.1)
        };
        let (low, wall, high) = (at(0.35), at(WALL), at(8.0));
        verdicts.push(Verdict::new(
            format!("At η = {eta}, ε explodes below the wall at σ = {WALL}."),
            low > 2.0 * wall && wall > 1.5 * high,
            [("ε at σ = 0.35", low), ("ε at σ = 0.5", wall), ("ε at σ = 8", high)],
        ));
        let line = |name: &str| format!("{name}, η = {eta}");
        series.push(FigureSeries::exact(line("exact"), exact));
        series.push(FigureSeries::exact(line("Rényi"), rdp));
        let ends = [sigmas[0], sigmas[sigmas.len() - 1]];
        series.push(FigureSeries::exact(line("ε_TAN"), ends.map(|sigma| (sigma, approximate))));
        verdicts.push(Verdict::new(
            format!("η = {eta} corresponds to ε_TAN = {tan}."),
            (approximate - tan).abs() < 0.05 * tan,
            [("ε_TAN", approximate)],
        ));
    }
    // The marks of the paper, from the smallest to the largest ε.
    let all = || series.iter().flat_map(|line| &line.points).map(|point| point.y);
    let ends = [all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max)];
    let mark = |name: &str, sigma: f64| {
        FigureSeries::exact(format!("{name}, σ = {sigma}"), ends.map(|epsilon| (sigma, epsilon)))
    };
    series.extend([mark("wall", WALL), mark("approximation from", TAN_APPROXIMATION_LIMIT)]);
    measured.finish(Findings {
        figure: "TAN Without a Burn, figure 2".into(),
        setting: format!(
            "ε at δ = {DELTA:e} after {STEPS} steps whose sampling probability follows from σ and \
             a constant η. The approximation is meant for σ ≥ {TAN_APPROXIMATION_LIMIT}; the wall \
             is near σ = {WALL}."
        ),
        labels: ["ε at a constant total amount of noise", "σ", "ε"].map(String::from),
        series,
        verdicts,
    })
}

/// Returns the sampling probability of a training run with this η and σ.
fn probability(eta: f64, sigma: f64) -> f64 {
    eta * sigma * (2.0 / STEPS as f64).sqrt()
}

/// Returns ε of the training run with this η and σ: exact, and by Rényi divergences.
fn epsilons(eta: f64, sigma: f64) -> Result<[f64; 2], TrainError> {
    let event = DpEvent::dp_sgd_step(probability(eta, sigma), sigma);
    let relation = NeighboringRelation::AddOrRemoveOne;
    let exact = ExactAccountant::new([(&event, STEPS)], relation).map_err(DpError::from)?;
    let rdp = RdpAccountant::new([(&event, STEPS)], relation).map_err(DpError::from)?;
    let exact = exact.epsilon(DELTA).map_err(DpError::from)?;
    Ok([exact.estimate, rdp.epsilon(DELTA).map_err(DpError::from)?.upper])
}
