//! A unit at random steps of a run, with consecutive contributions.
//!
//! A run is followed by rows without a participation, one for each entry of the column after the
//! first: the real run is a function of the longer one, and every contribution has the whole norm
//! of the column.

use crate::math::random::Generator;

/// The steps of a unit.
#[derive(Debug, Clone, Copy)]
pub(super) enum StepRule {
    /// Each step with probability `p`, except in the `separation - 1` steps after one of them; with
    /// `warm_start`, the first step is in the stationary state. The column is not longer than the
    /// separation.
    Separated {
        /// Minimum distance between two steps.
        separation: usize,
        /// Probability of a step.
        p: f64,
        /// Whether the first step is in the stationary state.
        warm_start: bool,
    },
    /// One uniformly random step of each epoch of `bins` steps. The column is not longer than an
    /// epoch.
    Epochs {
        /// Steps of an epoch.
        bins: usize,
    },
}

/// A run of steps with a Toeplitz strategy without negative coefficients.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    rule: StepRule,
    steps: usize,
    /// The first column over the noise.
    column: Vec<f64>,
    /// `1 - e^{-X(d)}` for the inner product `X(d)` of two columns at the distance `d + 1`.
    overlaps: Vec<f64>,
    half: f64,
}

/// Likelihood ratios are rescaled beyond this size.
const LARGE: f64 = 1e150;

impl Sequence {
    /// Creates a run of `steps` steps.
    pub(super) fn new(rule: StepRule, steps: usize, column: Vec<f64>) -> Self {
        let product =
            |d: usize| -> f64 { column.iter().zip(&column[d..]).map(|(a, b)| a * b).sum() };
        let overlaps = match rule {
            StepRule::Epochs { .. } => (1..column.len()).map(|d| -(-product(d)).exp_m1()).collect(),
            StepRule::Separated { .. } => Vec::new(),
        };
        let half = 0.5 * product(0);
        Self { rule, steps, column, overlaps, half }
    }

    /// Returns about how many random numbers a loss takes.
    pub(super) fn work(&self) -> f64 {
        self.steps as f64 * (2.0 + 0.1 * self.column.len() as f64)
    }

    /// Returns the mean and the variance of a linear lower bound of the logarithm of the likelihood
    /// ratio without the unit: the mean over the patterns of the exponents (Jensen's inequality).
    pub(super) fn lower_bound(&self) -> (f64, f64) {
        let probabilities = self.probabilities();
        let mut mean = vec![0.0; self.steps + self.column.len() - 1];
        for (step, probability) in probabilities.iter().enumerate() {
            let rows = mean[step..].iter_mut().zip(&self.column);
            rows.for_each(|(row, c)| *row += probability * c);
        }
        // Patterns of several steps also have the inner products of their columns.
        let overlap = match self.rule {
            StepRule::Separated { .. } => 0.0,
            StepRule::Epochs { bins } => {
                // The last step of an epoch minus j and the first step of the next one plus k.
                let products = self.overlaps.iter().map(|overlap| -(-overlap).ln_1p());
                let pairs = products.enumerate().map(|(d, x)| (d + 1) as f64 * x);
                let ends = (self.steps / bins).saturating_sub(1) as f64;
                ends * pairs.sum::<f64>() / (bins * bins) as f64
            }
        };
        let expected: f64 = probabilities.iter().sum();
        (-self.half * expected - overlap, mean.iter().map(|m| m * m).sum())
    }

    /// Returns the probability that a unit takes part, for each step.
    fn probabilities(&self) -> Vec<f64> {
        match self.rule {
            StepRule::Epochs { bins } => vec![1.0 / bins as f64; self.steps],
            StepRule::Separated { separation, p, warm_start: true } => {
                vec![p * ready(separation, p); self.steps]
            }
            StepRule::Separated { separation, p, warm_start: false } => {
                let mut found = Vec::with_capacity(self.steps);
                // The probability that the unit pauses.
                let mut pauses = 0.0;
                for t in 0..self.steps {
                    if t >= separation {
                        pauses -= found[t - separation];
                    }
                    let probability: f64 = p * (1.0 - pauses);
                    pauses += probability;
                    found.push(probability);
                }
                found
            }
        }
    }

