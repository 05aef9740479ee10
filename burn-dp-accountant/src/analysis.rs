//! The default analysis of the crate: the tightest guarantee that the events have.

use crate::accountant::Accountant;
use crate::domain::check_delta;
use crate::dominating_pairs::{DominatingPairs, Pair, dominating_pairs_of, gaussian_shift};
use crate::epsilon::{Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::exact::{Effort, ExactAccountant};
use crate::gdp::gaussian_bracket;
use crate::math::logarithms::ln_add_exp;
use crate::monte_carlo::Simulation;
use crate::pld::{PldAccountant, pairs_with_searches};
use crate::rdp::RdpAccountant;
use crate::relation::NeighboringRelation;
use crate::rounded::Rounded;

/// Shift (inverse noise multiplier) of a sampled release above which privacy loss distributions
/// take seconds.
const LARGEST_QUICK_SHIFT: f64 = 20.0;
/// The same for Laplace noise.
const LARGEST_LAPLACE_SHIFT: f64 = 1e3;
/// ε above which the width of a bracket has no practical meaning.
const MEANINGLESS_EPSILON: f64 = 1e3;

/// δ below which the bounds of searches end.
const LEAST_DELTA_OF_SEARCHES: f64 = 1e-11;

/// Returns ε at `delta` of `events`.
///
/// This is the certified bracket from privacy loss distributions with the exact value as its
/// estimate; a closed form if all releases are Gaussian; and Rényi divergences if nothing else is
/// known or if the noise is too small to protect anybody.
pub(crate) fn epsilon_of_events<'a>(
    events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
    relation: NeighboringRelation,
    delta: f64,
) -> Result<Epsilon, AccountantError> {
    check_delta(delta)?;
    let events: Vec<(&DpEvent, u64)> = events.into_iter().filter(|(_, n)| *n > 0).collect();
    if events.is_empty() {
        return Ok(Epsilon::zero(delta));
    }
    let pairs = match pairs_with_searches(events.iter().copied(), relation) {
        Ok(pairs) => pairs,
        Err(AccountantError::Unsupported { .. }) => {
            return RdpAccountant::new(events, relation)?.epsilon(delta);
        }
        Err(error) => return Err(error),
    };
    if let Some(epsilon) = closed_form(&pairs, delta) {
        return Ok(epsilon);
    }
    let rdp = || RdpAccountant::new(events.iter().copied(), relation)?.epsilon(delta);
    let answer = bracket(&pairs, delta, rdp)?;
    if answer.method == Method::Pld
        && let Some(exact) = exact_epsilon(&pairs, delta)
    {
        return compared(answer, exact, rdp);
    }
    Ok(answer)
}

/// Returns the bracket of events without a closed form; `rdp` is the Rényi bound.
fn bracket(
    pairs: &DominatingPairs,
    delta: f64,
    rdp: impl Fn() -> Result<Epsilon, AccountantError>,
) -> Result<Epsilon, AccountantError> {
    if has_hardly_any_noise(pairs, delta)
        && let Ok(mut answer) = rdp()
        && answer.upper.is_finite()
        && answer.upper > MEANINGLESS_EPSILON
    {
        answer.notes.push(
            "the noise is so small that only the Rényi bound was computed: no epsilon near it \
             protects anybody; PldAccountant gives a bracket"
                .into(),
        );
        return Ok(answer);
    }
    let answer = PldAccountant::of(pairs.clone()).epsilon(delta)?;
    // The Rényi bound may be the better upper end if the bracket was not narrowed. For searches it
    // takes far longer, and is better only below the smallest δ of their table.
    let searches = pairs.parts.iter().any(|(pair, _)| matches!(pair, Pair::Bounded(_)));
    if pairs.infinite.is_none()
        && !answer.notes.is_empty()
        && (!searches || delta < LEAST_DELTA_OF_SEARCHES || answer.upper.is_infinite())
        && let Ok(rdp) = rdp()
        && rdp.upper < answer.upper
    {
        if answer.lower <= rdp.upper {
            return Ok(Epsilon { lower: answer.lower, notes: answer.notes, ..rdp });
        }
        // A bound is wrong, so no bound is returned.
        let (low, high) = (answer.lower, rdp.upper);
        let reason = format!(
            "the bounds contradict each other: {low:e} from below by privacy loss distributions, \
             {high:e} from above by Rényi divergences; this is a fault of the accountant, and no \
             bound is given"
        );
        return Ok(Epsilon::infinite(delta, Method::Pld, reason));
    }
    Ok(answer)
}

