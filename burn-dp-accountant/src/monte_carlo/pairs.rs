//! Random privacy losses of dominating pairs.

use crate::dominating_pairs::{Direction, Pair, ln_mixture};
use crate::math::random::Generator;

/// Maximum power of the likelihood ratio that losses are drawn from.
pub(super) const LARGEST_POWER: u32 = 3;

/// Returns the cumulative probabilities of `j` draws under the density `X^power/E_Q[X^power]` of a
/// Poisson-sampled Gaussian release, where the mean is `j μ`, and the logarithm of the moment: the
/// binomial sum `Σ_j C(power, j) (1-q)^(power-j) q^j e^{j(j-1)μ²/2}`.
pub(super) fn sampled_powers(
    q: f64,
    mu: f64,
    power: u32,
) -> ([f64; LARGEST_POWER as usize + 1], f64) {
    let mut sums = [1.0; LARGEST_POWER as usize + 1];
    let (mut sum, mut choices) = (0.0, 1.0);
    for j in 0..=power.min(LARGEST_POWER) {
        let drawn = f64::from(j);
        let exponent = 0.5 * drawn * (drawn - 1.0) * mu * mu;
        sum += choices * (1.0 - q).powi((power - j) as i32) * q.powi(j as i32) * exponent.exp();
        sums[j as usize] = sum;
        choices *= f64::from(power - j) / (drawn + 1.0);
    }
    sums.iter_mut().take(power as usize + 1).for_each(|part| *part /= sum);
    (sums, sum.ln())
}

/// Returns whether the losses of a pair can be drawn.
pub(super) fn has_losses(pair: &Pair) -> bool {
    match pair {
        Pair::Gaussian { .. } | Pair::Sampled { .. } | Pair::Substituted { .. } => true,
        Pair::Mixture { components, .. } => components.iter().all(|(_, pair)| has_losses(pair)),
        _ => false,
    }
}

pub(super) fn loss_of_pair(pair: &Pair, direction: Direction, generator: &mut Generator) -> f64 {
    let mut outcome = |q: f64, mu: f64| {
        let shift = if generator.uniform() < q { mu } else { 0.0 };
        shift + generator.normal()
    };
    match *pair {
        Pair::Gaussian { mu } => mu * outcome(0.0, mu) + 0.5 * mu * mu,
        Pair::Sampled { q, mu } if direction == Direction::Remove => {
            ln_mixture(q, mu, outcome(q, mu))
        }
        Pair::Sampled { q, mu } => -ln_mixture(q, mu, outcome(0.0, mu)),
        Pair::Substituted { q, mu } => {
            let x = outcome(q, mu);
            ln_mixture(q, mu, x) - ln_mixture(q, mu, -x)
        }
        Pair::Mixture { ref components, .. } => {
            let mut left = generator.uniform();
            let chosen = components.iter().find(|(weight, _)| {
                left -= weight;
                left < 0.0
            });
            match chosen.or(components.last()) {
                Some((_, pair)) => loss_of_pair(pair, direction, generator),
                None => 0.0,
            }
        }
        _ => f64::NAN,
    }
}
