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
use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
use super::trial::images_of_seeds;

pub(super) const NAME: &str = "count-share";

const SHARES: [f64; 6] = [1e-4, 1e-3, 0.01, 0.1, 0.3, 0.6];
const QUICK_SHARES: [f64; 4] = [1e-4, 0.01, 0.1, 0.6];
/// Largest share that is little.
const LITTLE: f64 = 0.01;

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let (sizes, batch, epochs) = if measured.quick() { QUICK } else { PAPER };
    let data = images_of_seeds(&measured, sizes)?;
    let shares: &[f64] = if measured.quick() { &QUICK_SHARES } else { &SHARES };
    measured.expect(shares.len() * EPSILONS.len() * data.len());
    let (mut series, mut verdicts) = (Vec::new(), Vec::new());
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
        verdicts.extend(compared(epsilon, &points));
        series.push(FigureSeries { name: format!("ε = {epsilon}"), points });
    }
    measured.finish(Findings {
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
        verdicts,
    })
}

/// Compares a small and the largest share with the best one.
fn compared(epsilon: f64, points: &[FigurePoint]) -> [Verdict; 2] {
    let largest = |points: &mut dyn Iterator<Item = &FigurePoint>| {
        points.map(|point| point.y).fold(0.0, f64::max)
    };
    let best = largest(&mut points.iter());
    let little = largest(&mut points.iter().filter(|point| point.x <= LITTLE));
    let most = points.last().map_or(f64::NAN, |point| point.y);
    [
        Verdict::new(
            format!(
                "At ε = {epsilon}, counts need little of the budget: a share of at most {LITTLE} \
                 is within a point of the best."
            ),
            little > best - 0.01,
            [("at most a hundredth", little), ("best", best)],
        ),
        Verdict::new(
            format!("At ε = {epsilon}, more than half of the budget for counts costs accuracy."),
            most < best - 0.01,
            [("largest share", most), ("best", best)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_and_the_largest_share_are_compared_with_the_best_one() {
        let points = |accuracies: [f64; 3]| {
            let shares = [0.001, 0.1, 0.6].into_iter().zip(accuracies);
            shares.map(|(x, y)| FigurePoint::exact(x, y)).collect::<Vec<_>>()
        };
        let holds = |found| compared(1.0, &points(found)).map(|verdict| verdict.holds);
        assert_eq!(holds([0.795, 0.80, 0.70]), [true, true]);
        assert_eq!(holds([0.70, 0.80, 0.795]), [false, false]);
    }
}
