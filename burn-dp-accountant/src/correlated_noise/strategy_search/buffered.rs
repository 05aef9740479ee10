//! The search for buffered linear Toeplitz (BLT) strategies.

use super::super::series;
use super::super::strategy::{Strategy, StrategyMatrix};
use super::StrategySearch;
use super::minimizer::minimize;
use super::slopes::{error_slope, majorant_slope};
use crate::error::AccountantError;

/// Maximum number of buffers in a search.
pub(super) const MAX_BUFFERS: u64 = 16;

/// Range of `ln(1 - θ)`: θ stays between 0 and 1.
const DECAYS: (f64, f64) = (-25.0, -1e-6);
/// Range of `ln ω`: ω stays positive.
const WEIGHTS: (f64, f64) = (-30.0, 1.0);

/// Ranges of `s` of the first approximations: below `-ln(steps) / 2`, and the largest.
const RANGES: [(f64, f64); 2] = [(0.0, 0.5), (1.5, 1.0)];

/// Returns the best strategy of `count` buffers. `smaller` is a strategy with one fewer buffer,
/// which one of the searches starts from.
pub(super) fn search(
    search: &StrategySearch,
    count: u64,
    smaller: Option<&Strategy>,
) -> Result<Strategy, AccountantError> {
    let count = count as usize;
    let mut starts = RANGES.map(|range| rational(search.len(), count, range)).to_vec();
    if let Some(StrategyMatrix::Buffered { theta, omega }) = smaller.map(Strategy::matrix) {
        starts.push(with_one_more(theta, omega));
    }
    let found = starts.into_iter().map(|(theta, omega)| {
        let decays = theta.iter().map(|theta| (-theta).ln_1p().clamp(DECAYS.0, DECAYS.1));
        let weights = omega.iter().map(|omega| omega.ln().clamp(WEIGHTS.0, WEIGHTS.1));
        let start: Vec<f64> = decays.chain(weights).collect();
        let (x, _) = minimize(&start, |x| value_and_gradient(search, x));
        let (theta, omega) = parameters(&x);
        Strategy::buffered(search.steps, &theta, &omega)
    });
    let found: Vec<Strategy> = found.collect::<Result<_, _>>()?;
    search.best_of(found)
}

/// Returns θ and ω from their logarithms.
fn parameters(x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (decays, weights) = x.split_at(x.len() / 2);
    let theta = decays.iter().map(|decay| -decay.exp_m1());
    (theta.collect(), weights.iter().map(|weight| weight.exp()).collect())
}

/// Returns a rational approximation of `1 / √(1 - x)`, by the midpoint rule for
/// `(2/π) ∫ e^s / (e^2s + 1 - x) ds`.
fn rational(steps: usize, count: usize, (below, last): (f64, f64)) -> (Vec<f64>, Vec<f64>) {
    let first = -0.5 * (steps as f64 + 1.0).ln() - below;
    let width = (last - first) / count as f64;
    let nodes = (0..count).map(|i| first + width * (i as f64 + 0.5));
    nodes
        .map(|s| {
            let theta = 1.0 / (1.0 + (2.0 * s).exp());
            (theta, 2.0 * width / std::f64::consts::PI * s.exp() * theta * theta)
        })
        .unzip()
}

/// Adds a buffer of small weight, in the widest gap between the decays or beyond them.
fn with_one_more(theta: &[f64], omega: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut places: Vec<f64> = theta.iter().map(|theta| (-theta).ln_1p()).collect();
    places.extend([-14.0, 0.0]);
    places.sort_by(f64::total_cmp);
    let gap = |pair: &&[f64]| pair[1] - pair[0];
    let widest = places.windows(2).max_by(|a, b| gap(a).total_cmp(&gap(b)));
    let place = widest.map_or(-1.0, |pair| 0.5 * (pair[0] + pair[1]));
    let weight = 1e-2 * omega.iter().sum::<f64>();
    ([theta, &[-place.exp_m1()]].concat(), [omega, &[weight]].concat())
}