    /// Draws the logarithm of the likelihood ratio, from the output with the unit or without it.
    pub(super) fn loss(
        &self,
        with_unit: bool,
        generator: &mut Generator,
        scratch: &mut [Vec<f64>; 2],
    ) -> f64 {
        let [output, ratios] = scratch;
        self.draw_output(with_unit, generator, output);
        self.ln_ratio(output, ratios)
    }

    /// Draws the logarithm of the ratio of the likelihoods with the unit and with one that replaces
    /// it, whose contributions are opposite, from the output with the unit.
    pub(super) fn replaced_loss(
        &self,
        generator: &mut Generator,
        scratch: &mut [Vec<f64>; 2],
    ) -> f64 {
        let [output, ratios] = scratch;
        self.draw_output(true, generator, output);
        let with_unit = self.ln_ratio(output, ratios);
        output.iter_mut().for_each(|y| *y = -*y);
        with_unit - self.ln_ratio(output, ratios)
    }

    fn draw_output(&self, with_unit: bool, generator: &mut Generator, output: &mut Vec<f64>) {
        output.clear();
        output.extend((0..self.steps + self.column.len() - 1).map(|_| generator.normal()));
        if with_unit {
            self.take_part(output, generator);
        }
    }

    /// Returns the logarithm of the likelihood ratio at an output; `ratios` is overwritten.
    fn ln_ratio(&self, output: &[f64], ratios: &mut Vec<f64>) -> f64 {
        ratios.clear();
        ratios.extend(output.windows(self.column.len()).map(|rows| {
            let dot: f64 = rows.iter().zip(&self.column).map(|(y, c)| y * c).sum();
            (dot - self.half).exp()
        }));
        match self.rule {
            StepRule::Separated { separation, p, warm_start } => {
                separated(ratios, separation, p, warm_start)
            }
            StepRule::Epochs { bins } => self.epochs(ratios, bins),
        }
    }

    /// Adds the contributions of a unit at random steps.
    fn take_part(&self, output: &mut [f64], generator: &mut Generator) {
        let mut add = |step: usize| {
            output[step..].iter_mut().zip(&self.column).for_each(|(y, c)| *y += c);
        };
        match self.rule {
            StepRule::Separated { separation, p, warm_start } => {
                let mut step = 0;
                if warm_start && generator.uniform() >= ready(separation, p) {
                    step = 1 + generator.below(separation as u64 - 1) as usize;
                }
                while step < self.steps {
                    if generator.uniform() < p {
                        add(step);
                        step = step.saturating_add(separation);
                    } else {
                        step += 1;
                    }
                }
            }
            StepRule::Epochs { bins } => {
                for first in (0..self.steps).step_by(bins) {
                    add(first + generator.below(bins as u64) as usize);
                }
            }
        }
    }

    /// Returns the logarithm of the likelihood ratio of one step of each epoch, from the ratios of
    /// the steps. The weight of a step is multiplied by the weights of the previous epoch, minus
    /// the effect of the overlap of two contributions: `e^{-X}`, because `|c + c'|² = |c|² +
    /// |c'|² + 2 ⟨c, c'⟩`.
    fn epochs(&self, ratios: &mut [f64], bins: usize) -> f64 {
        let (mut ln_scale, mut total) = (0.0, 1.0);
        for first in (0..self.steps).step_by(bins) {
            for t in first..first + bins {
                let before = ratios[..first]
                    .iter()
                    .rev()
                    .zip(&self.overlaps[(t - first).min(self.overlaps.len())..]);
                let lost: f64 = before.map(|(weight, overlap)| weight * overlap).sum();
                ratios[t] *= (total - lost).max(0.0);
            }
            let epoch = &mut ratios[first..first + bins];
            let mean = epoch.iter().sum::<f64>() / bins as f64;
            ln_scale += mean.ln();
            // The weights of an epoch add up to 1.
            epoch.iter_mut().for_each(|weight| *weight /= mean * bins as f64);
            total = 1.0;
        }
        ln_scale
    }
}

/// Returns the stationary probability that a unit may take part.
fn ready(separation: usize, p: f64) -> f64 {
    1.0 / (1.0 + p * (separation - 1) as f64)
}

