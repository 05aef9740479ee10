//! Batch and individual clipping, layerwise and full gradient clipping.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, figures 4 and 18.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::BatchPolicyName;

use super::figure::{Figure, Findings};
use super::layerwise::{BATCH, Setting};
use super::layerwise_curves::{curves, line};
use super::measured::Measured;
use super::verdict::{Above, Verdict};

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

    /// Clips layers of mini-sets, or of each image.
    const fn layerwise(name: &'static str, individual: bool, batch_norm: bool) -> Self {
        let policy = BatchPolicyName::Layerwise;
        Self { name, policy, is_split: true, individual, batch_norm }
    }
}

const CONTENDERS: [Contender; 7] = [
    Contender::layerwise("BC+ALC", false, true),
    Contender::of_sets("BC+ALC of Zhang et al.", BatchPolicyName::Zhang, true),
    Contender::of_sets("BC+FGC, same noise", BatchPolicyName::Flat, false),
    Contender::of_sets("BC+FGC, same privacy", BatchPolicyName::Flat, true),
    Contender::layerwise("IC+ALC", true, true),
    Contender::layerwise("BC+ALC without BatchNorm", false, false),
    Contender::layerwise("IC+ALC without BatchNorm", true, false),
];

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = Setting::of(measured)?;
    measured.expect(CONTENDERS.len() * measured.seeds.len());
    let mut series = Vec::new();
    for Contender { name, policy, is_split, individual, batch_norm } in CONTENDERS {
        let mut setting = setting.clone();
        if !batch_norm {
            setting.model = setting.model.other();
        }
        let runs = curves(measured, &setting, name, |data| {
            let noise = if is_split { setting.split(data)? } else { 1.0 };
            let mut settings = setting.private(policy, noise)?;
            if individual {
                (settings.mini_sets.mini_set_size, settings.mini_sets.mini_sets) = (1, BATCH);
            }
            Ok(settings)
        })?;
        series.push(line(name, &runs));
    }
    Ok(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, figures 4 and 18".into(),
        setting: format!(
            "{}, C = {}, σ = {}, {} seeds. BC: the gradient of a mini-set is clipped; IC: of each \
             image, so that BatchNorm sees one, and is tested with statistics of public batches. \
             ALC: each layer is clipped, to a threshold that follows public norms; FGC: the whole \
             gradient.",
            setting.sentence(),
            setting.max_grad_norm,
            setting.sigma,
            measured.seeds.len()
        ),
        labels: ["Test accuracy", "epoch", "test accuracy"].map(String::from),
        series,
        facts: Vec::new(),
    })
}

/// Compares the accuracies at the end.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let [layerwise, zhang, same_noise, same_privacy, images, sets_without, images_without] =
        CONTENDERS.map(|contender| figure.end(contender.name));
    let against = |claim: &str, name, other| {
        Verdict::comparing(claim, &[Above::new(("BC+ALC", layerwise), (name, other))])
    };
    vec![
        against(
            "With BatchNorm, batch clipping trains better than individual clipping.",
            "IC+ALC",
            images,
        ),
        Verdict::comparing(
            "Without BatchNorm, batch clipping trains better than individual clipping, too.",
            &[Above::new(("BC+ALC", sets_without), ("IC+ALC", images_without))],
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
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figure::FigureSeries;
    use super::super::verdict::held;
    use super::*;

    #[test]
    fn each_claim_compares_its_contenders() {
        let holds = |ends: [f64; 7]| {
            let lines = CONTENDERS.iter().zip(ends);
            let line = |(contender, end): (&Contender, f64)| {
                FigureSeries::exact(contender.name, [(1.0, 0.1), (2.0, end)])
            };
            let verdicts = judge(&Figure::of_lines(lines.map(line)));
            held(&verdicts)
        };
        let ends = [0.9, 0.8, 0.8, 0.8, 0.8, 0.6, 0.5];
        assert_eq!(holds(ends), [true; 5]);
        for (claim, better) in [(0, 4), (1, 6), (2, 1), (3, 2), (4, 3)] {
            let mut ends = ends;
            ends[better] = 0.95;
            let expected = [0, 1, 2, 3, 4].map(|other| other != claim);
            assert_eq!(holds(ends), expected, "{better}");
        }
    }
}
