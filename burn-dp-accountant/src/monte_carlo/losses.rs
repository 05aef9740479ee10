//! Random privacy losses, and bounds on δ from them.
//!
//! Losses `L = ln X` are drawn from the density `X^k/Z` with respect to `Q`, with `Z = E_Q[X^k]`.
//! The density of `P` with respect to it is `Z e^{-(k-1)L}`, so that `δ(ε) = E[Z e^{-(k-1)L} (1 -
//! e^{ε-L})^+]`. With `d = L - ε` the terms are `Z e^{-(k-1)ε}` times `e^{-(k-1)d} (1 - e^{-d})`
//! for `d > 0`, which is between 0 and its value at `e^{-d} = (k-1)/k`. A bound on the mean of
//! numbers in `[0, 1]` is therefore a bound on δ. With `k = 1` they are drawn from `P`; with `k`
//! near the Rényi order that dominates at `ε`, the bound on the terms is near δ itself, and a few
//! losses are sufficient.

use super::confidence::upper_mean;

/// Room for the rounding of a moment and of a mean.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Losses of one direction.
pub(super) struct SampledLosses {
    values: Vec<f64>,
    power: u32,
    ln_moment: f64,
}

/// Returns `k - 1`.
pub(super) fn tilt(power: u32) -> f64 {
    f64::from(power.max(1) - 1)
}

/// Returns the logarithm of the largest value of `e^{-(k-1)d} (1 - e^{-d})`.
pub(super) fn ln_largest(power: u32) -> f64 {
    let tilt = tilt(power);
    if tilt == 0.0 { 0.0 } else { tilt * (tilt / (tilt + 1.0)).ln() - (tilt + 1.0).ln() }
}

impl SampledLosses {
    /// Creates losses from the density of this power and the logarithm of its moment.
    pub(super) fn new(values: Vec<f64>, power: u32, ln_moment: f64) -> Self {
        Self { values, power, ln_moment }
    }

    /// Returns the mean of the terms over their largest value, which is the second number.
    fn mean(&self, epsilon: f64) -> (f64, f64) {
        let (tilt, largest) = (tilt(self.power), ln_largest(self.power).exp());
        let sum: f64 = self
            .values
            .iter()
            .map(|loss| match loss - epsilon {
                below if below <= 0.0 => 0.0,
                above if above < f64::INFINITY && tilt == 0.0 => -(-above).exp_m1(),
                above if above < f64::INFINITY => {
                    -(-tilt * above).exp() * (-above).exp_m1() / largest
                }
                // A loss that is NaN counts as the worst one.
                _ => 1.0,
            })
            .sum();
        let scale = (self.ln_moment - tilt * epsilon).exp() * largest;
        (sum / self.values.len() as f64, scale)
    }

    /// Returns the plain estimate of δ.
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let (mean, scale) = self.mean(epsilon);
        mean * scale
    }

    /// Returns a bound on δ that fails with probability at most `e^-ln_confidence`.
    pub(super) fn upper(&self, epsilon: f64, ln_confidence: f64) -> f64 {
        let (mean, scale) = self.mean(epsilon);
        scale * ROUNDING * upper_mean(mean, self.values.len(), ln_confidence)
    }
}

/// Returns the ε at which the estimate is `delta`, in the worse direction.
pub(super) fn plain_epsilon(losses: &[&SampledLosses], delta: f64) -> f64 {
    let delta_at = |e: f64| losses.iter().map(|one| one.delta(e)).fold(0.0, f64::max);
    let all = losses.iter().flat_map(|one| &one.values);
    let (mut low, mut high) = (0.0, all.fold(0.0f64, |m, loss| m.max(*loss)));
    if delta_at(0.0) <= delta {
        return 0.0;
    }
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if delta_at(middle) <= delta {
            high = middle
        } else {
            low = middle
        }
        if high - low <= 1e-9 * high {
            break;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gdp::GaussianDp;
    use crate::math::random::Generator;

    #[test]
    fn every_power_bounds_the_delta_of_a_gaussian_release() {
        let (mu, epsilon) = (1.5f64, 4.0);
        let truth = GaussianDp::new(mu).unwrap().delta(epsilon).unwrap();
        let mut spreads = Vec::new();
        for power in 1..=3 {
            let mut generator = Generator::new(9, u64::from(power));
            let center = (f64::from(power) - 0.5) * mu * mu;
            let values = (0..200_000).map(|_| center + mu * generator.normal()).collect();
            let ln_moment = 0.5 * f64::from(power * (power - 1)) * mu * mu;
            let losses = SampledLosses::new(values, power, ln_moment);
            let (plain, upper) = (losses.delta(epsilon), losses.upper(epsilon, 20.0));
            assert!((plain / truth - 1.0).abs() < 0.1, "{power}: {plain} {truth}");
            assert!(upper > truth && upper < 1.6 * truth, "{power}: {upper} {truth}");
            spreads.push(upper / truth);
        }
        assert!(spreads[1] < spreads[0] && spreads[1] < 1.1, "{spreads:?}");
    }

    #[test]
    fn losses_without_a_number_count_as_the_worst() {
        for power in 1..=3 {
            let losses = SampledLosses::new(vec![f64::NAN, f64::INFINITY, -1.0, -1.0], power, 0.0);
            let most = ln_largest(power).exp();
            assert!((losses.delta(0.0) / (0.5 * most) - 1.0).abs() < 1e-12, "{power}");
        }
    }
}
