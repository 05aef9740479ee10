//! Accuracy against the size and the number of the mini-sets of a step: batch clipping, individual
//! clipping, what is between them, and general batch clipping.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, section 3.1, figures 3, 4, 10 and 12.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::LocalOptimizerName;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::layerwise::{BATCH, Setting};
use super::layerwise_curves::{Curve, curves};
use super::measured::{FigureOptions, Measured};

pub(super) const NAME: &str = "layerwise-mini-sets";

/// Images in a step.
const IMAGES: [usize; 5] = [64, 128, 256, 512, 1024];
const QUICK: [usize; 3] = [16, 64, 256];

/// Local steps of general batch clipping.
const LOCAL_STEPS: usize = 4;

/// Mini-sets of a step, and their update.
struct Line {
    name: &'static str,
    /// Returns the number of mini-sets in a step with this many images.
    mini_sets: fn(usize) -> usize,
    /// Optimizer and learning rate of local steps.
    local: Option<(LocalOptimizerName, f64)>,
    /// Whether the number of images is varied.
    is_sweep: bool,
}

const LINES: [Line; 5] = [
    Line { name: "BC", mini_sets: |_| 1, local: None, is_sweep: true },
    Line { name: "4 mini-sets", mini_sets: |_| 4, local: None, is_sweep: true },
    Line {
        name: "GBC, momentum",
        mini_sets: |_| 1,
        local: Some((LocalOptimizerName::Momentum, 0.05)),
        is_sweep: false,
    },
    Line {
        name: "GBC, Adam",
        mini_sets: |_| 1,
        local: Some((LocalOptimizerName::Adam, 0.001)),
        is_sweep: false,
    },
    Line { name: "IC", mini_sets: |images| images, local: None, is_sweep: false },
];

impl Line {
    /// Returns the numbers of images that are measured, of those that are varied.
    fn images(&self, varied: &[usize]) -> Vec<usize> {
        let measured = |images: &usize| self.is_sweep || *images == BATCH;
        varied.iter().copied().filter(measured).collect()
    }
}

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = Setting::of(&measured)?;
    let varied = if measured.quick() { &QUICK[..] } else { &IMAGES[..] };
    let trainings: usize = LINES.iter().map(|line| line.images(varied).len()).sum();
    measured.expect(trainings * measured.seeds.len());
    let mut series = Vec::new();
    for line in LINES {
        let mut points = Vec::new();
        for images in line.images(varied) {
            let name = format!("{}, {images} images", line.name);
            let runs = curves(&mut measured, &setting, &name, |data| {
                let mut settings = setting.layerwise(data)?;
                let mini_sets = &mut settings.mini_sets;
                mini_sets.mini_sets = (line.mini_sets)(images);
                mini_sets.mini_set_size = images / mini_sets.mini_sets;
                if let Some((optimizer, lr)) = line.local {
                    mini_sets.local_steps = Some(LOCAL_STEPS);
                    mini_sets.local_optimizer = optimizer;
                    settings.local_lr = lr;
                }
                Ok(settings)
            })?;
            let accuracies: Vec<f64> = runs.iter().filter_map(Curve::accuracy).collect();
            points.extend(FigurePoint::of(images as f64, &accuracies));
        }
        series.push(FigureSeries { name: line.name.into(), points });
    }
    let verdicts = vec![smaller(&series[0].points), of_sets(&series)];
    measured.finish(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, section 3.1: mini-sets".into(),
        setting: format!(
            "{}, C = {}, σ = {}, ALC with public norms, {} seeds, unless it is varied. A step of m \
             images has one mini-set (BC, and GBC with {LOCAL_STEPS} local steps), four, or m of \
             one image (IC).",
            setting.sentence(),
            setting.max_grad_norm,
            setting.sigma,
            measured.seeds.len()
        ),
        labels: ["Size and number of mini-sets", "images in a step", "test accuracy"]
            .map(String::from),
        series,
        verdicts,
    })
}

/// Compares the smallest with the largest mini-sets of batch clipping.
fn smaller(points: &[FigurePoint]) -> Verdict {
    let ends = [points[0], points[points.len() - 1]];
    let [small, large] = ends.map(|end| format!("{} images", end.x));
    Verdict::new(
        "With the same number of epochs, batch clipping trains better with small mini-sets than \
         with large ones (figures 3, 10 and 12).",
        ends[0].y > ends[1].y,
        [(small.as_str(), ends[0].y), (large.as_str(), ends[1].y)],
    )
}

/// Compares all other lines with individual clipping, the last one, at [`BATCH`] images.
fn of_sets(lines: &[FigureSeries]) -> Verdict {
    let at = |line: &FigureSeries| line.at(BATCH as f64).unwrap_or(f64::NAN);
    let accuracies: Vec<(&str, f64)> =
        lines.iter().map(|line| (line.name.as_str(), at(line))).collect();
    let holds = accuracies.split_last().is_some_and(|((_, individual), others)| {
        others.iter().all(|(_, accuracy)| accuracy > individual)
    });
    Verdict::new(
        format!(
            "With BatchNorm and {BATCH} images in a step, updates of mini-sets train better than \
             updates of single images: as gradients, and as the change of several steps of an \
             optimizer (sections 3.1 and 4.3)."
        ),
        holds,
        accuracies,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_mini_sets_are_compared_with_large_ones() {
        let holds = |large| {
            let points = [(16.0, 0.9), (64.0, 0.95), (256.0, large)];
            smaller(&points.map(|(x, y)| FigurePoint::exact(x, y))).holds
        };
        assert!(holds(0.8) && !holds(0.92));
    }

    #[test]
    fn every_kind_of_mini_sets_has_to_be_better_than_single_images() {
        let holds = |general, individual| {
            let line = |name: &str, y| FigureSeries::exact(name, [(16.0, 0.99), (BATCH as f64, y)]);
            of_sets(&[line("BC", 0.9), line("GBC", general), line("IC", individual)]).holds
        };
        assert!(holds(0.8, 0.1));
        assert!(!holds(0.1, 0.2) && !holds(0.8, 0.95) && !holds(0.8, f64::NAN));
    }

    #[test]
    fn a_step_has_the_same_images_with_any_mini_sets() {
        for line in LINES {
            for images in [line.images(&IMAGES), line.images(&QUICK)] {
                assert!(images.contains(&BATCH), "{}", line.name);
                for images in images {
                    assert_eq!(images % (line.mini_sets)(images), 0, "{} {images}", line.name);
                }
            }
        }
    }
}
