//! Batch and individual clipping of networks without BatchNorm, with constant and decaying learning
//! rate and master threshold.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, appendix A.3, figures 15 to 17 and table 3.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::BatchModelName;

use super::figure::{Figure, Findings, Verdict};
use super::layerwise::{BATCH, Setting};
use super::layerwise_curves::{curves, line};
use super::measured::{FigureOptions, Measured};

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

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let mut setting = Setting::of(&measured)?;
    if measured.quick() {
        setting.images = QUICK;
    }
    let models = match setting.model {
        BatchModelName::BnResnet18 => vec![BatchModelName::Convnet, BatchModelName::Resnet18],
        model => vec![model.other()],
    };
    measured.expect(models.len() * 2 * SCHEDULES.len() * measured.seeds.len());
    let (mut series, mut verdicts) = (Vec::new(), Vec::new());
    for &model in &models {
        let setting = Setting { model, ..setting.clone() };
        let of_model = if models.len() > 1 { format!("{model:?}, ") } else { String::new() };
        let mut ends = [[f64::NAN; 2]; SCHEDULES.len()];
        for ((schedule, rate, threshold), ends) in SCHEDULES.into_iter().zip(&mut ends) {
            for (clipping, end) in ["BC", "IC"].into_iter().zip(ends) {
                let name = format!("{of_model}{clipping}, {schedule}");
                let runs = curves(&mut measured, &setting, &name, |data| {
                    let mut settings = setting.layerwise(data)?;
                    settings.mini_sets.lr_decay = rate;
                    settings.threshold_decay = threshold;
                    if clipping == "IC" {
                        let mini_sets = &mut settings.mini_sets;
                        (mini_sets.mini_set_size, mini_sets.mini_sets) = (1, BATCH);
                    }
                    Ok(settings)
                })?;
                let (line, accuracy) = line(&name, &runs);
                series.push(line);
                *end = accuracy;
            }
        }
        verdicts.extend(compared(&of_model, ends));
    }
    measured.finish(Findings {
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
        verdicts,
    })
}

/// Compares the accuracies at the end, of batch and of individual clipping with each schedule.
fn compared(of_model: &str, ends: [[f64; 2]; SCHEDULES.len()]) -> [Verdict; 2] {
    let names = SCHEDULES.map(|(name, ..)| name);
    let pairs = names.into_iter().zip(ends);
    let numbers: Vec<(String, f64)> = (pairs.clone())
        .flat_map(|(name, [sets, images])| {
            [(format!("BC, {name}"), sets), (format!("IC, {name}"), images)]
        })
        .collect();
    let [constant, decaying @ ..] = ends.map(|[sets, _]| sets);
    [
        Verdict::new(
            format!(
                "{of_model}Without BatchNorm, batch clipping trains better than individual \
                 clipping, with constant and with decaying learning rate and master threshold."
            ),
            ends.iter().all(|[sets, images]| sets > images),
            numbers.iter().map(|(name, accuracy)| (name.as_str(), *accuracy)),
        ),
        Verdict::new(
            format!(
                "{of_model}Without BatchNorm, batch clipping is best with a constant learning rate \
                 and a constant master threshold."
            ),
            decaying.iter().all(|other| constant > *other),
            pairs.map(|(name, [sets, _])| (name, sets)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_schedule_is_compared_with_the_constant_one_and_with_single_images() {
        let holds = |ends| compared("", ends).map(|verdict| verdict.holds);
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
}
