//! Hyper-parameters that are chosen at a small batch, at the same σ/B and number of steps as a
//! large one.
//!
//! # References
//!
//! T. Sander, P. Stock, A. Sablayrolles, "TAN Without a Burn: Scaling Laws of DP-SGD", 2023,
//! section 3.3 and figure 1.

use burn_dp::DpError;
use burn_dp_accountant::RunPlan;
use burn_dp_examples::training::TrainError;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings, Preset};
use super::measured::Measured;
use super::point::is_inside;
use super::trial::{Network, SgdSettings, accuracies};
use super::verdict::{Above, Verdict};

pub(super) const NAME: &str = "tan-transfer";

/// The large run, the factor of the small one, and the learning rates of the grid.
struct Setting {
    /// The network; several that differ in the order of normalization and ReLU are compared, too.
    networks: &'static [Network],
    images: [usize; 2],
    large: RunPlan,
    factor: f64,
    /// Learning rates over 1 minus the momentum.
    rates: &'static [f64],
    /// Random shift of the images, in pixels, where they are shifted.
    shift: usize,
}

const MOMENTA: [f64; 2] = [0.0, 0.9];

const QUICK: Setting = Setting {
    networks: &[Network::Cnn],
    images: [8_000, 2_000],
    large: RunPlan { expected_batch_size: 256.0, noise_multiplier: 2.0, steps: 80 },
    factor: 8.0,
    rates: &[0.5, 1.0, 2.0, 4.0],
    shift: 2,
};

const PAPER: Setting = Setting {
    networks: &[Network::WRN_16_4, Network::WideResNet { depth: 16, factor: 4, norm_first: true }],
    images: [50_000, 10_000],
    large: RunPlan { expected_batch_size: 4096.0, noise_multiplier: 3.0, steps: 2_500 },
    factor: 16.0,
    rates: &[1.0, 2.0, 4.0, 8.0],
    shift: 4,
};

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let setting = Setting::of(measured.preset);
    let Setting { networks, images: sizes, large, factor, rates, .. } = setting;
    let small = large.scaled_down(factor).map_err(DpError::from)?;
    let lines = setting.lines();
    measured.expect(2 * lines.len() * rates.len() * measured.seeds.len());
    let mut series = Vec::new();
    for plan in [small, large] {
        for (line, name) in &lines {
            let mut points = Vec::new();
            for &rate in rates {
                let settings = SgdSettings { lr: rate * (1.0 - line.momentum), ..*line };
                let found = accuracies(measured, plan, settings, sizes)?;
                points.extend(FigurePoint::of(rate, &found));
            }
            series.push(FigureSeries { name: line_name(plan.expected_batch_size, name), points });
        }
    }
    let orders = match networks.len() {
        1 => "",
        _ => ", and with normalization before and after ReLU",
    };
    Ok(Findings {
        figure: "TAN Without a Burn, figure 1: hyper-parameters from a small batch".into(),
        setting: format!(
            "{}, {} images of {}, {} steps of SGD, σ/B constant: B = {} with σ = {}, and B = {} \
             with σ = {}, {} seeds. The grid has {} learning rates, each without momentum and, \
             times 0.1, with momentum 0.9, with images as they are, and shifted by up to {} \
             pixels{}{orders}.",
            networks[0].described(),
            sizes[0],
            networks[0].images_name(measured),
            large.steps,
            small.expected_batch_size,
            small.noise_multiplier,
            large.expected_batch_size,
            large.noise_multiplier,
            measured.seeds.len(),
            rates.len(),
            setting.shift,
            networks[0].mirrored()
        ),
        labels: [
            "Hyper-parameters at a small and at a large batch",
            "learning rate / (1 - momentum)",
            "test accuracy",
        ]
        .map(String::from),
        series,
        facts: Vec::new(),
    })
}

/// Returns the name of the line of a batch size.
fn line_name(batch: f64, name: &str) -> String {
    format!("B = {batch}, {name}")
}

impl Setting {
    fn of(preset: Preset) -> Self {
        if preset == Preset::Quick { QUICK } else { PAPER }
    }

