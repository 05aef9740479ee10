//! The norms of the updates of users in each layer over the rounds of a language model.
//!
//! # References
//!
//! G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, "Differentially Private Learning with
//! Adaptive Clipping", 2021, figure 1.

use burn::tensor::Device;
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::user_training::UserSetting;
use super::verdict::Verdict;

pub(super) const NAME: &str = "update-norms";

/// Number of rounds in the paper, and number of rounds between two measurements.
const PAPER: (usize, usize) = (500, 10);
const QUICK: (usize, usize) = (60, 4);

const EPSILON: f64 = 8.0;

/// Norms after some rounds: the round, then names and mean norms of the parameters.
type Norms = Vec<(usize, Vec<(String, f64)>)>;

/// The norm of each parameter, by name.
type NamedNorms = [(String, f64)];

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let mut setting = UserSetting::of(measured)?.with_threshold(None).with_epsilon(EPSILON);
    let (rounds, every) = if measured.quick() { QUICK } else { PAPER };
    setting.federated.training.rounds = rounds;
    setting.federated.training.evaluate_every = every;
    if !measured.quick() {
        (setting.federated.training.embedding, setting.federated.training.hidden) = (96, 256);
    }
    let seeds = measured.seeds.clone();
    measured.expect(seeds.len());
    let mut runs: Vec<Norms> = Vec::new();
    for &seed in &seeds {
        let users = setting.users(measured, seed)?;
        let run = |device: &Device| -> Result<Norms, TrainError> {
            let figures = setting.train(&users, seed, device)?.measurements.into_iter();
            Ok(figures.map(|measured| (measured.round, measured.update_norms)).collect())
        };
        runs.push(measured.measure(&format!("{}, {seed}", setting.label()), run)?);
    }
    Ok(Findings {
        figure: "Adaptive clipping, figure 1: norms of updates in each layer".into(),
        setting: format!(
            "{}, clipped to the median, ε = {EPSILON}, {} seeds. Mean norms of the updates of \
             public users, which are not clipped.",
            setting.sentence(),
            seeds.len()
        ),
        labels: ["Updates of users", "round", "mean L2 norm"].map(String::from),
        series: series(&runs),
        facts: Vec::new(),
    })
}

/// Returns a line for each parameter, and one for all together.
fn series(runs: &[Norms]) -> Vec<FigureSeries> {
    let (Some(first), Some((_, named))) = (runs.first(), runs.first().and_then(|run| run.first()))
    else {
        return Vec::new();
    };
    let line = |name: String, of: &dyn Fn(&NamedNorms) -> f64| {
        let points = first.iter().enumerate().filter_map(|(index, (round, _))| {
            let values = runs.iter().filter_map(|run| run.get(index)).map(|(_, norms)| of(norms));
            FigurePoint::of(*round as f64, &values.collect::<Vec<_>>())
        });
        FigureSeries { name, points: points.collect() }
    };
    named
        .iter()
        .enumerate()
        .map(|(layer, (name, _))| line(name.clone(), &|norms| norms[layer].1))
        .collect()
}

/// Compares the norms of the layers at the end, and each layer's over the rounds.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let layers = &figure.series;
    let norm = |point: &FigurePoint| point.y;
    let last: Vec<f64> = layers.iter().filter_map(|layer| layer.points.last()).map(norm).collect();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let smallest = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let factor = |layer: &FigureSeries| {
        let norms: Vec<f64> = layer.points.iter().map(norm).collect();
        largest(&norms) / smallest(&norms)
    };
    let factors: Vec<f64> = layers.iter().map(factor).collect();
    vec![
        Verdict::new(
            "The norms of the individual layers are of different magnitudes: the largest is more \
             than ten times the smallest.",
            largest(&last) > 10.0 * smallest(&last),
            [("largest", largest(&last)), ("smallest", smallest(&last))],
        ),
        Verdict::new(
            "The norms change over the rounds: that of some layer by more than a factor of two.",
            largest(&factors) > 2.0,
            [("largest factor", largest(&factors)), ("smallest factor", smallest(&factors))],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(norms: &[(usize, [f64; 2])]) -> Norms {
        let named = |&[a, b]: &[f64; 2]| vec![("a".to_string(), a), ("b".to_string(), b)];
        norms.iter().map(|(round, values)| (*round, named(values))).collect()
    }

    #[test]
    fn the_verdicts_follow_from_the_mean_over_the_seeds() {
        let runs = [
            run(&[(4, [1.0, 20.0]), (8, [2.0, 20.0])]),
            run(&[(4, [1.0, 20.0]), (8, [4.0, 40.0])]),
        ];
        let lines = series(&runs);
        assert_eq!(lines[0].points[1], FigurePoint { x: 8.0, y: 3.0, low: 2.0, high: 4.0 });
        let found = judge(&Figure::of_lines(lines));
        // A ratio of 30 over 3; then factors of 3 and 1.5.
        assert!(!found[0].holds && found[1].holds);
        assert_eq!(found[1].numbers["largest factor"], 3.0);
        assert_eq!(found[1].numbers["smallest factor"], 1.5);
        let constant = series(&[run(&[(4, [1.0, 20.0]), (8, [1.0, 20.0])])]);
        let found = judge(&Figure::of_lines(constant));
        assert!(found[0].holds && !found[1].holds);
    }
}
