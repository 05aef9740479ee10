//! The δ of one run of repeat-and-select, tighter than the Rényi bound where possible.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::accountant::Accountant;
use crate::dominating_pairs::{dominating_pairs_of, gaussian_shift};
use crate::event::DpEvent;
use crate::gdp::GaussianDp;
use crate::pld::PldAccountant;
use crate::relation::NeighboringRelation;

/// Step of the logarithm of `λ - 1` between computed values.
const STEP: f64 = 0.05;

/// Orders for which a privacy loss distribution is worth its time.
const ORDERS: std::ops::Range<f64> = 1.2..300.0;

/// A certified δ of one run at the ε that belongs to an order.
#[derive(Debug)]
pub(super) struct BaseDelta {
    method: BaseAccountant,
    /// Values of the privacy loss distribution, by the number of the step.
    known: Mutex<BTreeMap<i64, f64>>,
}

#[derive(Debug)]
enum BaseAccountant {
    Gaussian(GaussianDp),
    Pld(PldAccountant),
    None,
}

impl BaseDelta {
    /// Creates the δ of one `event`.
    pub(super) fn new(event: &DpEvent, relation: NeighboringRelation) -> Self {
        let method = match dominating_pairs_of([(event, 1)], relation) {
            Ok(pairs) if pairs.infinite.is_none() && pairs.total_variation == 0.0 => {
                let gaussian =
                    gaussian_shift(&pairs.parts).filter(|_| pairs.mass_at_infinity == 0.0);
                match gaussian.map(GaussianDp::new) {
                    Some(Ok(gdp)) => BaseAccountant::Gaussian(gdp),
                    _ => BaseAccountant::Pld(PldAccountant::of(pairs).with_relative_width(1e-2)),
                }
            }
            _ => BaseAccountant::None,
        };
        Self { method, known: Mutex::new(BTreeMap::new()) }
    }

    /// Returns an upper bound on δ at `ln(1 + 1/(λ-1))`, at most the bound `rdp` from Rényi
    /// divergences. `share(δ)` is the cost of δ in the result; a negligible cost is not improved.
    pub(super) fn at(&self, order: f64, rdp: f64, share: impl Fn(f64) -> f64) -> f64 {
        let own = match &self.method {
            BaseAccountant::Gaussian(gdp) => gdp.delta((1.0 / (order - 1.0)).ln_1p()).ok(),
            BaseAccountant::Pld(pld) if ORDERS.contains(&order) && share(rdp) > 1e-4 => {
                // The next larger order has a smaller ε, hence a larger δ.
                let step = ((order - 1.0).ln() / STEP).ceil() as i64;
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                let value = known.entry(step).or_insert_with(|| {
                    let epsilon = (-STEP * step as f64).exp().ln_1p() * (1.0 - 1e-12);
                    pld.delta(epsilon).map_or(1.0, |bracket| bracket.upper)
                });
                Some(*value)
            }
            _ => None,
        };
        own.map_or(rdp, |own| own.min(rdp))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kept_values_are_above_the_delta_of_their_order() {
        let run = DpEvent::self_composed(DpEvent::dp_sgd_step(0.02, 1.0), 100);
        let relation = NeighboringRelation::AddOrRemoveOne;
        let base = BaseDelta::new(&run, relation);
        let pld = PldAccountant::new([(&run, 1)], relation).unwrap();
        for order in [2.01, 4.0, 7.7, 20.0] {
            let exact = pld.delta((1.0f64 / (order - 1.0)).ln_1p()).unwrap();
            let found = base.at(order, 1.0, |delta| delta);
            assert!(found >= exact.upper * (1.0 - 1e-3), "{order}: {found} {exact:?}");
            assert!(found <= exact.upper * 1.3, "{order}: {found} {exact:?}");
            assert_eq!(base.at(order, 1e-9, |delta| delta), 1e-9);
        }
    }
}
