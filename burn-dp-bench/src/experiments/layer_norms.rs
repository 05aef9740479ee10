//! The norms of the gradients of the layers while a network is trained without privacy.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, section 3.3 and figure 1.

use burn::tensor::Device;
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::layerwise::{Ordinary, Setting};
use super::measured::{FigureOptions, Measured};

pub(super) const NAME: &str = "layer-norms";

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = Setting::of(&measured)?;
    let seeds = measured.seeds.clone();
    measured.expect(seeds.len());
    let mut runs: Vec<Ordinary> = Vec::new();
    for &seed in &seeds {
        let data = setting.data(&measured, seed)?;
        let run = |device: &Device| setting.ordinary(&data, seed, device);
        runs.push(measured.measure(&format!("{setting:?}, {seed}"), run)?);
    }
    let layers = runs[0].layers.clone();
    let series: Vec<FigureSeries> = (layers.iter().enumerate())
        .map(|(layer, name)| {
            let points = (0..=setting.epochs).filter_map(|epoch| {
                let norms: Vec<f64> = runs.iter().map(|run| run.norms[epoch][layer]).collect();
                FigurePoint::of(epoch as f64, &norms)
            });
            FigureSeries { name: name.clone(), points: points.collect() }
        })
        .collect();
    let last: Vec<f64> = series.iter().map(|layer| layer.points[setting.epochs].y).collect();
    let largest = last.iter().copied().fold(0.0, f64::max);
    let smallest = last.iter().copied().fold(f64::INFINITY, f64::min);
    // The change from one epoch to the next, after the first one.
    let mut changes: Vec<f64> = (series.iter())
        .flat_map(|layer| layer.points[1..].windows(2))
        .map(|pair| (pair[1].y / pair[0].y).ln().abs())
        .collect();
    changes.sort_by(f64::total_cmp);
    let change = changes[changes.len() / 2].exp();
    let verdicts = vec![
        Verdict::new(
            "The norms of the layers differ by an order of magnitude.",
            largest > 10.0 * smallest,
            [("largest", largest), ("smallest", smallest)],
        ),
        Verdict::new(
            "The median change of a layer's norm from one epoch to the next is less than a \
             quarter.",
            change < 1.25,
            [("median factor from one epoch to the next", change)],
        ),
    ];
    measured.finish(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, figure 1".into(),
        setting: format!(
            "{}, without privacy, {} seeds. Norms of the gradients of public mini-sets.",
            setting.sentence(),
            seeds.len()
        ),
        labels: ["Norms of the layers", "epoch", "norm of the gradient"].map(String::from),
        series,
        verdicts,
    })
}
