//! Random copies of each image, and averaged weights, at the same privacy.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! section 5; S. De et al., "Unlocking High-Accuracy Differentially Private Image Classification
//! through Scale", 2022, sections 3.2 and 3.5.

use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::optim::{PrivacyPlanConfig, WeightAverage};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
use super::trial::{Network, Outcome, Trial};

pub(super) const NAME: &str = "tan-averages";

/// What is trained.
#[derive(Debug)]
struct Setting {
    network: Network,
    images: [usize; 2],
    batch: f64,
    sigma: f64,
    steps: u64,
    lr: f64,
    copies: &'static [usize],
    decay: f64,
    /// Largest shift of a copy, in pixels.
    crop: usize,
}

const QUICK: Setting = Setting {
    network: Network::Cnn,
    images: [4_000, 2_000],
    batch: 256.0,
    sigma: 2.0,
    steps: 150,
    lr: 1.0,
    copies: &[1, 2, 4],
    decay: 0.95,
    crop: 2,
};

const PAPER: Setting = Setting {
    network: Network::WRN_16_4,
    images: [50_000, 10_000],
    batch: 4096.0,
    sigma: 3.0,
    steps: 2_500,
    lr: 4.0,
    copies: &[1, 2, 4, 8, 16],
    decay: 0.9999,
    crop: 4,
};

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = if measured.quick() { QUICK } else { PAPER };
    let data = setting.network.images_of_seeds(&measured, setting.images)?;
    measured.expect((1 + setting.copies.len()) * data.len());
    // Without copies, then with one or more random copies of each image.
    let copies = [0].into_iter().chain(setting.copies.iter().copied());
    let (mut last, mut averaged) = (Vec::new(), Vec::new());
    for copies in copies {
        let mut found: Vec<Outcome> = Vec::new();
        for (seed, data) in &data {
            let run = |device: &Device| {
                let items = data.train.items().len();
                let plan = PrivacyPlanConfig::new(items, setting.batch)
                    .with_steps(setting.steps)
                    .with_noise_multiplier(setting.sigma);
                let lr = |_, _| setting.lr;
                let average = WeightAverage::new(setting.decay)?;
                let trial = Trial::new(plan, SgdConfig::new().init(), &lr)
                    .with_network(setting.network)
                    .with_average(average);
                let trial = match copies {
                    0 => trial,
                    _ => trial.with_copies(copies, setting.network.crop(setting.crop)?),
                };
                trial.run(data, *seed, device)
            };
            found
                .push(measured.measure(&format!("K = {copies} of {setting:?}, seed {seed}"), run)?);
        }
        let of_last: Vec<f64> = found.iter().map(|outcome| outcome.accuracy).collect();
        let of_average: Vec<f64> = found.iter().filter_map(|outcome| outcome.averaged).collect();
        last.extend(FigurePoint::of(copies as f64, &of_last));
        averaged.extend(FigurePoint::of(copies as f64, &of_average));
    }
    let most = last.len() - 1;
    let gains = last.iter().zip(&averaged).map(|(last, averaged)| averaged.y - last.y);
    let gain = gains.sum::<f64>() / last.len() as f64;
    measured.finish(Findings {
        figure: "TAN Without a Burn, section 5: augmentation multiplicity and averaged weights"
            .into(),
        setting: format!(
            "{}, {} images of {}, B = {}, σ = {}, {} steps of SGD, {} seeds. K copies of each \
             image are shifted by up to {} pixels{} (K = 0: the image itself). Weights are \
             averaged with decay {}.",
            setting.network.described(),
            setting.images[0],
            setting.network.images_name(&measured),
            setting.batch,
            setting.sigma,
            setting.steps,
            data.len(),
            setting.crop,
            setting.network.mirrored(),
            setting.decay
        ),
        labels: ["Accuracy at the same privacy", "copies K of each image", "test accuracy"]
            .map(String::from),
        verdicts: vec![
            Verdict::new(
                "More random copies of each image raise the accuracy at the same privacy.",
                last[most].y > last[1].y,
                [("one copy", last[1].y), ("most copies", last[most].y)],
            ),
            Verdict::new(
                "Random copies are better than the images themselves.",
                last[most].y > last[0].y,
                [("images", last[0].y), ("most copies", last[most].y)],
            ),
            Verdict::new(
                "Averaged weights are better than the last ones.",
                gain > 0.0,
                [("mean gain", gain)],
            ),
        ],
        series: vec![
            FigureSeries { name: "last weights".into(), points: last },
            FigureSeries { name: "averaged weights".into(), points: averaged },
        ],
    })
}
