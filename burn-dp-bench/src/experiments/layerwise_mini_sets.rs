//! Accuracy against the size and the number of the mini-sets of a step: batch clipping, individual
//! clipping, what is between them, general batch clipping, and ordinary training.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, section 3.1, figures 2 to 4, 8, 10 and 12.

use burn_dp_examples::training::TrainError;
use burn_dp_examples::training::batch_clipping::LocalOptimizerName;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::layerwise::{BATCH, Setting, prefixes};
use super::layerwise_curves::{Curve, curves};
use super::layerwise_ordinary as ordinary;
use super::measured::Measured;
use super::verdict::{Above, Verdict};

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

/// Names of lines that are compared.
const BATCHES: &str = "BC";
const SINGLE: &str = "IC";
const ORDINARY: &str = "ordinary";

const LINES: [Line; 5] = [
    Line { name: BATCHES, mini_sets: |_| 1, local: None, is_sweep: true },
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
    Line { name: SINGLE, mini_sets: |images| images, local: None, is_sweep: false },
];

impl Line {
    /// Returns the numbers of images that are measured, of those that are varied.
    fn images(&self, varied: &[usize]) -> Vec<usize> {
        let measured = |images: &usize| self.is_sweep || *images == BATCH;
        varied.iter().copied().filter(measured).collect()
    }
}

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let settings = Setting::all(measured)?;
    let varied = if measured.quick() { &QUICK[..] } else { &IMAGES[..] };
    // Ordinary training does not depend on σ.
    let mut networks = settings.clone();
    networks.dedup_by_key(|setting| setting.model);
    let trainings: usize = LINES.iter().map(|line| line.images(varied).len()).sum();
    let all = settings.len() * trainings + networks.len() * varied.len();
    measured.expect(all * measured.seeds.len());
    let mut series = Vec::new();
    for setting in &settings {
        let of = setting.prefix(&settings);
        for line in &LINES {
            let mut points = Vec::new();
            for images in line.images(varied) {
                let accuracies = line.accuracies(measured, setting, images)?;
                points.extend(FigurePoint::of(images as f64, &accuracies));
            }
            series.push(FigureSeries { name: format!("{of}{}", line.name), points });
        }
    }
    for setting in &networks {
        let mut points = Vec::new();
        for &images in varied {
            let accuracies = ordinary::accuracies(measured, setting, images)?;
            points.extend(FigurePoint::of(images as f64, &accuracies));
        }
        series.push(FigureSeries { name: ordinary_of(&setting.prefix(&settings)), points });
    }
    Ok(Findings {
        figure: "Batch clipping and adaptive layerwise clipping, section 3.1: mini-sets".into(),
        setting: format!(
            "{}, ALC with public norms, {} seeds, unless it is varied. A step of m images has one \
             mini-set (BC, and GBC with {LOCAL_STEPS} local steps), four, or m of one image (IC). \
             Ordinary: SGD without privacy, tested with the running statistics.",
            Setting::sentence_of_all(&settings),
            measured.seeds.len()
        ),
        labels: ["Size and number of mini-sets", "images in a step", "test accuracy"]
            .map(String::from),
        series,
        facts: Vec::new(),
    })
}

impl Line {
    /// Measures the accuracies of private training, one for each seed.
    fn accuracies(
        &self,
        measured: &mut Measured,
        setting: &Setting,
        images: usize,
    ) -> Result<Vec<f64>, TrainError> {
        let name = format!("{}, {images} images", self.name);
        let runs = curves(measured, setting, &name, |data| {
            let mut settings = setting.layerwise(data)?;
            let mini_sets = &mut settings.mini_sets;
            mini_sets.mini_sets = (self.mini_sets)(images);
            mini_sets.mini_set_size = images / mini_sets.mini_sets;
            if let Some((optimizer, lr)) = self.local {
                mini_sets.local_steps = Some(LOCAL_STEPS);
                mini_sets.local_optimizer = optimizer;
                settings.local_lr = lr;
            }
            Ok(settings)
        })?;
        Ok(runs.iter().filter_map(Curve::accuracy).collect())
    }
}

/// Returns the name of the line of ordinary training of the network of a setting.
///
/// # Arguments
///
/// - `of`: what the names of the lines of the setting begin with
fn ordinary_of(of: &str) -> String {
    match of.split_once(", ") {
        Some((network, _)) => format!("{network}: {ORDINARY}"),
        None => ORDINARY.into(),
    }
}

/// Compares sizes of mini-sets, kinds of mini-sets, and private with ordinary training.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for of in prefixes(figure, BATCHES) {
        let claim = format!(
            "{of}With the same number of epochs, batch clipping trains better with small mini-sets \
             than with large ones (figures 3, 10 and 12)."
        );
        verdicts.extend(smaller(claim, figure.line(&format!("{of}{BATCHES}"))));
        verdicts.push(of_sets(figure, of));
        verdicts.extend(below_ordinary(figure, of));
    }
    for of in prefixes(figure, ORDINARY) {
        let claim = format!(
            "{of}Without privacy, too, small mini-batches train better than large ones (figures 2 \
             and 8)."
        );
        verdicts.extend(smaller(claim, figure.line(&format!("{of}{ORDINARY}"))));
    }
    verdicts
}

