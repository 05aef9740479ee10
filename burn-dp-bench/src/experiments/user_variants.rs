//! Federated averaging and federated SGD, each with SGD and with Adam on the server, under adaptive
//! clipping at equal ε.
//!
//! # References
//!
//! G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, "Differentially Private Learning with
//! Adaptive Clipping", 2021, section 2.2 and algorithm 1.

use burn::tensor::Device;
use burn_dp_examples::training::federated::{AlgorithmName, FederatedFigures};
use burn_dp_examples::training::{OptimizerName, TrainError};
use serde::{Deserialize, Serialize};

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::point::is_inside;
use super::user_training::UserSetting;
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "user-variants";

const EPSILON: f64 = 8.0;

/// Initial threshold, several times smaller than the norms of the updates.
const START: f64 = 0.03;

/// Factors of the server's learning rate.
const FACTORS: [f64; 6] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// What users compute, and how the server applies it.
struct Variant {
    name: &'static str,
    algorithm: AlgorithmName,
    server: OptimizerName,
    /// Learning rate of the server at a factor of one; of SGD, over the threshold.
    lr: f64,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        name: "FedAvg, SGD",
        algorithm: AlgorithmName::FedAvg,
        server: OptimizerName::Sgd,
        lr: 1.0,
    },
    Variant {
        name: "FedAvg, Adam",
        algorithm: AlgorithmName::FedAvg,
        server: OptimizerName::Adam,
        lr: 0.01,
    },
    Variant {
        name: "FedSGD, SGD",
        algorithm: AlgorithmName::FedSgd,
        server: OptimizerName::Sgd,
        lr: 1.0,
    },
    Variant {
        name: "FedSGD, Adam",
        algorithm: AlgorithmName::FedSgd,
        server: OptimizerName::Adam,
        lr: 0.01,
    },
];

impl Variant {
    /// Returns the training with a factor of the server's learning rate.
    fn setting(&self, base: &UserSetting, factor: f64) -> UserSetting {
        let mut setting = base.clone();
        let training = &mut setting.federated.training;
        training.algorithm = self.algorithm;
        training.server_optimizer = self.server;
        training.server_lr = self.lr * factor;
        // The steps of Adam do not depend on the threshold.
        training.server_lr_over_threshold = self.server == OptimizerName::Sgd;
        setting
    }
}

/// The end of a training.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct End {
    accuracy: f64,
    /// The threshold over the norm of the updates of public users.
    threshold: f64,
}

impl End {
    fn of(figures: &FederatedFigures) -> Option<Self> {
        let last = figures.measurements.last()?;
        let squares = last.update_norms.iter().map(|(_, norm)| norm * norm);
        let norm = squares.sum::<f64>().sqrt();
        Some(Self { accuracy: last.test_accuracy, threshold: last.threshold / norm })
    }
}

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let mut base = UserSetting::of(measured)?.with_threshold(None).with_epsilon(EPSILON);
    base.federated.training.max_update_norm = Some(START);
    let users = base.users_of_seeds(measured)?;
    measured.expect(VARIANTS.len() * FACTORS.len() * users.len());
    let shares: Vec<f64> = users.iter().map(|(_, users)| users.most_frequent_share()).collect();
    let (mut series, mut facts) = (Vec::new(), Vec::new());
    for variant in VARIANTS {
        let (mut points, mut ratios) = (Vec::new(), Vec::new());
        for factor in FACTORS {
            let setting = variant.setting(&base, factor);
            let mut ends: Vec<End> = Vec::new();
            for (seed, users) in &users {
                let run = |device: &Device| -> Result<Option<End>, TrainError> {
                    Ok(End::of(&setting.train(users, *seed, device)?))
                };
                let name = format!("{}, {}, {seed}", variant.name, setting.label());
                ends.extend(measured.measure(&name, run)?);
            }
            let accuracies: Vec<f64> = ends.iter().map(|end| end.accuracy).collect();
            points.extend(FigurePoint::of(factor, &accuracies));
            ratios.push(ends.iter().map(|end| end.threshold).sum::<f64>() / ends.len() as f64);
        }
        let accuracy = |(point, _): &(&FigurePoint, &f64)| point.y;
        let best = points.iter().zip(&ratios).max_by(|a, b| accuracy(a).total_cmp(&accuracy(b)));
        let ratio = best.map_or(f64::NAN, |(_, ratio)| *ratio);
        facts.push((threshold_name(variant.name), ratio));
        series.push(FigureSeries { name: variant.name.into(), points });
    }
    let ends = [FACTORS[0], FACTORS[FACTORS.len() - 1]];
    let points = ends.into_iter().filter_map(|x| FigurePoint::of(x, &shares)).collect();
    series.push(FigureSeries { name: FREQUENT.into(), points });
    let [sgd, adam] = [VARIANTS[0].lr, VARIANTS[1].lr];
    Ok(Findings {
        figure: "Adaptive clipping, algorithm 1: FedAvg and FedSGD, servers with SGD and Adam"
            .into(),
        setting: format!(
            "Users train {}, ε = {EPSILON}, {} seeds; FedSGD: one gradient of a user. Clipped to \
             the median, from {START}, by the geometric rule. The server's learning rate is a \
             factor times: SGD with momentum {}, {sgd} over the threshold of the round; Adam, \
             {adam}. Each variant is compared at its best factor of the grid.",
            base.network(),
            users.len(),
            base.federated.training.server_momentum
        ),
        labels: [
            "Variants of user-level training",
            "factor of the server's learning rate",
            "accuracy",
        ]
        .map(String::from),
        series,
        facts,
    })
}

