//! Adaptive clipping of users without tuning, and fixed thresholds, at equal ε.
//!
//! # References
//!
//! G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, "Differentially Private Learning with
//! Adaptive Clipping", 2021, section 3.

use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, Findings};
use super::fixed_thresholds;
use super::measured::Measured;
use super::user_training::UserSetting;
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "user-clipping";

const EPSILONS: [f64; 2] = [2.0, 8.0];
const THRESHOLDS: [f64; 6] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0];

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = UserSetting::of(measured)?.with_lr_over_threshold();
    let users = setting.users_of_seeds(measured)?;
    let contenders: Vec<Option<f64>> = THRESHOLDS.into_iter().map(Some).chain([None]).collect();
    measured.expect(contenders.len() * EPSILONS.len() * users.len());
    let mut series = Vec::new();
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
        series.extend(fixed_thresholds::lines(epsilon, fixed, adaptive));
    }
    Ok(Findings {
        figure: "Adaptive clipping of users, utility against fixed thresholds".into(),
        setting: format!(
            "{}, SGD with momentum {} on the server and a learning rate of {} over the threshold \
             of the round, {} seeds. A fixed threshold below all norms normalizes the updates: \
             smaller ones change nothing. Adaptive: the median, from 0.1, by the geometric rule; \
             its counts are a part of ε.",
            setting.sentence(),
            setting.federated.training.server_momentum,
            setting.federated.training.server_lr,
            users.len()
        ),
        labels: ["Fixed and adaptive thresholds of users", "fixed threshold", "accuracy"]
            .map(String::from),
        series,
        facts: Vec::new(),
    })
}

/// Compares the median with the best of the fixed thresholds.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let verdicts = EPSILONS.map(|epsilon| {
        let (fixed, adaptive) = fixed_thresholds::accuracies(figure, epsilon);
        let adaptive = ("adaptive", adaptive);
        let ahead = Above::new(adaptive, ("best fixed", FigurePoint::largest(fixed)));
        [
            Verdict::comparing(
                format!(
                    "At ε = {epsilon}, clipping users to the median without tuning is within a \
                     point of the best fixed threshold of a grid over two and a half orders of \
                     magnitude."
                ),
                &[ahead.by(-0.01)],
            ),
            Verdict::comparing(
                format!("At ε = {epsilon}, it is ahead of the best fixed threshold."),
                &[ahead],
            ),
        ]
    });
    verdicts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixed_thresholds::figure_of;
    use super::super::verdict::held;
    use super::*;

    #[test]
    fn the_median_is_compared_with_the_best_fixed_threshold() {
        let fixed = [(0.1, 0.30), (1.0, 0.40)];
        let holds = |adaptive| held(&judge(&figure_of(&EPSILONS, &fixed, adaptive)));
        assert_eq!(holds(0.41), [true, true, true, true]);
        assert_eq!(holds(0.395), [true, false, true, false]);
        assert_eq!(holds(0.38), [false; 4]);
    }
}