/// Returns the logarithm of the likelihood ratio of separated steps from the ratios of the steps,
/// which are overwritten: backwards, the likelihood ratio of the rest of the run from each step for
/// a unit that may take part in it.
fn separated(ratios: &mut [f64], separation: usize, p: f64, warm_start: bool) -> f64 {
    let steps = ratios.len();
    // The likelihood ratio after the last step, on the current scale.
    let (mut ln_scale, mut end) = (0.0, 1.0);
    let mut next = 1.0;
    for t in (0..steps).rev() {
        let later = if t + separation < steps { ratios[t + separation] } else { end };
        next = (1.0 - p) * next + p * ratios[t] * later;
        ratios[t] = next;
        if !(1.0 / LARGE..LARGE).contains(&next) && next > 0.0 && next.is_finite() {
            let window = &mut ratios[t..(t + separation).min(steps)];
            window.iter_mut().for_each(|ratio| *ratio /= next);
            end /= next;
            ln_scale += next.ln();
            next = 1.0;
        }
    }
    if warm_start {
        let ready = ready(separation, p);
        let later: f64 = (1..separation).map(|wait| ratios.get(wait).copied().unwrap_or(end)).sum();
        next = ready * (next + p * later);
    }
    ln_scale + next.ln()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::{PatternedGaussian, RandomParticipation};

    const COLUMN: [f64; 3] = [1.0, 0.5, 0.25];
    const SIGMA: f64 = 0.8;

    fn sequence(rule: StepRule, steps: usize) -> Sequence {
        Sequence::new(rule, steps, COLUMN.map(|c| c / SIGMA).to_vec())
    }

    fn output(length: usize) -> Vec<f64> {
        let mut generator = Generator::new(3, 1);
        (0..length).map(|_| 2.0 * generator.normal() + 0.3).collect()
    }

    /// The logarithm of the mean over all patterns of the likelihood ratio, with its weights.
    fn by_definition(patterns: &[(f64, Vec<usize>)], output: &[f64]) -> f64 {
        let ratio = |steps: &Vec<usize>| {
            let mut mean = vec![0.0; output.len()];
            for step in steps {
                mean[*step..].iter_mut().zip(COLUMN).for_each(|(m, c)| *m += c / SIGMA);
            }
            let terms = mean.iter().zip(output).map(|(m, y)| m * y - 0.5 * m * m);
            terms.sum::<f64>().exp()
        };
        patterns.iter().map(|(weight, steps)| weight * ratio(steps)).sum::<f64>().ln()
    }

    #[test]
    fn fresh_bins_with_overlaps_are_the_mean_over_all_choices() {
        let output = output(11);
        let mut patterns = Vec::new();
        for choice in 0..27 {
            let steps = vec![choice % 3, 3 + choice / 3 % 3, 6 + choice / 9];
            patterns.push((1.0 / 27.0, steps));
        }
        let found = sequence(StepRule::Epochs { bins: 3 }, 9).ln_ratio(&output, &mut Vec::new());
        let truth = by_definition(&patterns, &output);
        assert!((found - truth).abs() < 1e-12, "{found} {truth}");
    }

    #[test]
    fn separated_steps_have_the_loss_of_the_pattern() {
        // The rows after the last step are steps without a participation.
        for (separation, warm_start) in [(3, false), (5, true), (40, true)] {
            let rule = StepRule::Separated { separation, p: 0.3, warm_start };
            let pattern = PatternedGaussian {
                participation: RandomParticipation::MinimumSeparation {
                    separation: separation as u64,
                    sampling_probability: 0.3,
                    warm_start,
                },
                steps: 1,
                column: COLUMN.to_vec(),
                noise_multiplier: SIGMA,
            };
            let output = output(14);
            // Patterns by their definition, with the stationary start as a wait.
            let ready = if warm_start { ready(separation, 0.3) } else { 1.0 };
            let mut patterns = Vec::new();
            let waits = if warm_start { separation } else { 1 };
            for wait in 0..waits {
                let weight = if wait == 0 { ready } else { ready * 0.3 };
                extend(&mut patterns, weight, Vec::new(), wait, separation);
            }
            let total: f64 = patterns.iter().map(|(weight, _)| weight).sum();
            assert!((total - 1.0).abs() < 1e-12, "{total}");
            let found = sequence(rule, 12).ln_ratio(&output, &mut Vec::new());
            let truth = by_definition(&patterns, &output);
            assert!((found - truth).abs() < 1e-12, "{pattern:?}: {found} {truth}");
        }
    }

    fn extend(
        patterns: &mut Vec<(f64, Vec<usize>)>,
        weight: f64,
        steps: Vec<usize>,
        at: usize,
        separation: usize,
    ) {
        if at >= 12 {
            return patterns.push((weight, steps));
        }
        let with = [&steps[..], &[at]].concat();
        extend(patterns, 0.3 * weight, with, at + separation, separation);
        extend(patterns, 0.7 * weight, steps, at + 1, separation);
    }

    #[test]
    fn long_runs_neither_overflow_nor_underflow() {
        for (p, shift) in [(0.9, 4.0), (0.9, -4.0)] {
            let rule = StepRule::Separated { separation: 3, p, warm_start: true };
            let one = sequence(rule, 3_000);
            let output = vec![shift; 3_002];
            let loss = one.ln_ratio(&output, &mut Vec::new());
            assert!(loss.is_finite() && loss.abs() > 800.0, "{loss}");
        }
        let epochs = sequence(StepRule::Epochs { bins: 3 }, 3_000);
        let loss = epochs.ln_ratio(&vec![4.0; 3_002], &mut Vec::new());
        assert!(loss.is_finite() && loss > 800.0, "{loss}");
    }

    #[test]
    fn linear_bound_is_below_the_logarithm_of_the_ratio() {
        for rule in [
            StepRule::Separated { separation: 4, p: 0.2, warm_start: false },
            StepRule::Separated { separation: 4, p: 0.2, warm_start: true },
            StepRule::Epochs { bins: 4 },
        ] {
            let one = sequence(rule, 8);
            // The exponents have their mean at an output of zeros, and a slope of the mean.
            let (mean, variance) = one.lower_bound();
            let mut generator = Generator::new(4, 4);
            let probabilities = one.probabilities();
            let mut sums = [0.0; 2];
            for _ in 0..20_000 {
                let output: Vec<f64> = (0..10).map(|_| generator.normal()).collect();
                let linear: f64 = probabilities
                    .iter()
                    .zip(output.windows(3))
                    .map(|(p, rows)| {
                        p * rows.iter().zip(&one.column).map(|(y, c)| y * c).sum::<f64>()
                    })
                    .sum();
                let loss = one.ln_ratio(&output, &mut Vec::new());
                assert!(loss >= linear + mean - 1e-12, "{rule:?}: {loss} {linear} {mean}");
                sums[0] += linear * linear;
                sums[1] += f64::from(u8::from(loss < linear + mean + 0.05));
            }
            assert!((sums[0] / 2e4 / variance - 1.0).abs() < 0.05, "{rule:?}: {sums:?}");
        }
        // Patterns of one step in each of two epochs, by the definition.
        let one = sequence(StepRule::Epochs { bins: 4 }, 8);
        let column = COLUMN.map(|c| c / SIGMA);
        let product = |d: usize| -> f64 {
            column.iter().zip(column.get(d..).unwrap_or(&[])).map(|(a, b)| a * b).sum()
        };
        let mut truth = 0.0;
        for i in 0..4usize {
            for j in 4..8usize {
                truth -= (product(0) + product(j - i)) / 16.0;
            }
        }
        assert!((one.lower_bound().0 - truth).abs() < 1e-12);
    }

    #[test]
    fn drawn_losses_belong_to_the_drawn_outputs() {
        // E_P[1/X] = 1 and E_Q[X] = 1.
        for rule in [
            StepRule::Separated { separation: 4, p: 0.2, warm_start: false },
            StepRule::Separated { separation: 4, p: 0.2, warm_start: true },
            StepRule::Epochs { bins: 4 },
        ] {
            let one = Sequence::new(rule, 8, COLUMN.map(|c| 0.6 * c).to_vec());
            let mut generator = Generator::new(11, 2);
            let mut scratch = Default::default();
            let mut sums = [0.0; 3];
            for _ in 0..200_000 {
                sums[0] += (-one.loss(true, &mut generator, &mut scratch)).exp();
                sums[1] += one.loss(false, &mut generator, &mut scratch).exp();
                // E_P[Y/X] = 1 where the unit is replaced.
                sums[2] += (-one.replaced_loss(&mut generator, &mut scratch)).exp();
            }
            for sum in sums {
                assert!((sum / 2e5 - 1.0).abs() < 0.02, "{rule:?}: {sum}");
            }
        }
    }
}