/// Returns the bracket `answer` with the exact value as its estimate, widened if the two contradict
/// each other.
fn compared(
    mut answer: Epsilon,
    exact: f64,
    rdp: impl Fn() -> Result<Epsilon, AccountantError>,
) -> Result<Epsilon, AccountantError> {
    if exact < answer.lower * (1.0 - 1e-9) {
        // Two independent methods disagree; an upper end above both is safe.
        answer.notes.push(format!(
            "the lower end {:e} of the privacy loss distribution contradicts the exact value \
             {exact:e} and is not used; this is a fault of the accountant",
            answer.lower
        ));
        answer.lower = 0.0;
        return Ok(answer);
    }
    if exact <= answer.upper * (1.0 + 1e-9) {
        answer.estimate = exact.clamp(answer.lower, answer.upper);
        answer.method = Method::Exact;
        return Ok(answer);
    }
    // Two independent methods disagree, and the larger value is safe.
    let mut bound = rdp()?;
    bound.upper = bound.upper.max(exact);
    bound.notes.push(format!(
        "the upper end {:e} of the privacy loss distribution contradicts the exact value \
         {exact:e} and is not used; this is a fault of the accountant",
        answer.upper
    ));
    Ok(bound)
}

/// The note of an answer for which a simulation was asked.
const NOT_SIMULATED: &str = "nothing was simulated: with correlated noise, a simulation needs at \
     most 1,024 bins, or a Toeplitz strategy with at most as many bands as fresh bins, or as the \
     minimum separation; a dense strategy, or one with normalized columns, at most 4,096 steps in \
     bins";

/// Returns [`epsilon_of_events`] with the upper end of a simulation where that is smaller. Nothing
/// is simulated if the certified upper end is at most `enough`.
pub(crate) fn epsilon_with_simulation<'a>(
    events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
    relation: NeighboringRelation,
    delta: f64,
    simulation: Option<&Simulation>,
    enough: f64,
) -> Result<Epsilon, AccountantError> {
    let events: Vec<(&DpEvent, u64)> = events.into_iter().filter(|(_, n)| *n > 0).collect();
    let mut certified = epsilon_of_events(events.iter().copied(), relation, delta)?;
    let Some(simulation) = simulation else { return Ok(certified) };
    if certified.upper <= enough {
        return Ok(certified);
    }
    let Some(found) = simulation.epsilon(&events, relation, delta)? else {
        if events.iter().any(|(event, _)| event.has_random_bands()) {
            certified.notes.push(NOT_SIMULATED.into());
        }
        return Ok(certified);
    };
    if found.upper >= certified.upper {
        let reason = found.notes.first().map_or(String::new(), |note| format!(": {note}"));
        certified.notes.push(format!("a simulation has no smaller upper end{reason}"));
        return Ok(certified);
    }
    if found.upper < certified.lower {
        // The simulation failed, or a bound is wrong; the larger one is safe.
        certified.notes.push(format!(
            "the simulated upper end {:e} is below the certified lower end and is not used",
            found.upper
        ));
        return Ok(certified);
    }
    let mut notes = found.notes;
    notes.push(format!("the certified upper end is {}", Rounded::up(certified.upper)));
    let (lower, upper) = (certified.lower, found.upper);
    let estimate = found.estimate.clamp(lower, upper);
    Ok(Epsilon {
        lower,
        upper,
        estimate,
        method: Method::MonteCarlo,
        order: None,
        notes,
        ..certified
    })
}