/// Compares the fewest with the most images in a step.
fn smaller(claim: String, points: &[FigurePoint]) -> Option<Verdict> {
    let [small, .., large] = points else { return None };
    let names = [small, large].map(|end| format!("{} images", end.x));
    let better = Above::new((names[0].as_str(), *small), (names[1].as_str(), *large));
    Some(Verdict::comparing(claim, &[better]))
}

/// Compares all private lines with individual clipping, at [`BATCH`] images.
fn of_sets(figure: &Figure, of: &str) -> Verdict {
    let at = |name: &'static str| (name, figure.at(&format!("{of}{name}"), BATCH as f64));
    let others = LINES.iter().map(|line| line.name).filter(|name| *name != SINGLE);
    let comparisons: Vec<Above<'_>> = others.map(|name| Above::new(at(name), at(SINGLE))).collect();
    let claim = format!(
        "{of}With BatchNorm and {BATCH} images in a step, updates of mini-sets train better than \
         updates of single images: as gradients, and as the change of several steps of an \
         optimizer (sections 3.1 and 4.3)."
    );
    Verdict::comparing(claim, &comparisons)
}

/// Compares batch clipping with ordinary training, where that was measured.
fn below_ordinary(figure: &Figure, of: &str) -> Option<Verdict> {
    let pair = |ordinary: &FigurePoint| {
        let private = figure.at(&format!("{of}{BATCHES}"), ordinary.x);
        [(ORDINARY, *ordinary), (BATCHES, private)]
            .map(|(name, point)| (format!("{name}, {} images", point.x), point))
    };
    let pairs: Vec<[(String, FigurePoint); 2]> =
        figure.line(&ordinary_of(of)).iter().map(pair).collect();
    let comparisons: Vec<Above<'_>> = (pairs.iter())
        .map(|[(above, ordinary), (below, private)]| {
            Above::new((above.as_str(), *ordinary), (below.as_str(), *private))
        })
        .collect();
    let claim = format!(
        "{of}Batch clipping with noise stays below ordinary training with as many images in a step \
         (figures 3 and 10)."
    );
    (!comparisons.is_empty()).then(|| Verdict::comparing(claim, &comparisons))
}

#[cfg(test)]
mod tests {
    use super::super::verdict::held;
    use super::*;

    /// Batch clipping with these accuracies at 16, 64 and 256 images, the other lines with one at
    /// 64.
    fn lines(of: &str, batches: [f64; 3], others: f64, single: f64) -> Vec<FigureSeries> {
        let line = |line: &Line| {
            let name = format!("{of}{}", line.name);
            match line.name {
                BATCHES => FigureSeries::exact(name, [16.0, 64.0, 256.0].into_iter().zip(batches)),
                SINGLE => FigureSeries::exact(name, [(64.0, single)]),
                _ => FigureSeries::exact(name, [(16.0, 0.99), (64.0, others)]),
            }
        };
        LINES.iter().map(line).collect()
    }

    fn ordinary(name: &str, ys: [f64; 3]) -> FigureSeries {
        FigureSeries::exact(name, [16.0, 64.0, 256.0].into_iter().zip(ys))
    }

    #[test]
    fn small_mini_sets_are_compared_with_large_ones() {
        let small = |large| judge(&Figure::of_lines(lines("", [0.9, 0.95, large], 0.8, 0.1)));
        assert_eq!(held(&small(0.8)), [true, true]);
        assert_eq!(held(&small(0.92)), [false, true]);
    }

    #[test]
    fn every_kind_of_mini_sets_has_to_be_better_than_single_images() {
        let sets = |others, single| {
            held(&judge(&Figure::of_lines(lines("", [0.9, 0.9, 0.8], others, single))))[1]
        };
        assert!(sets(0.8, 0.1));
        assert!(!sets(0.1, 0.2) && !sets(0.8, 0.95) && !sets(0.8, f64::NAN));
    }

    #[test]
    fn ordinary_training_is_compared_with_the_same_number_of_images() {
        let all = |ys| {
            let private = lines("", [0.8, 0.7, 0.6], 0.7, 0.1);
            judge(&Figure::of_lines(private.into_iter().chain([ordinary(ORDINARY, ys)])))
        };
        assert_eq!(held(&all([0.95, 0.9, 0.7])), [true; 4]);
        assert_eq!(held(&all([0.95, 0.65, 0.7])), [true, true, false, true]);
        assert_eq!(held(&all([0.85, 0.9, 0.9])), [true, true, true, false]);
        let numbers: Vec<usize> =
            all([0.95, 0.9, 0.7]).iter().map(|verdict| verdict.numbers.len()).collect();
        assert_eq!(numbers, [2, 5, 6, 2]);
    }

    #[test]
    fn settings_of_one_network_are_compared_with_one_ordinary_training() {
        let little = lines("bn-lenet5, σ = 0.5: ", [0.8, 0.7, 0.6], 0.7, 0.1);
        let much = lines("bn-lenet5, σ = 2.5: ", [0.5, 0.5, 0.5], 0.5, 0.1);
        let ordinary = ordinary("bn-lenet5: ordinary", [0.9, 0.8, 0.7]);
        let verdicts = judge(&Figure::of_lines(little.into_iter().chain(much).chain([ordinary])));
        assert_eq!(held(&verdicts), [true, true, true, false, true, true, true]);
        assert!(verdicts[5].claim.starts_with("bn-lenet5, σ = 2.5: Batch clipping with noise"));
        assert!(verdicts[6].claim.starts_with("bn-lenet5: Without privacy"));
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
