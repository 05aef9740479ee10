//! The choice of batch size, noise and number of steps for a compute limit, at equal ε.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! sections 1 and 3, figure 2.

use burn_dp::DpError;
use burn_dp_accountant::{
    Budget, DpEvent, RunPlan, TAN_APPROXIMATION_LIMIT, TotalAmountOfNoise,
    calibrate_noise_multiplier,
};
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
use super::trial::{Network, SgdSettings, accuracies};

pub(super) const NAME: &str = "tan-budget";

const DELTA: f64 = 1e-5;

/// What all runs share, and their batch sizes.
struct Setting {
    network: Network,
    images: [usize; 2],
    epsilon: f64,
    /// Images that a run computes: batch size times number of steps.
    compute: f64,
    batches: [f64; 4],
    /// Learning rate times number of steps.
    distances: [f64; 3],
}

const QUICK: Setting = Setting {
    network: Network::Cnn,
    images: [4_000, 2_000],
    epsilon: 1.0,
    compute: 15_360.0,
    batches: [20.0, 80.0, 320.0, 1_280.0],
    distances: [48.0, 96.0, 192.0],
};

const PAPER: Setting = Setting {
    network: Network::WRN_16_4,
    images: [50_000, 10_000],
    epsilon: 8.0,
    compute: 4_096.0 * 2_500.0,
    batches: [256.0, 1_024.0, 4_096.0, 16_384.0],
    distances: [5_000.0, 10_000.0, 20_000.0],
};

impl Setting {
    /// Returns the run with this batch size that spends compute and ε.
    fn plan(&self, batch: f64) -> Result<RunPlan, DpError> {
        let steps = (self.compute / batch).round() as u64;
        let q = batch / self.images[0] as f64;
        let budget = Budget::new(self.epsilon, DELTA)?;
        let step = |sigma| DpEvent::dp_sgd_step(q, sigma);
        let noise_multiplier = calibrate_noise_multiplier(budget, steps, step)?;
        Ok(RunPlan { expected_batch_size: batch, noise_multiplier, steps })
    }
}

/// A batch size, and what it achieves.
#[derive(Clone, Copy)]
struct Choice {
    batch: f64,
    sigma: f64,
    /// Signal over noise of the whole run.
    eta: f64,
    /// With the best learning rate.
    accuracy: f64,
}

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let setting = if measured.quick() { QUICK } else { PAPER };
    measured.expect(setting.batches.len() * setting.distances.len() * measured.seeds.len());
    let mut choices = Vec::new();
    let mut series = setting.distances.map(|distance| FigureSeries {
        name: format!("learning rate {distance} / S"),
        points: Vec::new(),
    });
    for batch in setting.batches {
        let plan = setting.plan(batch)?;
        let (sigma, steps) = (plan.noise_multiplier, plan.steps);
        let total = TotalAmountOfNoise::new(batch / setting.images[0] as f64, sigma, steps);
        let eta = total.map_err(DpError::from)?.eta();
        let mut choice = Choice { batch, sigma, eta, accuracy: 0.0 };
        for (line, distance) in series.iter_mut().zip(setting.distances) {
            let lr = distance / steps as f64;
            let settings = SgdSettings::plain(setting.network, lr);
            let found = accuracies(&mut measured, plan, settings, setting.images)?;
            let point = FigurePoint::of(sigma, &found);
            choice.accuracy = point.map_or(choice.accuracy, |point| choice.accuracy.max(point.y));
            line.points.extend(point);
        }
        choices.push(choice);
    }
    let pairs = choices.iter().map(|Choice { batch, sigma, .. }| format!("{batch} ({sigma:.2})"));
    measured.finish(Findings {
        figure: "TAN Without a Burn, section 3: batch size, noise and steps for a compute limit"
            .into(),
        setting: format!(
            "{}, {} images of {}, SGD. All runs compute B · S = {} images in S steps, and their \
             σ is calibrated to ε = {} at δ = {DELTA:e}: B (σ) = {}. Their learning rates are \
             constant numbers over S; each B is compared at its best of these. {} seeds.",
            setting.network.described(),
            setting.images[0],
            setting.network.images_name(&measured),
            setting.compute,
            setting.epsilon,
            pairs.collect::<Vec<_>>().join(", "),
            measured.seeds.len()
        ),
        labels: ["Accuracy at equal ε and compute", "σ", "test accuracy"].map(String::from),
        series: series.into(),
        verdicts: vec![overcharged(&choices), not_overcharged_is_best(&choices)],
    })
}

