//! Batch and individual clipping, layerwise and full gradient clipping.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, figures 4 and 18.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::BatchPolicyName;

use super::figure::{Figure, Findings, Verdict};
use super::layerwise::{BATCH, Setting};
use super::layerwise_curves::{curves, line};
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
        let runs = curves(&mut measured, &setting, name, |data| {
            let noise = if is_split { setting.split(data)? } else { 1.0 };
            let mut settings = setting.private(policy, noise)?;
            if individual {
                (settings.mini_sets.mini_set_size, settings.mini_sets.mini_sets) = (1, BATCH);
            }
            Ok(settings)
        })?;
        let (line, end) = line(name, &runs);
        series.push(line);
        ends.push(end);
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
