//! Accuracy against the share of the budget that the counts of adaptive clipping use.
//!
//! # References
//!
//! G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, "Differentially Private Learning with
//! Adaptive Clipping", 2021, section 2.2 (noise on the counts) and section 3.2.

use burn::tensor::Device;
use burn_dp::clipping::{CountNoise, QuantileClipping};
use burn_dp_examples::training::TrainError;

use super::clipping_utility::{DELTA, EPSILONS, PAPER, QUICK, RATE, train};
use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::trial::images_of_seeds;
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "count-share";

const SHARES: [f64; 6] = [1e-4, 1e-3, 0.01, 0.1, 0.3, 0.6];
const QUICK_SHARES: [f64; 4] = [1e-4, 0.01, 0.1, 0.6];
/// Largest share that is little.
const LITTLE: f64 = 0.01;

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let (sizes, batch, epochs) = if measured.quick() { QUICK } else { PAPER };
    let data = images_of_seeds(measured, sizes)?;
    let shares: &[f64] = if measured.quick() { &QUICK_SHARES } else { &SHARES };
    measured.expect(shares.len() * EPSILONS.len() * data.len());
    let mut series = Vec::new();
    for epsilon in EPSILONS {
        let mut points = Vec::new();
        for &share in shares {
            let mut accuracies = Vec::new();
            for (seed, data) in &data {
                let name = format!("epsilon {epsilon}, share {share}, seed {seed}");
                let noise = CountNoise::Share(share);
                let clipping = QuantileClipping::new(0.5)?.with_count_noise(noise);
                let run = |device: &Device| {
                    train(clipping, (epsilon, batch, epochs), data, *seed, device)
                };
                accuracies.push(measured.measure(&name, run)?);
            }
            points.extend(FigurePoint::of(share, &accuracies));
        }
        series.push(FigureSeries { name: line(epsilon), points });
    }
    Ok(Findings {
        figure: "Adaptive clipping, the share of the budget for the counts".into(),
        setting: format!(
            "A CNN, {} images of {}, {epochs} epochs, batch {batch}, SGD with momentum 0.9 and a \
             learning rate of {RATE} over the threshold, which follows the median from 0.1, δ = \
             {DELTA:e}, {} seeds. The counts have this share of the cost z⁻² of a step.",
            sizes[0],
            measured.images_name(),
            data.len()
        ),
        labels: ["Counts and gradients share a budget", "share of the counts", "test accuracy"]
            .map(String::from),
        series,
        facts: Vec::new(),
    })
}

fn line(epsilon: f64) -> String {
    format!("ε = {epsilon}")
}

/// Compares a small share and the largest one with the best.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let verdicts = EPSILONS.map(|epsilon| {
        let points = figure.line(&line(epsilon));
        let best = ("best", FigurePoint::largest(points));
        let little = points.iter().filter(|point| point.x <= LITTLE);
        let little = ("at most a hundredth", FigurePoint::largest(little));
        let most = ("largest share", figure.end(&line(epsilon)));
        [
            Verdict::comparing(
                format!(
                    "At ε = {epsilon}, counts need little of the budget: a share of at most \
                     {LITTLE} is within a point of the best."
                ),
                &[Above::new(little, best).by(-0.01)],
            ),
            Verdict::comparing(
                format!(
                    "At ε = {epsilon}, more than half of the budget for counts costs accuracy."
                ),
                &[Above::new(best, most).by(0.01)],
            ),
        ]
    });
    verdicts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::verdict::held;
    use super::*;

    #[test]
    fn a_small_and_the_largest_share_are_compared_with_the_best_one() {
        let holds = |accuracies: [f64; 3]| {
            let points = || [0.001, 0.1, 0.6].into_iter().zip(accuracies);
            let lines = EPSILONS.map(|epsilon| FigureSeries::exact(line(epsilon), points()));
            let verdicts = judge(&Figure::of_lines(lines));
            held(&verdicts)
        };
        assert_eq!(holds([0.795, 0.80, 0.70]), [true; 4]);
        assert_eq!(holds([0.70, 0.80, 0.795]), [false; 4]);
    }
}
