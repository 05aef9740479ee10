//! Group privacy: several units at once.

use serde::{Deserialize, Serialize};

use crate::analysis::epsilon_with_simulation;
use crate::domain::{check_count, check_delta};
use crate::dominating_pairs::{dominating_pairs_of, gaussian_shift};
use crate::epsilon::{Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::gdp::gaussian_bracket;
use crate::monte_carlo::Simulation;
use crate::relation::NeighboringRelation;

/// Maximum number of steps in the search.
const MAX_STEPS: usize = 60;

/// The guarantee for several units at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GroupEpsilon {
    /// Number of units.
    pub units: u64,
    /// ε at δ for all of them.
    pub epsilon: Epsilon,
}

/// Returns ε at `delta` of `events` for data sets that differ in `units` units.
///
/// Gaussian releases have a closed form: `kμ`-GDP (Dong, Roth, Su 2022, Theorem 6). Otherwise the
/// path over `k - 1` data sets yields `(kε, δ (1 + e^ε + ... + e^{(k-1)ε}))` (Vadhan 2017, Lemma
/// 2.2) for every ε; the smallest fixed point over ε is returned. Truncated Poisson sampling has no
/// bound if units are added or removed: every additional unit changes how often the others are cut.
pub(crate) fn group_epsilon<'a>(
    events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
    relation: NeighboringRelation,
    units: u64,
    delta: f64,
    simulation: Option<&Simulation>,
) -> Result<Epsilon, AccountantError> {
    check_count("units", units)?;
    check_delta(delta)?;
    let events: Vec<(&DpEvent, u64)> = events.into_iter().collect();
    let one = |delta: f64| {
        epsilon_with_simulation(events.iter().copied(), relation, delta, simulation, 0.0)
    };
    if units == 1 {
        return one(delta);
    }
    if relation == NeighboringRelation::AddOrRemoveOne
        && let Some((event, _)) = events.iter().find(|(event, _)| event.is_truncated())
    {
        return Err(AccountantError::unsupported(
            event.to_string(),
            "a draw is cut more often if several units are added, and the event is for one; use \
             Poisson sampling without a cap, or a training whose unit of privacy is the group",
        ));
    }
    let k = units as f64;
    if let Ok(pairs) = dominating_pairs_of(events.iter().copied(), relation)
        && let Some(mu) = gaussian_shift(&pairs.parts)
        && pairs.infinite.is_none()
        && pairs.mass_at_infinity == 0.0
        && pairs.total_variation == 0.0
    {
        let [lower, estimate, upper] = gaussian_bracket(k * mu, delta);
        let mut epsilon = Epsilon::bound(delta, upper, Method::ClosedForm);
        epsilon.estimate = estimate;
        epsilon.lower = if pairs.loose { 0.0 } else { lower };
        return Ok(epsilon);
    }
    // A group contains a single unit.
    let single = one(delta)?;
    let mut at = single.upper;
    // Every step of a simulation takes seconds.
    let growth = if single.method == Method::MonteCarlo { 1.02 } else { 1.0 + 1e-5 };
    for _ in 0..MAX_STEPS {
        let share = delta * (-ln_path(at, k)).exp();
        if share.is_nan() || share < f64::MIN_POSITIVE {
            break;
        }
        let found = one(share)?;
        if found.upper <= at {
            // A loss of twice the brackets' rounding is far below this.
            let mut epsilon = Epsilon::bound(delta, k * at * (1.0 + 1e-15), of_bound(found.method));
            epsilon.lower = single.lower;
            epsilon.notes = found.notes;
            epsilon.notes.push(format!(
                "{units} units at once: the bound of a path over {} data sets",
                units - 1
            ));
            return Ok(epsilon);
        }
        at = found.upper * growth + 1e-12;
    }
    Ok(Epsilon::infinite(
        delta,
        of_bound(single.method),
        format!(
            "no bound for {units} units at once was found at this δ; use a larger δ, fewer units \
             or a training whose unit of privacy is the group"
        ),
    ))
}