/// Returns the logarithm of the loss, and its gradient with respect to `ln(1 - θ)` and `ln ω`.
///
/// `None` outside the ranges.
fn value_and_gradient(search: &StrategySearch, x: &[f64]) -> Option<(f64, Vec<f64>)> {
    let (decays, weights) = x.split_at(x.len() / 2);
    let within = |values: &[f64], range: (f64, f64)| {
        values.iter().all(|value| (range.0..=range.1).contains(value))
    };
    if !within(decays, DECAYS) || !within(weights, WEIGHTS) {
        return None;
    }
    let (theta, omega) = parameters(x);
    let n = search.len();
    let strategy = series::buffered(&theta, &omega, n);
    let sensitivity = majorant_slope(search, &strategy);
    let states = Inverse::new(&theta, &omega, n);
    let error = error_slope(search, &states.noise);
    let count = theta.len();
    let mut gradient = vec![0.0; 2 * count];
    // C: c_t = Σ ω θ^(t-1).
    for i in 0..count {
        let (mut power, mut before) = (1.0, 0.0);
        let (mut of_theta, mut of_omega) = (0.0, 0.0);
        for (t, slope) in sensitivity.gradient.iter().enumerate().skip(1) {
            of_omega += slope * power;
            of_theta += slope * (t - 1) as f64 * before;
            (before, power) = (power, power * theta[i]);
        }
        gradient[i] = omega[i] * of_theta / sensitivity.value;
        gradient[count + i] = of_omega / sensitivity.value;
    }
    states.add_gradient(&theta, &omega, &error.gradient, 1.0 / error.value, &mut gradient);
    for i in 0..count {
        gradient[i] *= theta[i] - 1.0;
        gradient[count + i] *= omega[i];
    }
    Some((error.value.ln() + sensitivity.value.ln(), gradient))
}

/// The coefficients of `C^-1`, with the state of the buffers before each step.
struct Inverse {
    noise: Vec<f64>,
    states: Vec<f64>,
}

impl Inverse {
    fn new(theta: &[f64], omega: &[f64], n: usize) -> Self {
        let count = theta.len();
        let (mut noise, mut states) = (Vec::with_capacity(n), Vec::with_capacity(n * count));
        let mut buffers = vec![0.0; count];
        for t in 0..n {
            states.extend_from_slice(&buffers);
            let kept: f64 = omega.iter().zip(&buffers).map(|(omega, s)| omega * s).sum();
            let value = if t == 0 { 1.0 } else { -kept };
            buffers.iter_mut().zip(theta).for_each(|(s, theta)| *s = theta * *s + value);
            noise.push(value);
        }
        Self { noise, states }
    }

    /// Adds `scale` times the gradient with respect to θ and ω, by running backwards.
    fn add_gradient(
        &self,
        theta: &[f64],
        omega: &[f64],
        of_noise: &[f64],
        scale: f64,
        gradient: &mut [f64],
    ) {
        let count = theta.len();
        let mut of_states = vec![0.0; count];
        for (t, slope) in of_noise.iter().enumerate().rev() {
            let states = &self.states[t * count..(t + 1) * count];
            let of_value = slope + of_states.iter().sum::<f64>();
            for i in 0..count {
                gradient[i] += scale * of_states[i] * states[i];
                gradient[count + i] -= scale * of_value * states[i];
                of_states[i] = theta[i] * of_states[i] - omega[i] * of_value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Objective;
    use super::*;

    #[test]
    fn gradient_agrees_with_differences() {
        let x = [-0.05f64, -1.2, -2.0, -1.1];
        for (objective, times, separation) in [(Objective::Mean, 3, 7), (Objective::Max, 1, 1)] {
            let search = StrategySearch::new(40).unwrap().with_objective(objective);
            let search = search.with_participation(times, separation).unwrap();
            let gradient = value_and_gradient(&search, &x).unwrap().1;
            for i in 0..4 {
                let moved = |by: f64| {
                    let mut moved = x;
                    moved[i] += by;
                    value_and_gradient(&search, &moved).unwrap().0
                };
                let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((gradient[i] - difference).abs() < 1e-8, "{i} {gradient:?} {difference}");
            }
        }
    }

    #[test]
    fn start_is_close_to_the_inverse_square_root() {
        let (theta, omega) = rational(1_000, 8, RANGES[1]);
        let c = series::buffered(&theta, &omega, 1_000);
        for (t, root) in series::inverse_square_root(1_000).iter().enumerate().skip(1) {
            assert!((0.75..1.0).contains(&(c[t] / root)), "{t}: {} {root}", c[t]);
        }
    }
}
