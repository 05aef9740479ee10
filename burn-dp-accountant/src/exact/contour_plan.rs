//! The choice of the integration contour.

use super::contour_values::{ContourValues, LossRange};
use crate::dominating_pairs::{Direction, Pair};
use crate::saddle::Cumulants;

/// The contour for one `(ε, δ)`: near the saddle point, with the fewest points.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContourPlan {
    pub(super) theta: f64,
    period: f64,
    frequency: f64,
}

impl ContourPlan {
    /// Finds the best contour at or left of `start`, for about this ε and δ.
    pub(super) fn new(
        cumulants: &mut Cumulants,
        start: f64,
        epsilon: f64,
        delta: f64,
    ) -> Option<Self> {
        let mut best: Option<(f64, Self)> = None;
        let mut largest_size = f64::NEG_INFINITY;
        for k in 0..8 {
            let theta = start * 0.8f64.powi(k);
            let (value, _, variance) = cumulants.at(theta);
            // ln of δ relative to the factor of the contour: its distance above rounding.
            let size = delta.ln() + theta * epsilon - value;
            if !size.is_finite() {
                continue;
            }
            largest_size = largest_size.max(size);
            if size < largest_size - 6.0 {
                break;
            }
            // Aliases from below are at most e^{-θL}/δ, those from above by Chernoff's bound.
            let below = (34.0 - delta.ln()) / theta;
            let mut above = f64::INFINITY;
            for factor in [1.0, 4.0, 16.0] {
                for shift in [factor / variance.sqrt(), 0.1 * factor * theta] {
                    let (further, _, _) = cumulants.at(theta + shift);
                    let bound = (further - value + 34.0 - size) / shift - epsilon;
                    if bound.is_finite() {
                        above = above.min(bound);
                    }
                }
            }
            if !above.is_finite() {
                continue;
            }
            let period = below.max(above).max(8.0 * variance.sqrt());
            // Slowly decaying integrands start with the frequency of the bulk.
            let frequency = 8.8 / variance.sqrt();
            let plan = Self { theta, period, frequency };
            match best {
                Some((known, _)) if period >= known => {
                    // Past the minimum.
                    if period > 1.5 * known {
                        break;
                    }
                }
                _ => best = Some((period, plan)),
            }
        }
        best.map(|(_, plan)| plan)
    }

    /// Evaluates the integrand; `spread` scales period and frequency.
    pub(super) fn values(
        &self,
        parts: &[(Pair, u64)],
        direction: Direction,
        domain: LossRange,
        spread: f64,
    ) -> Option<ContourValues> {
        let (period, frequency) = (spread * self.period, spread * self.frequency);
        ContourValues::new(parts, direction, domain, self.theta, period, frequency)
    }
}
