//! Adaptive clipping of users without tuning, and fixed thresholds, at equal ε.
//!
//! # References
//!
//! G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, "Differentially Private Learning with
//! Adaptive Clipping", 2021, section 3.

use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
use super::user_training::UserSetting;

pub(super) const NAME: &str = "user-clipping";

const EPSILONS: [f64; 2] = [2.0, 8.0];
const THRESHOLDS: [f64; 5] = [0.03, 0.1, 0.3, 1.0, 3.0];

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = UserSetting::of(&measured)?.with_lr_over_threshold();
    let users = setting.users_of_seeds(&measured)?;
    let contenders: Vec<Option<f64>> = THRESHOLDS.into_iter().map(Some).chain([None]).collect();
    measured.expect(contenders.len() * EPSILONS.len() * users.len());
    let (mut series, mut verdicts) = (Vec::new(), Vec::new());
    for epsilon in EPSILONS {
        let (mut fixed, mut adaptive) = (Vec::new(), None);
        for &threshold in &contenders {
            let setting = setting.clone().with_threshold(threshold).with_epsilon(epsilon);
            let mut accuracies = Vec::new();
            for (seed, users) in &users {
                let name = format!("{}, {seed}", setting.label());
                accuracies.push(
                    measured.measure(&name, |device| setting.accuracy(users, *seed, device))?,
                );
            }
            match threshold {
                Some(threshold) => fixed.extend(FigurePoint::of(threshold, &accuracies)),
                None => adaptive = FigurePoint::of(1.0, &accuracies),
            }
        }
        let Some(adaptive) = adaptive else { continue };
        verdicts.extend(compared(epsilon, adaptive.y, &fixed));
        let ends = [THRESHOLDS[0], THRESHOLDS[THRESHOLDS.len() - 1]];
        let constant = ends.map(|x| FigurePoint { x, ..adaptive });
        let name = |what: &str| format!("{what}, ε = {epsilon}");
        series.push(FigureSeries { name: name("fixed"), points: fixed });
        series.push(FigureSeries { name: name("adaptive"), points: constant.into() });
    }
    measured.finish(Findings {
        figure: "Adaptive clipping of users, utility against fixed thresholds".into(),
        setting: format!(
            "{}, SGD with momentum {} on the server and a learning rate of {} over the threshold \
             of the round, {} seeds. Adaptive: the median, from 0.1, by the geometric rule; its \
             counts are a part of ε.",
            setting.sentence(),
            setting.federated.training.server_momentum,
            setting.federated.training.server_lr,
            users.len()
        ),
        labels: ["Fixed and adaptive thresholds of users", "fixed threshold", "accuracy"]
            .map(String::from),
        series,
        verdicts,
    })
}

/// Compares the median with the best and with the worst of the fixed thresholds.
fn compared(epsilon: f64, adaptive: f64, fixed: &[FigurePoint]) -> [Verdict; 2] {
    let best = fixed.iter().map(|point| point.y).fold(0.0, f64::max);
    let worst = fixed.iter().map(|point| point.y).fold(1.0, f64::min);
    [
        Verdict::new(
            format!(
                "At ε = {epsilon}, clipping users to the median without tuning is within a point \
                 of the best fixed threshold of a grid over two orders of magnitude."
            ),
            adaptive > best - 0.01,
            [("adaptive", adaptive), ("best fixed", best)],
        ),
        Verdict::new(
            format!("At ε = {epsilon}, it is ahead of the best fixed threshold."),
            adaptive > best,
            [("adaptive", adaptive), ("best fixed", best), ("worst fixed", worst)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_compared_with_the_best_fixed_threshold() {
        let fixed = [(0.1, 0.30), (1.0, 0.40)].map(|(x, y)| FigurePoint::exact(x, y));
        let holds = |adaptive| compared(8.0, adaptive, &fixed).map(|verdict| verdict.holds);
        assert_eq!(holds(0.41), [true, true]);
        assert_eq!(holds(0.395), [true, false]);
        assert_eq!(holds(0.38), [false, false]);
    }
}