/// Returns whether a release has hardly any noise for a unit that is sampled more often than δ.
fn has_hardly_any_noise(pairs: &DominatingPairs, delta: f64) -> bool {
    let matters = |q: f64, count: u64| q * count as f64 > delta;
    let of_parts = |components: &[(f64, f64)], count: u64| {
        components.iter().any(|(w, mu)| *mu > LARGEST_QUICK_SHIFT && matters(*w, count))
    };
    pairs.parts.iter().any(|(pair, count)| match pair {
        Pair::Sampled { q, mu } | Pair::Substituted { q, mu } => {
            *mu > LARGEST_QUICK_SHIFT && matters(*q, *count)
        }
        Pair::Symmetrized { q, components } => matters(*q, *count) && of_parts(components, *count),
        Pair::Line { components } => of_parts(components, *count),
        // The grid of a lattice has a cell for every part of the loss, which is as large as μ.
        Pair::Laplace { mu } => *mu > LARGEST_LAPLACE_SHIFT,
        Pair::SampledLaplace { q, mu } => *mu > LARGEST_LAPLACE_SHIFT && matters(*q, *count),
        _ => false,
    })
}

/// Returns the exact ε without a guarantee, for searches whose result is certified afterwards;
/// `None` if it takes long, or where a simulation may be below it.
pub(crate) fn exact_guide(
    events: &[(&DpEvent, u64)],
    relation: NeighboringRelation,
    delta: f64,
    simulation: Option<&Simulation>,
) -> Option<f64> {
    exact_of_pairs(&guided_pairs(events, relation, simulation)?, delta)
}

/// Returns [`exact_guide`], or, where there is none, the upper end without a comparison with the
/// exact value. `None` if the certified answer takes no longer.
pub(crate) fn quick_epsilon(
    events: &[(&DpEvent, u64)],
    relation: NeighboringRelation,
    delta: f64,
    simulation: Option<&Simulation>,
) -> Option<f64> {
    let pairs = guided_pairs(events, relation, simulation)?;
    let exact = exact_of_pairs(&pairs, delta);
    if exact.is_some() || !has_exact_value(&pairs) {
        return exact;
    }
    let released = events.iter().copied().filter(|(_, n)| *n > 0);
    let rdp = || RdpAccountant::new(released.clone(), relation)?.epsilon(delta);
    bracket(&pairs, delta, rdp).ok().map(|answer| answer.upper)
}

/// Returns the pairs of events without a simulation.
fn guided_pairs(
    events: &[(&DpEvent, u64)],
    relation: NeighboringRelation,
    simulation: Option<&Simulation>,
) -> Option<DominatingPairs> {
    if simulation.is_some() && Simulation::applies(events.iter().copied(), relation) {
        return None;
    }
    dominating_pairs_of(events.iter().copied().filter(|(_, n)| *n > 0), relation).ok()
}

fn exact_of_pairs(pairs: &DominatingPairs, delta: f64) -> Option<f64> {
    match closed_form(pairs, delta) {
        Some(epsilon) => Some(epsilon.estimate),
        None => exact_epsilon(pairs, delta),
    }
}

fn exact_epsilon(pairs: &DominatingPairs, delta: f64) -> Option<f64> {
    let exact =
        has_exact_value(pairs).then(|| ExactAccountant::of(pairs.clone(), Effort::Quick))?;
    exact.epsilon_value(delta).ok()
}

fn has_exact_value(pairs: &DominatingPairs) -> bool {
    !pairs.loose && pairs.total_variation == 0.0
}

