//! Batch and individual clipping of networks without BatchNorm, with constant and decaying learning
//! rate and master threshold.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, appendix A.3, figures 15 to 17 and table 3.

use burn_dp_examples::training::batch_clipping::BatchModelName;
use burn_dp_examples::training::{TrainError, typed};

use super::figure::{Figure, Findings};
use super::layerwise::{BATCH, Setting, prefixes};
use super::layerwise_curves::{curves, line};
use super::measured::Measured;
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "layerwise-schedules";

/// Images of the quick preset to train and to test on.
const QUICK: [usize; 2] = [2_000, 2_000];

/// Factor of a learning rate or a threshold that decays, after each epoch.
const DECAY: f64 = 0.9;

/// Factors of the learning rate and of the master threshold after each epoch.
const SCHEDULES: [(&str, f64, f64); 4] = [
    ("constant", 1.0, 1.0),
    ("C decays", 1.0, DECAY),
    ("rate decays", DECAY, 1.0),
    ("both decay", DECAY, DECAY),
];

/// What is clipped: a mini-set, or each image.
const SETS: &str = "BC";
const IMAGES: &str = "IC";
const CLIPPINGS: [&str; 2] = [SETS, IMAGES];

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let mut setting = Setting::of(measured)?;
    if measured.quick() {
        setting.images = QUICK;
    }
    let models = match setting.model {
        BatchModelName::BnResnet18 => vec![BatchModelName::Convnet, BatchModelName::Resnet18],
        model => vec![model.other()],
    };
    measured.expect(models.len() * 2 * SCHEDULES.len() * measured.seeds.len());
    let mut series = Vec::new();
    for &model in &models {
        let setting = Setting { model, ..setting.clone() };
        let of = if models.len() > 1 { format!("{}: ", typed(model)) } else { String::new() };
        for (schedule, rate, threshold) in SCHEDULES {
            for clipping in CLIPPINGS {
                let name = format!("{of}{clipping}, {schedule}");
                let runs = curves(measured, &setting, &name, |data| {
                    let mut settings = setting.layerwise(data)?;
                    settings.mini_sets.lr_decay = rate;
                    settings.threshold_decay = threshold;
                    if clipping == IMAGES {
                        let mini_sets = &mut settings.mini_sets;
                        (mini_sets.mini_set_size, mini_sets.mini_sets) = (1, BATCH);
                    }
                    Ok(settings)
                })?;
                series.push(line(&name, &runs));
            }
        }
    }
    Ok(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, figures 15 to 17".into(),
        setting: format!(
            "{}, or a constant one, C = {}, constant or times {DECAY} after each epoch, σ = {}, \
             ALC with public norms, {} training images, {} seeds. BC: the gradient of a mini-set \
             is clipped; IC: of each image.",
            Setting { model: models[0], ..setting.clone() }.sentence(),
            setting.max_grad_norm,
            setting.sigma,
            setting.images[0],
            measured.seeds.len()
        ),
        labels: ["Schedules without BatchNorm", "epoch", "test accuracy"].map(String::from),
        series,
        facts: Vec::new(),
    })
}

/// Compares the accuracies at the end, of batch and of individual clipping with each schedule.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let first = format!("{SETS}, {}", SCHEDULES[0].0);
    prefixes(figure, &first).into_iter().flat_map(|of| compared(figure, of)).collect()
}

/// Compares the lines of the network whose names begin with `of`.
fn compared(figure: &Figure, of: &str) -> [Verdict; 2] {
    let names = SCHEDULES.map(|(schedule, ..)| CLIPPINGS.map(|what| format!("{what}, {schedule}")));
    let end = |name: &str| figure.end(&format!("{of}{name}"));
    let pairs = names.each_ref().map(|[sets, images]| {
        Above::new((sets.as_str(), end(sets)), (images.as_str(), end(images)))
    });
    let [constant, decaying @ ..] =
        SCHEDULES.map(|(schedule, ..)| (schedule, end(&format!("{SETS}, {schedule}"))));
    [
        Verdict::comparing(
            format!(
                "{of}Without BatchNorm, batch clipping trains better than individual clipping, \
                 with constant and with decaying learning rate and master threshold."
            ),
            &pairs,
        ),
        Verdict::comparing(
            format!(
                "{of}Without BatchNorm, batch clipping is best with a constant learning rate and a \
                 constant master threshold."
            ),
            &decaying.map(|other| Above::new(constant, other)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figure::FigureSeries;
    use super::super::verdict::held;
    use super::*;

    /// The lines of a network, of batch and of individual clipping with each schedule.
    fn lines(of: &str, ends: [[f64; 2]; SCHEDULES.len()]) -> Vec<FigureSeries> {
        let of_schedule = |((schedule, ..), ends): ((&str, f64, f64), [f64; 2])| {
            let line = |(what, end)| {
                FigureSeries::exact(format!("{of}{what}, {schedule}"), [(1.0, 0.1), (2.0, end)])
            };
            CLIPPINGS.into_iter().zip(ends).map(line).collect::<Vec<_>>()
        };
        SCHEDULES.into_iter().zip(ends).flat_map(of_schedule).collect()
    }

    #[test]
    fn each_schedule_is_compared_with_the_constant_one_and_with_single_images() {
        let holds = |ends| {
            let verdicts = judge(&Figure::of_lines(lines("", ends)));
            held(&verdicts)
        };
        let ends = [[0.4, 0.2], [0.35, 0.2], [0.3, 0.2], [0.3, 0.1]];
        assert_eq!(holds(ends), [true, true]);
        for schedule in 0..4 {
            let mut ends = ends;
            ends[schedule][1] = 0.45;
            assert_eq!(holds(ends), [false, true], "{schedule}");
            ends[schedule][1] = f64::NAN;
            assert_eq!(holds(ends), [false, true], "{schedule}");
        }
        for schedule in 1..4 {
            let mut ends = ends;
            ends[schedule][0] = 0.5;
            assert_eq!(holds(ends), [true, false], "{schedule}");
        }
    }

    #[test]
    fn each_network_has_its_own_verdicts() {
        let small = lines("convnet: ", [[0.4, 0.2], [0.3, 0.2], [0.3, 0.2], [0.3, 0.2]]);
        let deep = lines("resnet18: ", [[0.2, 0.4], [0.1, 0.4], [0.1, 0.4], [0.1, 0.4]]);
        let verdicts = judge(&Figure::of_lines(small.into_iter().chain(deep)));
        let of = |verdict: &Verdict| (verdict.claim.starts_with("convnet: "), verdict.holds);
        let expected = [(true, true), (true, true), (false, false), (false, true)];
        assert_eq!(verdicts.iter().map(of).collect::<Vec<_>>(), expected);
    }
}
