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

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Preset};
use super::measured::Measured;
use super::point::is_inside;
use super::trial::{Network, SgdSettings, accuracies};
use super::verdict::{Above, Verdict};

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
    distances: [f64; 4],
}

const QUICK: Setting = Setting {
    network: Network::Cnn,
    images: [4_000, 2_000],
    epsilon: 1.0,
    compute: 15_360.0,
    batches: [20.0, 80.0, 320.0, 1_280.0],
    distances: [24.0, 48.0, 96.0, 192.0],
};

const PAPER: Setting = Setting {
    network: Network::WRN_16_4,
    images: [50_000, 10_000],
    epsilon: 8.0,
    compute: 4_096.0 * 2_500.0,
    batches: [256.0, 1_024.0, 4_096.0, 16_384.0],
    distances: [2_500.0, 5_000.0, 10_000.0, 20_000.0],
};

impl Setting {
    fn of(preset: Preset) -> Self {
        if preset == Preset::Quick { QUICK } else { PAPER }
    }

    /// Returns the number of steps at this batch size.
    fn steps(&self, batch: f64) -> u64 {
        (self.compute / batch).round() as u64
    }

    /// Returns the run with this batch size that spends compute and ε.
    fn plan(&self, batch: f64) -> Result<RunPlan, DpError> {
        let steps = self.steps(batch);
        let q = batch / self.images[0] as f64;
        let budget = Budget::new(self.epsilon, DELTA)?;
        let step = |sigma| DpEvent::dp_sgd_step(q, sigma);
        let noise_multiplier = calibrate_noise_multiplier(budget, steps, step)?;
        Ok(RunPlan { expected_batch_size: batch, noise_multiplier, steps })
    }

    /// Returns what each batch size achieves with its best learning rate.
    fn choices(&self, figure: &Figure) -> Vec<Choice> {
        let choice = |(index, &batch): (usize, &f64)| {
            let found = self.distances.iter().filter_map(|&distance| {
                Some((distance, *figure.line(&line(distance)).get(index)?))
            });
            let (distance, best) = found.max_by(|a, b| a.1.y.total_cmp(&b.1.y))?;
            let (sigma, q) = (best.x, batch / self.images[0] as f64);
            let total = TotalAmountOfNoise::new(q, sigma, self.steps(batch)).ok()?;
            Some(Choice { batch, sigma, eta: total.eta(), distance, best })
        };
        self.batches.iter().enumerate().filter_map(choice).collect()
    }
}

/// Returns the name of the line of a learning rate.
fn line(distance: f64) -> String {
    format!("learning rate {distance} / S")
}

/// A batch size, and what it achieves.
#[derive(Clone, Copy)]
struct Choice {
    batch: f64,
    sigma: f64,
    /// Signal over noise of the whole run.
    eta: f64,
    /// The best learning rate, times the number of steps.
    distance: f64,
    /// The accuracy with the best learning rate.
    best: FigurePoint,
}

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = Setting::of(measured.preset);
    measured.expect(setting.batches.len() * setting.distances.len() * measured.seeds.len());
    let mut pairs = Vec::new();
    let mut series =
        setting.distances.map(|distance| FigureSeries { name: line(distance), points: Vec::new() });
    for batch in setting.batches {
        let plan = setting.plan(batch)?;
        let sigma = plan.noise_multiplier;
        for (line, distance) in series.iter_mut().zip(setting.distances) {
            let lr = distance / plan.steps as f64;
            let settings = SgdSettings::plain(setting.network, lr);
            let found = accuracies(measured, plan, settings, setting.images)?;
            line.points.extend(FigurePoint::of(sigma, &found));
        }
        pairs.push(format!("{batch} ({sigma:.2})"));
    }
    Ok(Findings {
        figure: "TAN Without a Burn, section 3: batch size, noise and steps for a compute limit"
            .into(),
        setting: format!(
            "{}, {} images of {}, SGD. All runs compute B · S = {} images in S steps, and their \
             σ is calibrated to ε = {} at δ = {DELTA:e}: B (σ) = {}. Their learning rates are \
             constant numbers over S; each B is compared at its best of these. {} seeds.",
            setting.network.described(),
            setting.images[0],
            setting.network.images_name(measured),
            setting.compute,
            setting.epsilon,
            pairs.join(", "),
            measured.seeds.len()
        ),
        labels: ["Accuracy at equal ε and compute", "σ", "test accuracy"].map(String::from),
        series: series.into(),
        facts: Vec::new(),
    })
}

