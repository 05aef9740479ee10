//! Accuracy of batch clipping with layerwise clipping against σ and C, with and without BatchNorm.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, figures 5 to 7, 9 and 11 to 14.

use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::layerwise::{Setting, prefixes};
use super::layerwise_curves::{Curve, curves};
use super::layerwise_ordinary::{Ordinary, ordinary};
use super::measured::Measured;
use super::verdict::{Above, Verdict};

pub(super) const NOISE: &str = "layerwise-noise";
pub(super) const THRESHOLD: &str = "layerwise-threshold";
pub(super) const BATCH_NORM: &str = "batch-norm";

/// Factors of σ and of C.
const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// Names of the lines.
const PRIVATE: &str = "BC+ALC";
const RUNNING: &str = "ordinary, running statistics";
const PUBLIC: &str = "ordinary, statistics from public images";

/// Measures the accuracies of private training, one for each seed.
fn accuracies(measured: &mut Measured, setting: &Setting) -> Result<Vec<f64>, TrainError> {
    let runs = curves(measured, setting, "private", |data| setting.layerwise(data))?;
    Ok(runs.iter().filter_map(Curve::accuracy).collect())
}

/// Runs a sweep over [`FACTORS`] of one value of each setting.
fn sweep(
    measured: &mut Measured,
    words: [&str; 2],
    value: impl Fn(&mut Setting) -> &mut f64,
) -> Result<Findings, TrainError> {
    let settings = Setting::all(measured)?;
    measured.expect(settings.len() * FACTORS.len() * measured.seeds.len());
    let mut series = Vec::new();
    for setting in &settings {
        let mut points = Vec::new();
        for factor in FACTORS {
            let mut changed = setting.clone();
            *value(&mut changed) *= factor;
            let x = *value(&mut changed);
            points.extend(FigurePoint::of(x, &accuracies(measured, &changed)?));
        }
        let name = format!("{}{PRIVATE}", setting.prefix(&settings));
        series.push(FigureSeries { name, points });
    }
    Ok(findings(measured, &settings, words, series))
}

/// Returns a figure of these settings.
fn findings(
    measured: &Measured,
    settings: &[Setting],
    [figures, label]: [&str; 2],
    series: Vec<FigureSeries>,
) -> Findings {
    Findings {
        figure: format!("Batch clipping and adaptive layerwise clipping, {figures}"),
        setting: format!(
            "{}, {} seeds, unless it is varied. BC and ALC with public norms; BatchNorm is tested \
             with statistics of public images, unless they are compared.",
            Setting::sentence_of_all(settings),
            measured.seeds.len()
        ),
        labels: ["Test accuracy", label, "test accuracy"].map(String::from),
        series,
        facts: Vec::new(),
    }
}

pub(super) fn noise(measured: &mut Measured) -> Result<Findings, TrainError> {
    sweep(measured, ["figures 5, 9 and 12", "σ"], |setting| &mut setting.sigma)
}

/// Compares the smallest with the largest σ.
pub(super) fn judge_noise(figure: &Figure) -> Vec<Verdict> {
    let of_setting = |of: &str| {
        let [smallest, .., largest] = figure.line(&format!("{of}{PRIVATE}")) else { return None };
        let falls = Above::new(("smallest σ", *smallest), ("largest σ", *largest)).by(0.02);
        let claim = format!(
            "{of}Accuracy falls as σ grows: by more than two points from the smallest to the \
             largest."
        );
        Some(Verdict::comparing(claim, &[falls]))
    };
    prefixes(figure, PRIVATE).into_iter().filter_map(of_setting).collect()
}

pub(super) fn threshold(measured: &mut Measured) -> Result<Findings, TrainError> {
    sweep(measured, ["figures 6, 7, 9 and 11", "C"], |setting| &mut setting.max_grad_norm)
}

/// Counts neighbors on the grid of C that are nearly as good as the best.
pub(super) fn judge_threshold(figure: &Figure) -> Vec<Verdict> {
    let of_setting = |of: &str| {
        let points = figure.line(&format!("{of}{PRIVATE}"));
        let best = FigurePoint::largest(points).y;
        let is_near = |point: &FigurePoint| point.y > best - 0.05;
        let near = points.chunk_by(|a, b| is_near(a) && is_near(b)).map(<[_]>::len).max();
        let near = near.unwrap_or_default();
        Verdict::new(
            format!(
                "{of}There is a range of C, at least a factor of two, in which accuracy is within \
                 five points of the best."
            ),
            near >= 2,
            [("best", best), ("values of C in a row within five points", near as f64)],
        )
    };
    prefixes(figure, PRIVATE).into_iter().map(of_setting).collect()
}

