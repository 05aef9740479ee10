//! Values of the moment generating function along one contour, and their inversion.

use super::rare_losses::RareLosses;
use crate::dominating_pairs::{
    BLOCK, ContourMoments, Direction, Pair, Tail, panel_nodes, trapezoidal_nodes,
};
use crate::math::complex::Complex64;

/// The losses that take part, and the limits of their work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LossRange {
    /// All losses: cheap, for integrands that decay quickly.
    Whole,
    /// Losses up to this one; the others have a closed form ([`RareLosses`]).
    Below(f64),
}

impl LossRange {
    /// Returns the largest number of points; more mean that the integrand decays too slowly.
    fn most_points(self) -> usize {
        match self {
            Self::Whole => 4096,
            Self::Below(_) => 1 << 17,
        }
    }

    /// Returns the largest number of node evaluations: about ten milliseconds, or half a second.
    fn most_work(self) -> usize {
        match self {
            Self::Whole => 3_000_000,
            Self::Below(_) => 200_000_000,
        }
    }
}

/// Size of a value relative to the first below which it does not count.
const NEGLIGIBLE: f64 = 1e-16;

/// Number of octaves beyond the first negligible value in which the integrand is looked at.
///
/// If a drawn unit has about the same loss in every release, the losses nearly form a lattice, and
/// the integrand is negligible between its peaks.
const OCTAVES: usize = 5;

/// Values of `M(s)/(s(s+1))` on one contour, relative to a common factor.
pub(super) struct ContourValues {
    theta: f64,
    step: f64,
    /// `ln M(θ)`.
    ln_scale: f64,
    /// `M(s)/(M(θ) s (s+1))`, without the factor `e^{-sε}`.
    values: Vec<Complex64>,
    /// Size of the last value relative to the first.
    pub(super) remainder: f64,
    /// The losses in closed form.
    rare: Option<RareLosses>,
}

impl ContourValues {
    /// Evaluates the contour through `theta` with aliases `period` apart. `frequency` is a first
    /// guess of the end of the integrand.
    pub(super) fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        domain: LossRange,
        theta: f64,
        period: f64,
        frequency: f64,
    ) -> Option<Self> {
        let step = 2.0 * std::f64::consts::PI / period;
        let rare = match domain {
            LossRange::Whole => None,
            LossRange::Below(cut) => Some(RareLosses::above(parts, direction, cut)?),
        };
        let rules = |capacity| MomentSources::new(parts, direction, domain, theta, capacity);
        let mut capacity = frequency.max(BLOCK as f64 * step);
        let mut rule = rules(capacity)?;
        let ln_scale = rule.ln_scale(theta);
        let mut values = Vec::with_capacity(128);
        let mut remainder = 1.0;
        let mut work = 0;
        let first = 1.0 / (theta * (theta + 1.0));
        let size = |s: Complex64, moment: Complex64| {
            let value = (moment - ln_scale).exp() / (s * (s + 1.0));
            (value, value.norm() / first)
        };
        // The last frequency, of some beyond `end`, at which the integrand is not negligible; 0 if
        // there is none.
        let last_return = |end: f64| {
            let rule = rules(end * f64::from(1u32 << OCTAVES))?;
            let mut last = 0.0;
            for octave in 0..OCTAVES {
                let start = end * f64::from(1u32 << octave);
                let step = start / BLOCK as f64;
                for (k, moment) in rule.ln_moments(theta, start, step).into_iter().enumerate() {
                    let t = start + step * k as f64;
                    if size(Complex64::new(theta, t), moment).1 >= NEGLIGIBLE {
                        last = t;
                    }
                }
            }
            Some(last)
        };
        let mut known_return = 0.0;
        'contour: while values.len() < domain.most_points() {
            let start = step * values.len() as f64;
            let end = start + step * BLOCK as f64;
            if end > capacity {
                capacity = end.max(1.7 * capacity);
                rule = rules(capacity)?;
            }
            for (k, moment) in rule.ln_moments(theta, start, step).into_iter().enumerate() {
                let s = Complex64::new(theta, start + step * k as f64);
                let (value, relative) = size(s, moment);
                remainder = relative;
                values.push(value);
                if remainder < NEGLIGIBLE && s.im > known_return {
                    known_return = last_return(s.im)?;
                    if known_return == 0.0 {
                        break 'contour;
                    }
                }
            }
            work += rule.nodes * BLOCK;
            // Stops if the decay so far predicts an end beyond the limit, but not before 6% of the
            // work is done.
            let share = work as f64 / domain.most_work() as f64;
            if share > 1.0 || (share > 0.06 && remainder.ln() > share * 1e-16f64.ln()) {
                break;
            }
        }
        (remainder < 1e-12 && ln_scale.is_finite()).then_some(Self {
            theta,
            step,
            ln_scale,
            values,
            remainder,
            rare,
        })
    }

    /// Returns `δ(ε)` and `-δ'(ε)`, both divided by `e^{ln M(θ) - θε}`.
    fn evaluate(&self, epsilon: f64) -> (f64, f64) {
        let (mut delta, mut slope) = (0.0, 0.0);
        for (k, value) in self.values.iter().enumerate() {
            let angle = -self.step * k as f64 * epsilon;
            let term = value * Complex64::from_polar(1.0, angle);
            let weight = if k == 0 { 0.5 } else { 1.0 };
            delta += weight * term.re;
            let s = Complex64::new(self.theta, self.step * k as f64);
            slope += weight * (term * s).re;
        }
        let scale = self.step / std::f64::consts::PI;
        (scale * delta, scale * slope)
    }

    /// Returns `ln δ(ε)` and its decay `-δ'/δ`.
    pub(super) fn ln_delta(&self, epsilon: f64) -> (f64, f64) {
        let (mut delta, mut slope) = self.evaluate(epsilon);
        let ln_factor = self.ln_scale - self.theta * epsilon;
        if let Some(rare) = &self.rare {
            let (more, steeper) = rare.delta(epsilon);
            delta += more * (-ln_factor).exp();
            slope += steeper * (-ln_factor).exp();
        }
        (delta.ln() + ln_factor, slope / delta)
    }

    /// Returns the ε at `delta`, by Newton's method on `ln δ`, which is concave and decreasing.
    pub(super) fn epsilon(&self, delta: f64, start: f64) -> Option<f64> {
        let target = delta.ln();
        let mut epsilon = start;
        let mut previous = f64::INFINITY;
        for _ in 0..50 {
            let (value, decay) = self.ln_delta(epsilon);
            if !value.is_finite() || decay.is_nan() || decay <= 0.0 {
                return None;
            }
            let step = (value - target) / decay;
            epsilon += step;
            if step.abs() <= 1e-15 * epsilon.abs().max(1e-300) {
                return Some(epsilon);
            }
            // Below the rounding of a long contour the steps no longer shrink. The second contour
            // measures the resulting error.
            if step.abs() >= 0.5 * previous && step.abs() <= 1e-8 * epsilon.abs() {
                return Some(epsilon);
            }
            previous = step.abs();
            if step.abs() <= 1e-12 * epsilon.abs() {
                // One more step of a quadratic method is below the rounding.
                let (value, decay) = self.ln_delta(epsilon);
                let last = (value - target) / decay;
                return last.is_finite().then_some(epsilon + last);
            }
        }
        None
    }
}

