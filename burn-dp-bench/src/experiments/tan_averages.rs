//! Random copies of each image, and averaged weights, at the same privacy.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! section 5; S. De et al., "Unlocking High-Accuracy Differentially Private Image Classification
//! through Scale", 2022, sections 3.2 and 3.5.

use burn_dp_accountant::RunPlan;
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::Measured;
use super::trial::{Network, SgdSettings, outcomes};
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "tan-averages";

/// What is trained.
struct Setting {
    network: Network,
    images: [usize; 2],
    plan: RunPlan,
    lr: f64,
    copies: &'static [usize],
    decay: f64,
    /// Largest shift of a copy, in pixels.
    shift: usize,
}

const QUICK: Setting = Setting {
    network: Network::Cnn,
    images: [4_000, 2_000],
    plan: RunPlan { expected_batch_size: 256.0, noise_multiplier: 2.0, steps: 150 },
    lr: 1.0,
    copies: &[1, 2, 4],
    decay: 0.95,
    shift: 2,
};

const PAPER: Setting = Setting {
    network: Network::WRN_16_4,
    images: [50_000, 10_000],
    plan: RunPlan { expected_batch_size: 4096.0, noise_multiplier: 3.0, steps: 2_500 },
    lr: 4.0,
    copies: &[1, 2, 4, 8, 16],
    decay: 0.9999,
    shift: 4,
};

/// The lines.
const LAST: &str = "last weights";
const AVERAGED: &str = "averaged weights";

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = if measured.quick() { QUICK } else { PAPER };
    let Setting { network, images, plan, lr, shift, decay, .. } = setting;
    measured.expect((1 + setting.copies.len()) * measured.seeds.len());
    let (mut last, mut averaged) = (Vec::new(), Vec::new());
    // Without copies, then with one or more random copies of each image.
    for copies in [0].into_iter().chain(setting.copies.iter().copied()) {
        let plain = SgdSettings::plain(network, lr);
        let settings = SgdSettings { copies, shift, decay: Some(decay), ..plain };
        let found = outcomes(measured, plan, settings, images)?;
        let of_last: Vec<f64> = found.iter().map(|outcome| outcome.accuracy).collect();
        let of_average: Vec<f64> = found.iter().filter_map(|outcome| outcome.averaged).collect();
        last.extend(FigurePoint::of(copies as f64, &of_last));
        averaged.extend(FigurePoint::of(copies as f64, &of_average));
    }
    Ok(Findings {
        figure: "TAN Without a Burn, section 5: augmentation multiplicity and averaged weights"
            .into(),
        setting: format!(
            "{}, {} images of {}, B = {}, σ = {}, {} steps of SGD, {} seeds. K copies of each \
             image are shifted by up to {shift} pixels{} (K = 0: the image itself). Weights are \
             averaged with decay {decay}.",
            network.described(),
            images[0],
            network.images_name(measured),
            plan.expected_batch_size,
            plan.noise_multiplier,
            plan.steps,
            measured.seeds.len(),
            network.mirrored()
        ),
        labels: ["Accuracy at the same privacy", "copies K of each image", "test accuracy"]
            .map(String::from),
        series: vec![
            FigureSeries { name: LAST.into(), points: last },
            FigureSeries { name: AVERAGED.into(), points: averaged },
        ],
        facts: Vec::new(),
    })
}

/// Compares numbers of copies, and averaged weights with the last ones.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let most = ("most copies", figure.end(LAST));
    let (last, averaged) = (figure.line(LAST), figure.line(AVERAGED));
    let gains = last.iter().zip(averaged).map(|(last, averaged)| averaged.y - last.y);
    let gain = gains.sum::<f64>() / last.len() as f64;
    let of_means = Above::new((AVERAGED, mean(averaged)), (LAST, mean(last)));
    vec![
        Verdict::comparing(
            "More random copies of each image raise the accuracy at the same privacy.",
            &[Above::new(most, ("one copy", figure.at(LAST, 1.0)))],
        ),
        Verdict::comparing(
            "Random copies are better than the images themselves.",
            &[Above::new(most, ("images", figure.at(LAST, 0.0)))],
        ),
        Verdict {
            numbers: [("mean gain".into(), gain)].into(),
            ..Verdict::comparing("Averaged weights are better than the last ones.", &[of_means])
        },
    ]
}

/// Returns the mean of the points of a line.
fn mean(points: &[FigurePoint]) -> FigurePoint {
    let mean =
        |of: fn(&FigurePoint) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    FigurePoint {
        x: mean(|point| point.x),
        y: mean(|point| point.y),
        low: mean(|point| point.low),
        high: mean(|point| point.high),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges accuracies with 0, 1 and 2 copies.
    fn judged(last: [f64; 3], averaged: [f64; 3]) -> Vec<Verdict> {
        let line = |name, accuracies: [f64; 3]| {
            FigureSeries::exact(name, (0..).map(f64::from).zip(accuracies))
        };
        judge(&Figure::of_lines([line(LAST, last), line(AVERAGED, averaged)]))
    }

    #[test]
    fn copies_are_compared_with_fewer_copies_and_with_none() {
        let held = |last| {
            let verdicts = judged(last, last);
            [verdicts[0].holds, verdicts[1].holds]
        };
        assert_eq!(held([0.7, 0.6, 0.8]), [true, true]);
        assert_eq!(held([0.7, 0.6, 0.65]), [true, false]);
        assert_eq!(held([0.7, 0.8, 0.75]), [false, true]);
    }

    #[test]
    fn averages_have_to_be_better_over_all_numbers_of_copies() {
        let found = |averaged| judged([0.5, 0.6, 0.7], averaged)[2].clone();
        assert!(found([0.6, 0.7, 0.65]).holds && !found([0.5, 0.6, 0.65]).holds);
        let gain = found([0.6, 0.7, 0.65]).numbers["mean gain"];
        assert!((gain - 0.05).abs() < 1e-12);
    }
}
