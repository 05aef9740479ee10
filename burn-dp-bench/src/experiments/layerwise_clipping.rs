//! Batch and individual clipping, layerwise and full gradient clipping.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, figures 4 and 18.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::BatchPolicyName;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::layerwise::Setting;
use super::measured::{FigureOptions, Measured};

pub(super) const NAME: &str = "layerwise-clipping";

/// A way to clip.
struct Contender {
    name: &'static str,
    policy: BatchPolicyName,
    /// Whether the noise is divided by √L.
    is_split: bool,
    /// Whether images are clipped individually.
    individual: bool,
    batch_norm: bool,
}

impl Contender {
    /// Clips mini-sets of a network with BatchNorm.
    const fn of_sets(name: &'static str, policy: BatchPolicyName, is_split: bool) -> Self {
        Self { name, policy, is_split, individual: false, batch_norm: true }
    }

    /// Clips each image.
    const fn of_images(name: &'static str, batch_norm: bool) -> Self {
        let policy = BatchPolicyName::Layerwise;
        Self { name, policy, is_split: true, individual: true, batch_norm }
    }
}

const CONTENDERS: [Contender; 6] = [
    Contender::of_sets("BC+ALC", BatchPolicyName::Layerwise, true),
    Contender::of_sets("BC+ALC of Zhang et al.", BatchPolicyName::Zhang, true),
    Contender::of_sets("BC+FGC, same noise", BatchPolicyName::Flat, false),
    Contender::of_sets("BC+FGC, same privacy", BatchPolicyName::Flat, true),
    Contender::of_images("IC+ALC", true),
    Contender::of_images("IC+ALC without BatchNorm", false),
];

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = Setting::of(&measured)?;
    let seeds = measured.seeds.clone();
    measured.expect(CONTENDERS.len() * seeds.len());
    let (mut series, mut ends) = (Vec::new(), Vec::new());
    for Contender { name, policy, is_split, individual, batch_norm } in CONTENDERS {
        let mut setting = setting.clone();
        if !batch_norm {
            setting.model = setting.model.other();
        }
        // Accuracy after each epoch, for each seed.
        let mut runs: Vec<Vec<f64>> = Vec::new();
        for &seed in &seeds {
            let data = setting.data(&measured, seed)?;
            let layers = setting.layers(&data)? as f64;
            let noise = if is_split { 1.0 / layers.sqrt() } else { 1.0 };
            let run = || -> Result<Vec<f64>, TrainError> {
                let figures = setting.train(policy, noise, individual, &data, seed)?;
                Ok(figures.epochs.iter().map(|epoch| epoch.test_accuracy).collect())
            };
            runs.push(measured.measure(&format!("{name}, {setting:?}, {seed}"), run)?);
        }
        let points: Vec<FigurePoint> = (0..setting.epochs)
            .filter_map(|epoch| {
                let values: Vec<f64> =
                    runs.iter().filter_map(|run| run.get(epoch).copied()).collect();
                FigurePoint::of((epoch + 1) as f64, &values)
            })
            .collect();
        ends.push(points.last().map_or(f64::NAN, |point| point.y));
        series.push(FigureSeries { name: name.into(), points });
    }
    let [layerwise, zhang, same_noise, same_privacy, individual, without] = ends[..] else {
        return Err(TrainError::option("--seeds", "left a contender without a run"));
    };
    let against = |claim: &str, name, other: f64| {
        Verdict::new(claim, layerwise > other, [("BC+ALC", layerwise), (name, other)])
    };
    let verdicts = vec![
        Verdict::new(
            "Batch clipping trains better than individual clipping, with or without BatchNorm.",
            layerwise > individual.max(without),
            [("BC+ALC", layerwise), ("IC+ALC", individual), ("without BatchNorm", without)],
        ),
        against(
            "A master threshold is better than the layers' own norms as thresholds.",
            "Zhang et al.",
            zhang,
        ),
        against(
            "Layerwise clipping is better than full gradient clipping with the same σ.",
            "FGC",
            same_noise,
        ),
        against(
            "Layerwise clipping is better than full gradient clipping also with the same privacy.",
            "FGC",
            same_privacy,
        ),
    ];
    measured.finish(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, figures 4 and 18".into(),
        setting: format!(
            "{}, C = {}, σ = {}, {} seeds. BC: the gradient of a mini-set is clipped; IC: of each \
             image, so that BatchNorm has one. ALC: each layer is clipped, to a threshold that \
             follows public norms; FGC: the whole gradient.",
            setting.sentence(),
            setting.max_grad_norm,
            setting.sigma,
            seeds.len()
        ),
        labels: ["Test accuracy", "epoch", "test accuracy"].map(String::from),
        series,
        verdicts,
    })
}