/// How the moments of all parts are computed, accurate up to one frequency.
struct MomentSources {
    parts: Vec<(MomentSource, f64)>,
    nodes: usize,
}

enum MomentSource {
    Gaussian(f64),
    Nodes(ContourMoments),
}

impl MomentSources {
    fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        domain: LossRange,
        theta: f64,
        frequency: f64,
    ) -> Option<Self> {
        let mut rules = Self { parts: Vec::new(), nodes: 1 };
        for (pair, count) in parts {
            let rule = match *pair {
                Pair::Gaussian { mu } => MomentSource::Gaussian(mu),
                _ => {
                    let order = theta + 1.0;
                    let nodes = match domain {
                        LossRange::Whole => {
                            trapezoidal_nodes(pair, direction, order..=order, frequency)?
                        }
                        LossRange::Below(cut) => {
                            let tail = Tail::above(pair, direction, cut)?;
                            panel_nodes(pair, direction, order, frequency, &tail)?
                        }
                    };
                    let moments = ContourMoments::new(&nodes, theta);
                    rules.nodes += moments.len();
                    MomentSource::Nodes(moments)
                }
            };
            rules.parts.push((rule, *count as f64));
        }
        Some(rules)
    }

    /// Returns `ln M(θ)`.
    fn ln_scale(&self, theta: f64) -> f64 {
        let terms = self.parts.iter().map(|(rule, count)| match rule {
            MomentSource::Gaussian(mu) => theta * (theta + 1.0) * (0.5 * mu * mu * count),
            MomentSource::Nodes(nodes) => nodes.ln_scale() * count,
        });
        terms.sum()
    }

    /// Returns `ln M(θ + it)` for a block of frequencies.
    fn ln_moments(&self, theta: f64, first: f64, step: f64) -> [Complex64; BLOCK] {
        let mut sums = [Complex64::default(); BLOCK];
        for (rule, count) in &self.parts {
            match rule {
                MomentSource::Gaussian(mu) => {
                    for (k, sum) in sums.iter_mut().enumerate() {
                        let s = Complex64::new(theta, first + step * k as f64);
                        *sum += s * (s + 1.0) * (0.5 * mu * mu * count);
                    }
                }
                MomentSource::Nodes(nodes) => {
                    for (sum, value) in sums.iter_mut().zip(nodes.ln_moments(first, step)) {
                        *sum += value * count;
                    }
                }
            }
        }
        sums
    }
}
