//! Accuracy against the batch size at a constant total amount of noise: small runs predict a large
//! one.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! sections 3.3 and 4, figure 1.

use burn_dp::DpError;
use burn_dp_accountant::{
    Accountant, DpEvent, ExactAccountant, NeighboringRelation, RunPlan, ScalingLaw,
};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
use super::trial::{Network, SgdSettings, accuracies};

pub(super) const NAME: &str = "tan-scaling";

/// The large run, and the factors of the small runs.
struct Setting {
    network: Network,
    images: [usize; 2],
    large: RunPlan,
    factors: &'static [f64],
    lr: f64,
}

const QUICK: Setting = Setting {
    network: Network::Cnn,
    images: [12_000, 2_000],
    large: RunPlan { expected_batch_size: 1024.0, noise_multiplier: 3.0, steps: 120 },
    factors: &[32.0, 16.0, 8.0, 4.0],
    lr: 1.0,
};

const PAPER: Setting = Setting {
    network: Network::WRN_16_4,
    images: [50_000, 10_000],
    large: RunPlan { expected_batch_size: 4096.0, noise_multiplier: 3.0, steps: 2_500 },
    factors: &[32.0, 16.0, 8.0, 4.0],
    lr: 4.0,
};

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = if measured.quick() { QUICK } else { PAPER };
    measured.expect((setting.factors.len() + 1) * measured.seeds.len());
    let of_plan = |plan: RunPlan, measured: &mut Measured| {
        let settings = SgdSettings::plain(setting.network, setting.lr);
        accuracies(measured, plan, settings, setting.images)
    };
    let mut small = Vec::new();
    for &factor in setting.factors {
        let plan = setting.large.scaled_down(factor).map_err(DpError::from)?;
        small.push((plan.expected_batch_size, of_plan(plan, &mut measured)?));
    }
    let runs: Vec<(f64, f64)> = small
        .iter()
        .flat_map(|(batch, accuracies)| accuracies.iter().map(|&accuracy| (*batch, accuracy)))
        .collect();
    let law = ScalingLaw::fit(&runs).map_err(DpError::from)?;
    // Predicted before it runs.
    let large = setting.large.expected_batch_size;
    let (predicted, low, high) = law.predict(large);
    let found = of_plan(setting.large, &mut measured)?;
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    let points = |runs: &[(f64, Vec<f64>)]| {
        let point = |(batch, values): &(f64, Vec<f64>)| FigurePoint::of(*batch, values);
        runs.iter().filter_map(point).collect::<Vec<_>>()
    };
    let line = |batch: f64| (batch, law.predict(batch).0);
    let smallest = small.first().map_or(large, |(batch, _)| *batch);
    let event =
        DpEvent::dp_sgd_step(large / setting.images[0] as f64, setting.large.noise_multiplier);
    let relation = NeighboringRelation::AddOrRemoveOne;
    let exact =
        ExactAccountant::new([(&event, setting.large.steps)], relation).map_err(DpError::from)?;
    let spent = exact.epsilon(1e-5).map_err(DpError::from)?.estimate;
    measured.finish(Findings {
        figure: "TAN Without a Burn, figure 1".into(),
        setting: format!(
            "{}, {} images of {}, {} steps of SGD, σ/B constant, {} seeds. The large run (B = \
             {large}, σ = {}) has ε = {spent:.2} at δ = 1e-5.",
            setting.network.described(),
            setting.images[0],
            setting.network.images_name(&measured),
            setting.large.steps,
            found.len(),
            setting.large.noise_multiplier
        ),
        labels: ["Accuracy at a constant total amount of noise", "batch size", "test accuracy"]
            .map(String::from),
        series: vec![
            FigureSeries { name: "small runs".into(), points: points(&small) },
            FigureSeries::exact("fitted line", [line(smallest), line(large)]),
            FigureSeries { name: "large run".into(), points: points(&[(large, found)]) },
        ],
        verdicts: vec![
            grows(law.slope, &small, mean),
            Verdict::new(
                "The line that is fitted to small runs predicts the large run: its mean accuracy \
                 is within the 95 % prediction interval.",
                (low..=high).contains(&mean),
                [
                    ("predicted", predicted),
                    ("low", low),
                    ("high", high),
                    ("width", high - low),
                    ("measured", mean),
                ],
            ),
        ],
    })
}

/// Compares the accuracies of all runs, the large one included.
fn grows(slope: f64, small: &[(f64, Vec<f64>)], large: f64) -> Verdict {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let best = small.iter().map(|(_, accuracies)| mean(accuracies)).fold(0.0, f64::max);
    Verdict::new(
        "At constant σ/B and number of steps, accuracy grows with the batch size: the fitted line \
         rises, and the large run is better than each of the small ones.",
        slope > 0.0 && large > best,
        [
            ("gain for a doubled batch", slope * 2f64.ln()),
            ("best small run", best),
            ("large run", large),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_grows_if_the_large_run_is_the_best() {
        let small = [(64.0, vec![0.7, 0.8]), (128.0, vec![0.78, 0.8])];
        assert!(grows(0.02, &small, 0.8).holds);
        assert!(!grows(0.02, &small, 0.785).holds && !grows(-0.02, &small, 0.9).holds);
    }
}