/// Name of the line of a prediction without any training.
const FREQUENT: &str = "most frequent character";

/// Returns the name of the fact how far the threshold of a variant is from the norms.
fn threshold_name(variant: &str) -> String {
    format!("{variant}: threshold over the norm of public users")
}

/// Compares each variant, at its best learning rate, with a prediction without any training, and
/// its threshold with the norm of the updates of public users.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let frequent = (FREQUENT, figure.end(FREQUENT));
    let points = VARIANTS.map(|Variant { name, .. }| (name, figure.line(name)));
    let best = points.map(|(name, points)| (name, FigurePoint::largest(points)));
    let thresholds = best.map(|(name, _)| (name, figure.fact(&threshold_name(name))));
    let rates = |points: &[FigurePoint]| points.iter().map(|point| point.x).collect::<Vec<_>>();
    let mut grids = points.iter().zip(best);
    let is_within = grids.all(|((_, points), (_, best))| is_inside(rates(points), best.x));
    vec![
        Verdict::comparing(
            "Adaptive clipping serves federated averaging and federated SGD, with SGD and with \
             Adam on the server: without a tuned threshold, each is more than a point ahead of \
             predicting the most frequent character.",
            &best.map(|best| Above::new(best, frequent).by(0.01)),
        ),
        Verdict::new(
            "The best learning rate of each variant is inside of the grid.",
            is_within,
            best.map(|(name, point)| (name, point.x)),
        ),
        Verdict::new(
            format!(
                "The threshold follows the norms in each variant: from {START}, it ends within a \
                 factor of two of the norm of the updates of public users."
            ),
            thresholds.iter().all(|(_, ratio)| (0.5..=2.0).contains(ratio)),
            thresholds,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::verdict::held;
    use super::*;

    fn holds(adam: [f64; 6], ratio: f64) -> Vec<bool> {
        let lines = VARIANTS.map(|Variant { name, .. }| {
            let is_adam = name == "FedAvg, Adam";
            let points = if is_adam { adam } else { [0.1, 0.2, 0.25, 0.24, 0.1, 0.0] };
            FigureSeries::exact(name, FACTORS.into_iter().zip(points))
        });
        let frequent = FigureSeries::exact(FREQUENT, [(FACTORS[0], 0.17)]);
        let mut figure = Figure::of_lines(lines.into_iter().chain([frequent]));
        figure.facts = VARIANTS.map(|Variant { name, .. }| (threshold_name(name), ratio)).into();
        held(&judge(&figure))
    }

    #[test]
    fn every_variant_has_to_predict_better_than_the_most_frequent_character() {
        assert_eq!(holds([0.1, 0.1, 0.19, 0.1, 0.1, 0.1], 1.1), [true, true, true]);
        assert_eq!(holds([0.1, 0.1, 0.175, 0.1, 0.1, 0.1], 1.1), [false, true, true]);
        assert!(!holds([f64::NAN; 6], 1.1)[0]);
    }

    #[test]
    fn the_best_learning_rate_must_not_be_at_the_edge() {
        assert_eq!(holds([0.1, 0.1, 0.1, 0.1, 0.19, 0.2], 1.1), [true, false, true]);
        assert_eq!(holds([0.2, 0.19, 0.1, 0.1, 0.1, 0.1], 1.1), [true, false, true]);
    }

    #[test]
    fn every_threshold_has_to_end_near_the_norms() {
        let ratios = [(0.6, true), (1.9, true), (0.1, false), (3.0, false), (f64::NAN, false)];
        for (ratio, expected) in ratios {
            assert_eq!(holds([0.1, 0.1, 0.19, 0.1, 0.1, 0.1], ratio), [true, true, expected]);
        }
    }
}