/// Returns the choices with a σ that is at least as large as TAN assumes, or the other ones.
fn of_sigma(choices: &[Choice], large: bool) -> impl Iterator<Item = &Choice> {
    choices.iter().filter(move |choice| (choice.sigma >= TAN_APPROXIMATION_LIMIT) == large)
}

/// Compares what the same ε buys at different σ.
fn overcharged(choices: &[Choice]) -> Verdict {
    let smallest =
        |large| of_sigma(choices, large).map(|choice| choice.eta).fold(f64::INFINITY, f64::min);
    let largest = choices.iter().map(|choice| choice.eta).fold(0.0, f64::max);
    let (least, small) = (smallest(true), smallest(false));
    let holds = least.is_finite() && least > 0.85 * largest && small < 0.85 * largest;
    Verdict::new(
        format!(
            "At equal ε and compute, η hardly depends on σ for σ ≥ {TAN_APPROXIMATION_LIMIT}, by \
             less than 15 %. A run with a smaller σ is overcharged: it has a smaller η."
        ),
        holds,
        [
            ("largest η", largest),
            ("smallest η at a large σ", least),
            ("smallest η at a small σ", small),
        ],
    )
}

/// Compares the best run that is not overcharged with the best one that is.
fn not_overcharged_is_best(choices: &[Choice]) -> Verdict {
    let best = |large| {
        let found = of_sigma(choices, large);
        let best = found.max_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
        best.map_or((f64::NAN, f64::NAN), |choice| (choice.accuracy, choice.batch))
    };
    let ((large, batch), (small, smaller)) = (best(true), best(false));
    Verdict::new(
        format!(
            "For a compute limit, the best batch size is one whose run is not overcharged: σ ≥ \
             {TAN_APPROXIMATION_LIMIT}."
        ),
        large > small,
        [
            ("best at a large σ", large),
            ("its batch size", batch),
            ("best at a small σ", small),
            ("batch size of the best at a small σ", smaller),
        ],
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn choices(of: [(f64, f64, f64); 3]) -> [Choice; 3] {
        of.map(|(sigma, eta, accuracy)| Choice { batch: 1.0, sigma, eta, accuracy })
    }

    #[test]
    fn a_small_sigma_buys_less_and_large_ones_the_same() {
        let holds = |small, large| {
            let choices = choices([(0.8, small, 0.5), (2.1, large, 0.5), (5.0, 0.20, 0.5)]);
            overcharged(&choices).holds
        };
        assert!(holds(0.12, 0.18));
        assert!(!holds(0.19, 0.18) && !holds(0.12, 0.15));
        assert!(!overcharged(&choices([(0.8, 0.1, 0.5), (1.0, 0.15, 0.5), (1.5, 0.2, 0.5)])).holds);
    }

    #[test]
    fn the_best_run_has_to_have_a_large_sigma() {
        let holds = |sigmas: [f64; 3]| {
            let [a, b, c] = sigmas;
            not_overcharged_is_best(&choices([(a, 0.1, 0.5), (b, 0.2, 0.7), (c, 0.2, 0.3)])).holds
        };
        assert!(holds([0.8, 2.1, 5.0]));
        assert!(!holds([0.5, 0.8, 2.1]) && !holds([0.5, 0.8, 1.1]));
    }

    #[test]
    fn the_runs_of_a_compute_limit_are_on_both_sides_of_the_limit_of_sigma() {
        for setting in [QUICK, PAPER] {
            let sigmas = setting.batches.map(|batch| {
                let plan = setting.plan(batch).unwrap();
                let computed = plan.steps as f64 * batch;
                assert!((computed / setting.compute - 1.0).abs() < 0.01);
                plan.noise_multiplier
            });
            let large = |sigma: &&f64| **sigma >= TAN_APPROXIMATION_LIMIT;
            assert_eq!(sigmas.iter().filter(large).count(), 2, "{sigmas:?}");
        }
    }
}