/// Compares the batch sizes, each at its best learning rate.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let setting = Setting::of(figure.preset);
    let choices = setting.choices(figure);
    let within = within_the_grid(&choices, &setting.distances);
    vec![overcharged(&choices), not_overcharged_is_best(&choices), within]
}

/// Returns the choices with a σ that is at least as large as TAN assumes, or the other ones.
fn of_sigma(choices: &[Choice], large: bool) -> impl Iterator<Item = &Choice> {
    choices.iter().filter(move |choice| (choice.sigma >= TAN_APPROXIMATION_LIMIT) == large)
}

/// Returns the best choice.
fn best<'a>(choices: impl Iterator<Item = &'a Choice>) -> Option<&'a Choice> {
    choices.max_by(|a, b| a.best.y.total_cmp(&b.best.y))
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
    let [large, small] = [true, false].map(|large| best(of_sigma(choices, large)));
    let accuracy = |choice: Option<&Choice>| FigurePoint::largest(choice.map(|one| &one.best));
    let ahead =
        Above::new(("best at a large σ", accuracy(large)), ("best at a small σ", accuracy(small)));
    let batch = |choice: Option<&Choice>| choice.map_or(f64::NAN, |choice| choice.batch);
    Verdict::comparing(
        format!(
            "For a compute limit, the best batch size is one whose run is not overcharged: σ ≥ \
             {TAN_APPROXIMATION_LIMIT}."
        ),
        &[ahead],
    )
    .with([("its batch size", batch(large)), ("batch size of the best at a small σ", batch(small))])
}

/// Says whether a better batch size or learning rate may lie outside of the grid.
fn within_the_grid(choices: &[Choice], distances: &[f64]) -> Verdict {
    let batches = choices.iter().map(|choice| choice.batch);
    let batch = best(choices.iter()).map_or(f64::NAN, |choice| choice.batch);
    let of_rates = |choice: &Choice| is_inside(distances.iter().copied(), choice.distance);
    let holds = is_inside(batches, batch) && choices.iter().all(of_rates);
    let name = |choice: &Choice| format!("best learning rate · S at B = {}", choice.batch);
    Verdict::new(
        "The best batch size, and the best learning rate at every batch size, are inside of the \
         grid and not at its edge.",
        holds,
        [("best batch size", batch)],
    )
    .with(choices.iter().map(|choice| (name(choice), choice.distance)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn choices(of: [(f64, f64, f64); 3]) -> [Choice; 3] {
        of.map(|(sigma, eta, accuracy)| {
            let best = FigurePoint::exact(sigma, accuracy);
            Choice { batch: 100.0 * sigma, sigma, eta, distance: 2.0, best }
        })
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
    fn the_best_batch_and_learning_rates_have_to_be_inside_of_the_grid() {
        let found = |accuracies: [f64; 3], distance| {
            let mut choices = choices([0.8, 2.1, 5.0].map(|sigma| (sigma, 0.2, 0.5)));
            for (choice, accuracy) in choices.iter_mut().zip(accuracies) {
                choice.best.y = accuracy;
            }
            choices[2].distance = distance;
            within_the_grid(&choices, &[1.0, 2.0, 3.0, 4.0])
        };
        assert!(found([0.5, 0.7, 0.6], 3.0).holds);
        assert!(!found([0.5, 0.7, 0.6], 4.0).holds && !found([0.5, 0.7, 0.6], 1.0).holds);
        assert!(!found([0.5, 0.6, 0.7], 3.0).holds && !found([0.7, 0.6, 0.5], 3.0).holds);
        assert!(!within_the_grid(&[], &[]).holds);
        let numbers = found([0.5, 0.7, 0.6], 3.0).numbers;
        assert_eq!(numbers["best learning rate · S at B = 500"], 3.0);
    }

    #[test]
    fn each_batch_is_judged_at_its_best_learning_rate() {
        let [small, large] = [0.9, 2.4];
        let [_, one, other, _] = QUICK.distances.map(line);
        let figure = Figure::of_lines([
            FigureSeries::exact(one, [(small, 0.6), (small, 0.7), (large, 0.5), (large, 0.6)]),
            FigureSeries::exact(other, [(small, 0.5), (small, 0.6), (large, 0.8), (large, 0.7)]),
        ]);
        let verdict = &judge(&figure)[1];
        assert!(verdict.holds);
        let number = |name| verdict.numbers[name];
        assert_eq!(number("best at a large σ"), 0.8);
        assert_eq!(number("its batch size"), QUICK.batches[2]);
        assert_eq!(number("best at a small σ"), 0.7);
        assert_eq!(number("batch size of the best at a small σ"), QUICK.batches[1]);
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
