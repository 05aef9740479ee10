//! The accountant that composes Rényi divergences.

use super::RenyiCurve;
use crate::budget::{check_delta, check_epsilon};
use crate::{AccountantError, DpEvent, Epsilon, Method, NeighboringRelation};

/// Composes Rényi divergences and converts them tightly. Always an upper bound, typically 5 to 15 %
/// above the true ε; the only accountant for zero-concentrated events and repeat-and-select.
#[derive(Debug, Clone)]
pub struct RdpAccountant {
    curve: RenyiCurve,
}

impl RdpAccountant {
    /// The accountant of these events, each released `count` times.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Unsupported`] if one event has no Rényi bound: nothing is skipped;
    /// [`AccountantError::InvalidArgument`] for a parameter outside of its domain.
    pub fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        Ok(Self { curve: RenyiCurve::new(events, relation)? })
    }

    /// Composed Rényi divergence of order `order`. An upper bound.
    pub fn rdp(&self, order: f64) -> f64 {
        if self.curve.infinite().is_some() || order.is_nan() || order <= 1.0 {
            return f64::INFINITY;
        }
        self.curve.at(order)
    }

    /// ε at `delta`: `upper` is the bound, `lower` is 0 (this method gives none), `order` the best
    /// order. The order is searched from `1 + 1e-6` to `1e7`, so that it is never cut off by a grid.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] for a δ outside of (0, 1).
    ///
    /// # References
    ///
    /// Conversion: [`epsilon_from_rdp`](crate::epsilon_from_rdp).
    pub fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        check_delta(delta)?;
        let (upper, order) = self.curve.epsilon(delta);
        let mut epsilon = Epsilon::bound(delta, upper, Method::Rdp);
        epsilon.order = order.is_finite().then_some(order);
        if let Some(reason) = self.curve.infinite() {
            epsilon.notes.push(reason.to_string());
        } else if upper.is_infinite() {
            epsilon.notes.push("the events' own δ already exceeds the target δ".to_string());
        }
        Ok(epsilon)
    }

    /// δ at `epsilon`. An upper bound.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] for an ε that is negative or not finite.
    pub fn delta(&self, epsilon: f64) -> Result<f64, AccountantError> {
        check_epsilon(epsilon)?;
        Ok(self.curve.delta(epsilon).0)
    }
}