pub(super) fn batch_norm(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = Setting::of(measured)?;
    measured.expect(4 * measured.seeds.len());
    let without = Setting { model: setting.model.other(), ..setting.clone() };
    let (mut running, mut public, mut private) = (Vec::new(), Vec::new(), Vec::new());
    for (x, setting) in [(0.0, &without), (1.0, &setting)] {
        let runs = ordinary(measured, setting)?;
        let point = |accuracy: fn(&Ordinary) -> f64| {
            FigurePoint::of(x, &runs.iter().map(accuracy).collect::<Vec<_>>())
        };
        running.extend(point(|run| run.running_accuracy));
        public.extend(point(|run| run.public_accuracy));
        private.extend(FigurePoint::of(x, &accuracies(measured, setting)?));
    }
    let lines = [(RUNNING, running), (PUBLIC, public), (PRIVATE, private)];
    let series = lines.map(|(name, points)| FigureSeries { name: name.into(), points }).into();
    let words = ["figures 13 and 14", "BatchNorm (0 without, 1 with)"];
    Ok(findings(measured, &[setting], words, series))
}

/// Compares the networks without and with BatchNorm, and the statistics that it is tested with.
pub(super) fn judge_batch_norm(figure: &Figure) -> Vec<Verdict> {
    let raises = |claim: &str, line: &str| {
        let [without, with] = [0.0, 1.0].map(|x| figure.at(line, x));
        Verdict::comparing(claim, &[Above::new(("with BatchNorm", with), ("without", without))])
    };
    let [running, public] = [RUNNING, PUBLIC].map(|line| figure.at(line, 1.0));
    let loses =
        Above::new(("statistics of public images", public), ("running statistics", running));
    vec![
        raises("BatchNorm raises the accuracy of ordinary training.", RUNNING),
        raises("BatchNorm raises the accuracy of private training by batch clipping.", PRIVATE),
        Verdict::comparing(
            "Statistics of public images can replace the running statistics of the training, which \
             the proof does not cover: ordinary training loses less than a point.",
            &[loses.by(-0.01)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::verdict::held;
    use super::*;

    /// A figure of one sweep with each prefix.
    fn sweeps<const N: usize>(prefixes: [&str; N], ys: [[f64; 5]; N]) -> Figure {
        let line = |(of, ys): (&str, [f64; 5])| {
            FigureSeries::exact(format!("{of}{PRIVATE}"), FACTORS.into_iter().zip(ys))
        };
        Figure::of_lines(prefixes.into_iter().zip(ys).map(line))
    }

    #[test]
    fn accuracy_has_to_fall_by_two_points_as_the_noise_grows() {
        let falls = |last| held(&judge_noise(&sweeps([""], [[0.9, 0.95, 0.9, 0.9, last]])));
        assert_eq!((falls(0.87), falls(0.885)), (vec![true], vec![false]));
    }

    #[test]
    fn values_of_c_that_are_nearly_as_good_have_to_be_neighbors() {
        let near = |ys| held(&judge_threshold(&sweeps([""], [ys])));
        assert_eq!(near([0.1, 0.87, 0.9, 0.1, 0.1]), [true]);
        assert_eq!(near([0.1, 0.1, 0.9, 0.1, 0.87]), [false]);
    }

    #[test]
    fn each_setting_has_its_own_verdict() {
        let settings = ["bn-lenet5, σ = 0.5: ", "bn-lenet5, σ = 2.5: "];
        let figure = sweeps(settings, [[0.9, 0.9, 0.9, 0.9, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5]]);
        let verdicts = judge_noise(&figure);
        assert_eq!(held(&verdicts), [true, false]);
        assert!(verdicts[1].claim.starts_with("bn-lenet5, σ = 2.5: Accuracy falls"));
        assert_eq!(held(&judge_threshold(&figure)), [true, true]);
    }

    fn batch_norms(running: [f64; 2], public: f64, private: [f64; 2]) -> Vec<bool> {
        let line = |name, [without, with]: [f64; 2]| {
            FigureSeries::exact(name, [(0.0, without), (1.0, with)])
        };
        let lines = [line(RUNNING, running), line(PUBLIC, [0.0, public]), line(PRIVATE, private)];
        held(&judge_batch_norm(&Figure::of_lines(lines)))
    }

    #[test]
    fn the_network_with_batch_norm_has_to_be_better() {
        assert_eq!(batch_norms([0.8, 0.9], 0.9, [0.8, 0.85]), [true, true, true]);
        assert_eq!(batch_norms([0.9, 0.9], 0.9, [0.8, 0.85]), [false, true, true]);
        assert_eq!(batch_norms([0.8, 0.9], 0.9, [0.8, 0.7]), [true, false, true]);
    }

    #[test]
    fn public_statistics_may_lose_less_than_a_point() {
        for (public, expected) in [(0.895, true), (0.95, true), (0.885, false), (0.2, false)] {
            assert_eq!(batch_norms([0.8, 0.9], public, [0.8, 0.85])[2], expected, "{public}");
        }
    }
}