    /// Returns the small and the large batch size.
    fn batches(&self) -> [f64; 2] {
        let large = self.large.expected_batch_size;
        [large / self.factor, large]
    }

    /// Returns everything that is compared but the learning rates, with its names.
    fn lines(&self) -> Vec<(SgdSettings, String)> {
        let mut lines = Vec::new();
        for &network in self.networks {
            let order = match network {
                Network::WideResNet { norm_first: true, .. } => ", normalized first",
                _ => "",
            };
            for (momentum, copies) in MOMENTA.into_iter().flat_map(|m| [(m, 0), (m, 1)]) {
                let (plain, shift) = (SgdSettings::plain(network, 1.0), self.shift);
                let shifted = if copies > 0 { ", shifted" } else { "" };
                let line = SgdSettings { momentum, copies, shift, ..plain };
                lines.push((line, format!("momentum {momentum}{shifted}{order}")));
            }
        }
        lines
    }
}

/// Compares the hyper-parameters at both batch sizes.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let setting = Setting::of(figure.preset);
    let lines = setting.lines();
    let grids = setting.batches().map(|batch| {
        let names = lines.iter().map(|(_, name)| line_name(batch, name));
        names.flat_map(|name| figure.line(&name).to_vec()).collect::<Vec<_>>()
    });
    let [small, large] = &grids;
    vec![transfers(small, large), ranks(small, large), within_the_grid(small, large)]
}

/// Compares what is best at the small batch with what is best at the large one. Where all
/// hyper-parameters are about equally good, there is nothing to transfer.
fn transfers(small: &[FigurePoint], large: &[FigurePoint]) -> Verdict {
    let index = (0..small.len()).max_by(|&a, &b| small[a].y.total_cmp(&small[b].y));
    let chosen = FigurePoint::largest(index.and_then(|index| large.get(index)));
    let (best, worst) = (FigurePoint::largest(large), FigurePoint::smallest(large));
    let tolerance = (best.high - best.low).max(0.01);
    let mut comparisons = vec![Above::new(("best", best), ("worst", worst)).by(tolerance)];
    // A choice is not behind itself, whatever its range over the seeds.
    if chosen != best {
        let chosen = ("chosen at the small batch", chosen);
        comparisons.push(Above::new(chosen, ("best", best)).by(-tolerance));
    }
    Verdict::comparing(
        "Hyper-parameters that are best at the small batch are good at the large one: the accuracy \
         is within the range over the seeds, or a point, of the best there, and the worst is not.",
        &comparisons,
    )
    .with([("chosen at the small batch", chosen.y), ("tolerance", tolerance)])
}

/// Compares the order of the hyper-parameters at both batches.
fn ranks(small: &[FigurePoint], large: &[FigurePoint]) -> Verdict {
    let accuracies = |grid: &[FigurePoint]| grid.iter().map(|point| point.y).collect::<Vec<f64>>();
    let found = rank_correlation(&accuracies(small), &accuracies(large));
    // The normal approximation of the one-sided test at 5 %.
    let chance = 1.645 / (small.len() as f64 - 1.0).sqrt();
    Verdict::new(
        "The small batch orders hyper-parameters as the large one does: the rank correlation is \
         higher than for 95 % of random orders.",
        found > chance,
        [("rank correlation", found), ("95 % of random orders", chance)],
    )
}

/// Says whether a better learning rate may lie outside of the grid.
fn within_the_grid(small: &[FigurePoint], large: &[FigurePoint]) -> Verdict {
    let rates = || small.iter().chain(large).map(|point| point.x);
    let [at_small, at_large] = [small, large].map(|grid| FigurePoint::largest(grid).x);
    Verdict::new(
        "At both batch sizes, the best learning rate is inside of the grid and not at its edge.",
        is_inside(rates(), at_small) && is_inside(rates(), at_large),
        [
            ("best learning rate / (1 - momentum) at the small batch", at_small),
            ("best learning rate / (1 - momentum) at the large batch", at_large),
        ],
    )
}