/// Returns the method of a bound that follows from an answer: the exact value of one unit is not
/// the exact value of a group.
fn of_bound(method: Method) -> Method {
    if method == Method::Exact { Method::Pld } else { method }
}

/// Returns `ln(1 + e^ε + ... + e^{(k-1)ε})`, rounded up.
fn ln_path(epsilon: f64, k: f64) -> f64 {
    // (e^{kε} - 1)/(e^ε - 1) = e^{(k-1)ε} (1 - e^{-kε})/(1 - e^{-ε}).
    let shares = if epsilon > 1e-9 { (-k * epsilon).exp_m1() / (-epsilon).exp_m1() } else { k };
    (k - 1.0) * epsilon + shares.ln() + 1e-8 * k
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gdp::GaussianDp;

    const RELATION: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

    #[test]
    fn gaussian_group_is_a_larger_shift() {
        let event = DpEvent::gaussian(4.0);
        let found = group_epsilon([(&event, 9)], RELATION, 5, 1e-6, None).unwrap();
        let truth = GaussianDp::new(5.0 * 3.0 / 4.0).unwrap().epsilon(1e-6).unwrap();
        assert!((found.upper / truth - 1.0).abs() < 1e-9 && found.lower > 0.99 * truth);
    }

    #[test]
    fn a_group_that_changes_how_often_draws_are_cut_is_refused() {
        // The true ε of two units is at least 16.3: with both units, one of twelve is left out.
        let cut = DpEvent::TruncatedPoissonSampled {
            sampling_probability: 1.0,
            dataset_size: 10,
            max_batch_size: 11,
            event: Box::new(DpEvent::gaussian(1.0)),
        };
        let nested = DpEvent::self_composed(cut.clone(), 3);
        let composed = DpEvent::Composed { events: vec![DpEvent::gaussian(9.0), cut.clone()] };
        for event in [cut, nested, composed] {
            assert!(group_epsilon([(&event, 1)], RELATION, 1, 1e-5, None).is_ok());
            let error = group_epsilon([(&event, 1)], RELATION, 2, 1e-5, None).unwrap_err();
            assert!(error.to_string().contains("cut more often"), "{error}");
            // A unit that contributes nothing changes no size.
            let special = NeighboringRelation::ReplaceSpecial;
            assert!(group_epsilon([(&event, 1)], special, 2, 1e-5, None).is_ok());
        }
    }

    #[test]
    fn sampled_group_is_bounded_by_its_path() {
        let event = DpEvent::dp_sgd_step(0.01, 1.0);
        let one = group_epsilon([(&event, 200)], RELATION, 1, 1e-5, None).unwrap();
        let three = group_epsilon([(&event, 200)], RELATION, 3, 1e-5, None).unwrap();
        assert!(three.upper > 3.0 * one.upper && three.lower == one.lower, "{three:?}");
        // (ε, δ') of one unit with δ' (1 + e^ε + e^2ε) = δ.
        let epsilon = three.upper / 3.0;
        let share = 1e-5 / (1.0 + epsilon.exp() + (2.0 * epsilon).exp());
        let inner = group_epsilon([(&event, 200)], RELATION, 1, share, None).unwrap();
        assert!((inner.upper / epsilon - 1.0).abs() < 1e-3, "{inner:?} {epsilon}");
        // Three units are covered by a release of three times the sensitivity.
        let tripled = DpEvent::dp_sgd_step(0.03, 1.0 / 3.0);
        let rough = group_epsilon([(&tripled, 200)], RELATION, 1, 1e-5, None).unwrap();
        assert!(rough.upper > one.upper);
    }

    #[test]
    fn group_without_a_bound_says_so() {
        let event = DpEvent::dp_sgd_step(0.5, 0.3);
        let found = group_epsilon([(&event, 1000)], RELATION, 1000, 1e-10, None).unwrap();
        assert!(found.upper.is_infinite() && !found.notes.is_empty(), "{found:?}");
        assert!(group_epsilon([(&event, 1)], RELATION, 0, 1e-5, None).is_err());
    }
}
