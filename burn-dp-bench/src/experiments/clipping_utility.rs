//! Adaptive clipping without tuning, and fixed thresholds, at several ε.
//!
//! # References
//!
//! G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, "Differentially Private Learning with
//! Adaptive Clipping", 2021, section 3.

use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::{Clipping, FlatClipping, QuantileClipping};
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp_accountant::Budget;
use burn_dp_examples::data::{ImageBatcher, Splits};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, Findings};
use super::fixed_thresholds;
use super::measured::Measured;
use super::trial::{Trial, images_of_seeds, momentum_sgd};
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "clipping-utility";

/// Images, batch size, and passes over the data.
pub(super) const QUICK: ([usize; 2], usize, u64) = ([8_000, 2_000], 400, 3);
pub(super) const PAPER: ([usize; 2], usize, u64) = ([60_000, 10_000], 1_024, 15);
pub(super) const DELTA: f64 = 1e-5;
pub(super) const EPSILONS: [f64; 2] = [1.0, 4.0];
const THRESHOLDS: [f64; 5] = [0.01, 0.1, 1.0, 10.0, 100.0];
/// Learning rate divided by the threshold: thresholds are compared, not learning rates.
pub(super) const RATE: f64 = 0.5;

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let (sizes, batch, epochs) = if measured.quick() { QUICK } else { PAPER };
    let data = images_of_seeds(measured, sizes)?;
    let contenders: Vec<Option<f64>> = THRESHOLDS.into_iter().map(Some).chain([None]).collect();
    measured.expect(contenders.len() * EPSILONS.len() * data.len());
    let mut series = Vec::new();
    for epsilon in EPSILONS {
        let (mut fixed, mut adaptive) = (Vec::new(), None);
        for &threshold in &contenders {
            let mut accuracies = Vec::new();
            for (seed, data) in &data {
                let name = format!("epsilon {epsilon}, {threshold:?}, {epochs} epochs, {seed}");
                let run = |device: &Device| {
                    train(policy(threshold)?, (epsilon, batch, epochs), data, *seed, device)
                };
                accuracies.push(measured.measure(&name, run)?);
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
        figure: "Adaptive clipping, utility against fixed thresholds".into(),
        setting: format!(
            "A CNN, {} images of {}, {epochs} epochs, batch {batch}, SGD with momentum 0.9 and a \
             learning rate of {RATE} over the threshold, δ = {DELTA:e}, {} seeds. Adaptive: the \
             median, from 0.1, by the geometric rule; its counts are a part of ε.",
            sizes[0],
            measured.images_name(),
            data.len()
        ),
        labels: ["Fixed and adaptive thresholds", "fixed threshold", "test accuracy"]
            .map(String::from),
        series,
        facts: Vec::new(),
    })
}

/// Clips to a fixed threshold, or to the median.
fn policy(threshold: Option<f64>) -> Result<Box<dyn Clipping>, TrainError> {
    Ok(match threshold {
        Some(threshold) => Box::new(FlatClipping::new(threshold)?),
        None => Box::new(QuantileClipping::new(0.5)?),
    })
}

/// Compares the median with the best of the fixed thresholds.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let verdict = |epsilon| {
        let (fixed, adaptive) = fixed_thresholds::accuracies(figure, epsilon);
        let best = ("best fixed", FigurePoint::largest(fixed));
        let worst = FigurePoint::smallest(fixed).y;
        Verdict::comparing(
            format!(
                "At ε = {epsilon}, clipping to the median without tuning is within two points of \
                 the best fixed threshold of a grid over four orders of magnitude."
            ),
            &[Above::new(("adaptive", adaptive), best).by(-0.02)],
        )
        .with([("worst fixed", worst)])
    };
    EPSILONS.map(verdict).into()
}

/// Trains the CNN, with a learning rate that falls to zero, and returns its test accuracy.
pub(super) fn train(
    clipping: impl Clipping + 'static,
    (epsilon, batch, epochs): (f64, usize, u64),
    data: &Splits<ImageBatcher>,
    seed: u64,
    device: &Device,
) -> Result<f64, TrainError> {
    let items = data.train.items().len();
    let steps = epochs * (items / batch) as u64;
    let plan = PrivacyPlanConfig::new(items, batch as f64)
        .with_steps(steps)
        .with_budget(Budget::new(epsilon, DELTA).map_err(DpError::from)?)
        .with_clipping(clipping);
    let lr = |step: u64, threshold: f64| RATE / threshold * (steps - step) as f64 / steps as f64;
    Ok(Trial::new(plan, momentum_sgd(), &lr).run(data, seed, device)?.accuracy)
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
        assert_eq!(holds(0.385), [true, true]);
        assert_eq!(holds(0.375), [false, false]);
    }
}