/// Returns Spearman's rank correlation.
fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let centered = |values: &[f64]| {
        let sign = |x: &f64, y: &f64| f64::from(x > y) - f64::from(x < y);
        let rank = |x: &f64| values.iter().map(|y| sign(x, y)).sum::<f64>();
        values.iter().map(rank).collect::<Vec<f64>>()
    };
    let (a, b) = (centered(a), centered(b));
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(accuracies: [f64; 4]) -> Vec<FigurePoint> {
        accuracies.map(|y| FigurePoint { x: 1.0, y, low: y - 0.01, high: y + 0.01 }).into()
    }

    #[test]
    fn the_choice_has_to_be_near_the_best_of_a_grid_that_makes_a_difference() {
        let large = grid([0.60, 0.80, 0.79, 0.70]);
        let holds = |small| transfers(&grid(small), &large).holds;
        assert!(holds([0.4, 0.6, 0.5, 0.4]) && holds([0.4, 0.5, 0.6, 0.4]));
        assert!(!holds([0.6, 0.5, 0.5, 0.4]) && !holds([0.4, 0.5, 0.5, 0.6]));
        let flat = grid([0.79, 0.80, 0.79, 0.79]);
        assert!(!transfers(&flat, &flat).holds);
        assert!(!transfers(&[], &[]).holds);
    }

    #[test]
    fn a_choice_that_is_the_best_one_is_good_for_every_seed() {
        let large = grid([0.60, 0.80, 0.79, 0.70]);
        let on_average = |small| transfers(&grid(small), &large).on_average;
        assert!(!on_average([0.4, 0.6, 0.5, 0.4]) && on_average([0.4, 0.5, 0.6, 0.4]));
    }

    #[test]
    fn the_best_learning_rates_have_to_be_inside_of_the_grid() {
        let of_rates = |accuracies: [f64; 3]| -> Vec<FigurePoint> {
            let points = [1.0, 2.0, 4.0].into_iter().zip(accuracies);
            points.map(|(rate, accuracy)| FigurePoint::exact(rate, accuracy)).collect()
        };
        let [low, inside, high] = [[0.7, 0.6, 0.5], [0.6, 0.7, 0.5], [0.5, 0.6, 0.7]].map(of_rates);
        assert!(within_the_grid(&inside, &inside).holds);
        assert!(!within_the_grid(&inside, &low).holds && !within_the_grid(&high, &inside).holds);
        assert!(!within_the_grid(&[], &[]).holds);
    }

    #[test]
    fn the_lines_of_both_batches_are_compared() {
        let lines = QUICK.batches().into_iter().flat_map(|batch| {
            QUICK.lines().into_iter().map(move |(_, name)| {
                let shift = if name.contains("shifted") { 0.1 } else { 0.0 };
                let accuracies = [0.5, 0.7, 0.6, 0.4].map(|accuracy| accuracy - shift);
                let points = QUICK.rates.iter().copied().zip(accuracies);
                FigureSeries::exact(line_name(batch, &name), points)
            })
        });
        let verdicts = judge(&Figure::of_lines(lines));
        assert!(verdicts.iter().all(|verdict| verdict.holds), "{verdicts:?}");
    }

    #[test]
    fn the_rank_correlation_has_its_known_values() {
        let order = [1.0, 2.0, 3.0, 4.0, 5.0];
        let correlation = |other: [f64; 5]| rank_correlation(&order, &other);
        assert!((correlation([0.1, 0.2, 0.3, 0.4, 9.0]) - 1.0).abs() < 1e-12);
        assert!((correlation([5.0, 4.0, 3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        // 1 - 6 Σ d² / (n (n² - 1)) with d² = 1, 1, 1, 1, 0.
        assert!((correlation([2.0, 1.0, 4.0, 3.0, 5.0]) - 0.8).abs() < 1e-12);
        assert!(correlation([1.0; 5]).is_nan());
    }

    #[test]
    fn equal_orders_hold_and_opposite_ones_do_not() {
        let small = grid([0.1, 0.2, 0.3, 0.4]);
        assert!(ranks(&small, &grid([0.5, 0.6, 0.7, 0.8])).holds);
        assert!(!ranks(&small, &grid([0.8, 0.7, 0.6, 0.5])).holds);
        assert!(!ranks(&small, &grid([0.5; 4])).holds);
    }
}
