//! Accuracy of batch clipping with layerwise clipping against σ and C, with and without BatchNorm.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, figures 5 to 7, 9 and 11 to 14.

use burn::tensor::Device;
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::layerwise::{Ordinary, Setting};
use super::layerwise_curves::{Curve, curves};
use super::measured::{FigureOptions, Measured};

pub(super) const NOISE: &str = "layerwise-noise";
pub(super) const THRESHOLD: &str = "layerwise-threshold";
pub(super) const BATCH_NORM: &str = "batch-norm";

/// Factors of σ and of C.
const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// Measures the accuracies of private training, one for each seed.
fn accuracies(measured: &mut Measured, setting: &Setting) -> Result<Vec<f64>, TrainError> {
    let runs = curves(measured, setting, "private", |data| setting.layerwise(data))?;
    Ok(runs.iter().filter_map(Curve::accuracy).collect())
}

/// Measures ordinary training, once for each seed.
fn ordinary(measured: &mut Measured, setting: &Setting) -> Result<Vec<Ordinary>, TrainError> {
    let mut found = Vec::new();
    for seed in measured.seeds.clone() {
        let data = setting.data(measured, seed)?;
        let run = |device: &Device| setting.ordinary(&data, seed, device);
        found.push(measured.measure(&format!("ordinary, {setting:?}, {seed}"), run)?);
    }
    Ok(found)
}

/// Runs a sweep over [`FACTORS`] of one value of the setting.
fn sweep(
    measured: &mut Measured,
    setting: &Setting,
    value: impl Fn(&mut Setting) -> &mut f64,
) -> Result<Vec<FigurePoint>, TrainError> {
    let mut points = Vec::new();
    for factor in FACTORS {
        let mut changed = setting.clone();
        *value(&mut changed) *= factor;
        let x = *value(&mut changed);
        points.extend(FigurePoint::of(x, &accuracies(measured, &changed)?));
    }
    Ok(points)
}

/// The figure of a sweep.
fn figure(
    measured: &Measured,
    setting: &Setting,
    [figures, label]: [&str; 2],
    series: Vec<FigureSeries>,
    verdicts: Vec<Verdict>,
) -> Result<Figure, TrainError> {
    measured.finish(Findings {
        figure: format!("Batch clipping and adaptive layerwise clipping, {figures}"),
        setting: format!(
            "{}, C = {}, σ = {}, {} seeds, unless it is varied. BC and ALC with public norms; \
             BatchNorm is tested with statistics of public images, unless they are compared.",
            setting.sentence(),
            setting.max_grad_norm,
            setting.sigma,
            measured.seeds.len()
        ),
        labels: ["Test accuracy", label, "test accuracy"].map(String::from),
        series,
        verdicts,
    })
}

pub(super) fn noise(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NOISE, options)?;
    let setting = Setting::of(&measured)?;
    measured.expect(FACTORS.len() * measured.seeds.len());
    let points = sweep(&mut measured, &setting, |setting| &mut setting.sigma)?;
    let ends = [points[0], points[points.len() - 1]];
    let verdict = Verdict::new(
        "Accuracy falls as σ grows: by more than two points from the smallest to the largest.",
        ends[1].y < ends[0].y - 0.02,
        [("smallest σ", ends[0].y), ("largest σ", ends[1].y)],
    );
    let series = vec![FigureSeries { name: "BC+ALC".into(), points }];
    let words = ["figures 5, 9 and 12", "σ"];
    figure(&measured, &setting, words, series, vec![verdict])
}

pub(super) fn threshold(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(THRESHOLD, options)?;
    let setting = Setting::of(&measured)?;
    measured.expect(FACTORS.len() * measured.seeds.len());
    let points = sweep(&mut measured, &setting, |setting| &mut setting.max_grad_norm)?;
    let best = points.iter().map(|point| point.y).fold(0.0, f64::max);
    // Neighbors on the grid.
    let is_near = |point: &FigurePoint| point.y > best - 0.05;
    let near = points.chunk_by(|a, b| is_near(a) && is_near(b)).map(<[_]>::len).max();
    let near = near.unwrap_or_default();
    let verdict = Verdict::new(
        "There is a range of C, at least a factor of two, in which accuracy is within five points \
         of the best.",
        near >= 2,
        [("best", best), ("values of C in a row within five points", near as f64)],
    );
    let series = vec![FigureSeries { name: "BC+ALC".into(), points }];
    let words = ["figures 6, 7, 9 and 11", "C"];
    figure(&measured, &setting, words, series, vec![verdict])
}

pub(super) fn batch_norm(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(BATCH_NORM, options)?;
    let setting = Setting::of(&measured)?;
    measured.expect(4 * measured.seeds.len());
    let without = Setting { model: setting.model.other(), ..setting.clone() };
    let (mut running, mut public, mut private) = (Vec::new(), Vec::new(), Vec::new());
    for (x, setting) in [(0.0, &without), (1.0, &setting)] {
        let runs = ordinary(&mut measured, setting)?;
        let point = |accuracy: fn(&Ordinary) -> f64| {
            FigurePoint::of(x, &runs.iter().map(accuracy).collect::<Vec<_>>())
        };
        running.extend(point(|run| run.running_accuracy));
        public.extend(point(|run| run.public_accuracy));
        private.extend(FigurePoint::of(x, &accuracies(&mut measured, setting)?));
    }
    let verdicts = vec![
        raises("BatchNorm raises the accuracy of ordinary training.", &running),
        raises("BatchNorm raises the accuracy of private training by batch clipping.", &private),
        serves(running[1].y, public[1].y),
    ];
    let line = |name: &str, points| FigureSeries { name: name.into(), points };
    let series = vec![
        line("ordinary, running statistics", running),
        line("ordinary, statistics from public images", public),
        line("BC+ALC", private),
    ];
    let words = ["figures 13 and 14", "BatchNorm (0 without, 1 with)"];
    figure(&measured, &setting, words, series, verdicts)
}

/// Compares the network without BatchNorm, the first point, with the network that has it.
fn raises(claim: &str, points: &[FigurePoint]) -> Verdict {
    let [without, with] = [points[0].y, points[1].y];
    Verdict::new(claim, with > without, [("with BatchNorm", with), ("without", without)])
}

/// Compares the statistics with which a network with BatchNorm is tested.
fn serves(running: f64, public: f64) -> Verdict {
    Verdict::new(
        "Statistics of public images can replace the running statistics of the training, which the \
         proof does not cover: ordinary training loses less than a point.",
        public > running - 0.01,
        [("running statistics", running), ("statistics of public images", public)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_with_batch_norm_has_to_be_better() {
        let holds = |with| {
            let points = [(0.0, 0.8), (1.0, with)].map(|(x, y)| FigurePoint::exact(x, y));
            raises("", &points).holds
        };
        assert!(holds(0.85));
        assert!(!holds(0.8) && !holds(0.7));
    }

    #[test]
    fn public_statistics_may_lose_less_than_a_point() {
        assert!(serves(0.9, 0.895).holds && serves(0.9, 0.95).holds);
        assert!(!serves(0.9, 0.885).holds && !serves(0.9, 0.2).holds);
    }
}