/// Returns ε in closed form, if there is one.
///
/// Gaussian releases compose to one Gaussian (Dong, Roth, Su 2022, Corollary 2). One sampled
/// release is the Gaussian at the δ over `q` (Balle, Barthe, Gaboardi 2018, Theorem 2), where the
/// direction "remove" dominates (Zhu, Dong, Wang 2022, Theorem 11).
fn closed_form(pairs: &DominatingPairs, delta: f64) -> Option<Epsilon> {
    if pairs.infinite.is_some() || pairs.mass_at_infinity > 0.0 || pairs.total_variation > 0.0 {
        return None;
    }
    let [lower, estimate, upper] = if let [(Pair::Sampled { q, mu }, 1)] = pairs.parts[..] {
        if delta >= q { [0.0; 3] } else { gaussian_bracket(mu, delta / q).map(|e| sampled(q, e)) }
    } else {
        gaussian_bracket(gaussian_shift(&pairs.parts)?, delta)
    };
    let mut epsilon = Epsilon::bound(delta, upper, Method::ClosedForm);
    epsilon.estimate = estimate;
    epsilon.lower = if pairs.loose { 0.0 } else { lower };
    Some(epsilon)
}

/// Returns `ln(1 - q + q e^ε)`.
fn sampled(q: f64, epsilon: f64) -> f64 {
    if epsilon > 30.0 {
        ln_add_exp((-q).ln_1p(), q.ln() + epsilon)
    } else {
        (q * epsilon.exp_m1()).ln_1p()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const RELATION: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

    fn epsilon(event: &DpEvent, relation: NeighboringRelation, delta: f64) -> Epsilon {
        epsilon_of_events([(event, 1)], relation, delta).unwrap()
    }

    #[test]
    fn one_sampled_release_has_its_closed_form() {
        // ln(1 + q (e^ε - 1)) with the ε of the unsampled release at δ/q, by mpmath in 40 digits.
        for (q, sigma, delta, truth) in [
            (0.01, 1.0, 1e-5, 0.199_450_447_795_914_72),
            (0.01, 0.1, 1e-5, 75.427_355_908_162_4),
            (0.5, 2.0, 1e-8, 2.019_464_409_289_979_2),
            (1e-4, 1.0, 1e-5, 0.000_219_075_843_338_542_72),
        ] {
            let step = DpEvent::dp_sgd_step(q, sigma);
            let found = epsilon(&step, RELATION, delta);
            assert_eq!(found.method, Method::ClosedForm);
            assert!(found.lower <= truth && truth <= found.upper, "{q} {sigma}: {found:?}");
            assert!(found.upper - found.lower < 1e-8 * truth, "{q} {sigma}: {found:?}");
            let quick = quick_epsilon(&[(&step, 1)], RELATION, delta, None).unwrap();
            assert!((quick / truth - 1.0).abs() < 1e-8, "{q} {sigma}: {quick}");
        }
        let never = DpEvent::dp_sgd_step(1e-6, 0.01);
        let found = epsilon(&never, RELATION, 1e-6);
        assert_eq!((found.lower, found.estimate, found.upper), (0.0, 0.0, 0.0));
        assert!(epsilon(&never, RELATION, 0.99e-6).upper > 0.0);
    }

    #[test]
    fn a_bound_that_no_data_set_attains_has_no_lower_end() {
        let whole = DpEvent::SampledWithoutReplacement {
            dataset_size: 10,
            sample_size: 10,
            event: Box::new(DpEvent::gaussian(2.0)),
        };
        let found = epsilon(&whole, NeighboringRelation::ReplaceOne, 1e-5);
        // A shift of 1, by mpmath in 40 digits.
        let truth = 4.377_178_095_681_224_6;
        assert!((found.upper / truth - 1.0).abs() < 1e-8 && found.upper >= truth, "{found:?}");
        assert_eq!((found.lower, found.method), (0.0, Method::ClosedForm));
        let gaussian = DpEvent::gaussian(2.0);
        let found = epsilon(&gaussian, NeighboringRelation::ReplaceOne, 1e-5);
        assert!(found.lower > truth * (1.0 - 1e-8), "{found:?}");
    }

    #[test]
    fn nothing_released_costs_nothing_and_leaks_add_up() {
        let none = epsilon_of_events([(&DpEvent::NonPrivate, 0)], RELATION, 1e-5).unwrap();
        assert_eq!(none.upper, 0.0);
        assert!(epsilon(&DpEvent::NonPrivate, RELATION, 1e-5).upper.is_infinite());
        assert!(epsilon_of_events([], RELATION, 0.0).is_err());
        // An outcome that reveals everything has no closed form: its probability is taken from δ.
        let leak = DpEvent::EpsilonDelta { epsilon: 0.0, delta: 4e-6 };
        let gaussian = DpEvent::gaussian(1.0);
        let both = epsilon_of_events([(&leak, 2), (&gaussian, 1)], RELATION, 1e-5).unwrap();
        let rest = epsilon(&gaussian, RELATION, 2e-6).estimate;
        assert!(both.upper >= rest && both.upper < rest * (1.0 + 1e-3), "{both:?} {rest}");
    }

    // The unit is drawn `draws` times with a probability far above δ, and moves as many outputs by
    // μ: the test "they are above μ - 3" has errors that no small ε allows.
    #[test]
    fn a_replaced_unit_with_hardly_any_noise_costs_what_a_simple_test_detects() {
        for (q, sigma, count, draws, probability) in [
            (0.01, 0.045, 2, 2, 1e-4),
            (0.01, 0.037, 10, 3, 1.1e-4),
            (0.01, 0.03, 10, 3, 1.1e-4),
            (0.01, 0.025, 2, 2, 1e-4),
            (1.28e-3, 0.018_75, 1_000, 6, 1.7e-3),
        ] {
            let event = DpEvent::dp_sgd_step(q, sigma);
            let rejected = f64::from(draws) * 0.5 * (1.0 / sigma - 3.0f64).powi(2);
            let truth = rejected + (0.9 * probability - 1e-5f64).ln();
            let relation = NeighboringRelation::ReplaceOne;
            let pld = PldAccountant::new([(&event, count)], relation).unwrap();
            let pld = pld.epsilon(1e-5).unwrap();
            assert!(pld.upper >= truth, "{q} {sigma}: {pld:?} {truth}");
            let default = epsilon_of_events([(&event, count)], relation, 1e-5).unwrap();
            assert!(default.upper >= truth, "{q} {sigma}: {default:?} {truth}");
        }
        // One step at a tiny δ, by mpmath in 60 digits: 685.20632 from the pair of one step.
        let event = DpEvent::dp_sgd_step(1e-3, 1.0 / 26.0);
        let found = PldAccountant::new([(&event, 1)], RELATION).unwrap().epsilon(1e-45).unwrap();
        assert!(found.upper >= 685.206 && found.lower <= 685.207, "{found:?}");
    }

    #[test]
    fn few_sampled_laplace_releases_have_their_largest_loss() {
        let one = DpEvent::poisson_sampled(0.01, DpEvent::Laplace { noise_multiplier: 1.0 });
        let largest = (0.01 * 1f64.exp_m1()).ln_1p();
        let found = epsilon(&one, RELATION, 1e-5);
        assert!(found.upper <= largest * (1.0 + 1e-9) && found.lower > 0.0, "{found:?}");
        let ten = epsilon_of_events([(&one, 10)], RELATION, 1e-8).unwrap();
        assert!(ten.upper <= 10.0 * largest * (1.0 + 1e-9), "{ten:?}");
    }

    #[test]
    fn releases_with_hardly_any_noise_have_the_renyi_bound() {
        let laplace = |scale| DpEvent::Laplace { noise_multiplier: scale };
        for (event, count, is_quick) in [
            (DpEvent::dp_sgd_step(0.1, 0.01), 10, true),
            (laplace(5e-4), 2, true),
            (laplace(2e-3), 3, false),
            // No unit takes part with a probability of δ.
            (DpEvent::dp_sgd_step(1e-12, 0.01), 2, false),
        ] {
            let found = epsilon_of_events([(&event, count)], RELATION, 1e-5).unwrap();
            let said = found.notes.iter().any(|note| note.contains("only the Rényi bound"));
            assert_eq!(said, is_quick, "{found:?}");
            assert!(!is_quick || found.method == Method::Rdp, "{found:?}");
        }
    }
}
