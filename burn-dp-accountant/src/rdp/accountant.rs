//! The accountant that composes Rényi divergences.

use super::curve::RenyiCurve;
use crate::accountant::Accountant;
use crate::domain::{check_delta, check_epsilon};
use crate::epsilon::{DeltaBracket, Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

/// Composes Rényi divergences and converts them to ε.
///
/// `upper` is a bound, typically 5 to 15% above the true ε; `lower` is 0. It is the only accountant
/// for zero-concentrated events. The order is searched from `1 + 1e-6` to `1e7`, so that the best
/// order is never at the edge of a grid.
///
/// # References
///
/// "Rényi Differential Privacy", Mironov 2017, Proposition 1 (composition). The conversion is
/// [`epsilon_from_rdp`](crate::epsilon_from_rdp).
#[derive(Debug, Clone)]
pub struct RdpAccountant {
    curve: RenyiCurve,
}

impl RdpAccountant {
    /// Returns an upper bound on the composed Rényi divergence of order `order`; infinite if the
    /// order is not above 1.
    pub fn rdp(&self, order: f64) -> f64 {
        if self.curve.infinite().is_some() || order.is_nan() || order <= 1.0 {
            return f64::INFINITY;
        }
        self.curve.at(order)
    }
}

impl Accountant for RdpAccountant {
    fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        Ok(Self { curve: RenyiCurve::new(events, relation)? })
    }

    /// Returns ε at `delta`: `upper` is the bound, `lower` is 0, `order` is the best order.
    fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
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

    /// Returns δ at `epsilon`: `upper` is the bound, `lower` is 0.
    fn delta(&self, epsilon: f64) -> Result<DeltaBracket, AccountantError> {
        check_epsilon(epsilon)?;
        let mut upper = self.curve.delta(epsilon).0;
        if upper == 0.0 && !self.curve.is_empty() {
            // It underflowed.
            upper = f64::MIN_POSITIVE;
        }
        let mut delta = DeltaBracket::bound(epsilon, upper);
        delta.notes.extend(self.curve.infinite().map(str::to_string));
        Ok(delta)
    }
}
