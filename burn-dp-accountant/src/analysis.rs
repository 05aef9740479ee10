//! The default analysis: the tightest guarantee that the events have.

use crate::budget::check_delta;
use crate::exact::{Patience, gaussian_epsilon};
use crate::mechanism::{Lowered, Pair, lower};
use crate::{
    AccountantError, DpEvent, Epsilon, ExactAccountant, Method, NeighboringRelation, PldAccountant,
    RdpAccountant,
};

/// Relative error of the closed form for Gaussian releases, generously.
const CLOSED_FORM_ERROR: f64 = 1e-10;

/// ε at `delta` of `events`: the certified bracket by privacy loss distributions with the exact
/// value as the estimate; a closed form for Gaussian releases alone; Rényi divergences where
/// nothing else is known.
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
    let lowered = match lower(events.iter().copied(), relation) {
        Ok(lowered) => lowered,
        Err(AccountantError::Unsupported { .. }) => {
            return RdpAccountant::new(events, relation)?.epsilon(delta);
        }
        Err(error) => return Err(error),
    };
    if let Some(epsilon) = closed_form(&lowered, delta) {
        return Ok(epsilon);
    }
    let mut answer = PldAccountant::of(lowered.clone()).epsilon(delta)?;
    if lowered.infinite.is_none() && !answer.upper.is_finite() {
        let rdp = RdpAccountant::new(events, relation)?.epsilon(delta)?;
        if rdp.upper.is_finite() {
            answer = rdp;
        }
    } else if let Some(exact) = exact_epsilon(&lowered, delta, Patience::Quick)
        && exact >= answer.lower * (1.0 - 1e-9)
        && exact <= answer.upper * (1.0 + 1e-9)
    {
        answer.estimate = exact.clamp(answer.lower, answer.upper);
        answer.method = Method::Exact;
    }
    Ok(answer)
}

/// The exact value alone, without a guarantee: for searches whose result is certified afterwards.
pub(crate) fn quick_epsilon(
    events: &[(&DpEvent, u64)],
    relation: NeighboringRelation,
    delta: f64,
) -> Option<f64> {
    let lowered = lower(events.iter().copied().filter(|(_, n)| *n > 0), relation).ok()?;
    match closed_form(&lowered, delta) {
        Some(epsilon) => Some(epsilon.estimate),
        None => exact_epsilon(&lowered, delta, Patience::Quick),
    }
}

fn exact_epsilon(lowered: &Lowered, delta: f64, patience: Patience) -> Option<f64> {
    if lowered.loose || lowered.total_variation > 0.0 {
        return None;
    }
    ExactAccountant::of(lowered.clone(), patience).epsilon(delta).ok()
}

/// Gaussian releases compose to one Gaussian (Dong, Roth, Su 2022, Corollary 2).
fn closed_form(lowered: &Lowered, delta: f64) -> Option<Epsilon> {
    if lowered.infinite.is_some() || lowered.mass_at_infinity > 0.0 || lowered.total_variation > 0.0
    {
        return None;
    }
    let mut square = 0.0;
    for (pair, count) in &lowered.parts {
        match pair {
            Pair::Gaussian { mu } => square += mu * mu * *count as f64,
            _ => return None,
        }
    }
    let estimate = if square > 0.0 { gaussian_epsilon(square.sqrt(), delta) } else { 0.0 };
    let mut epsilon =
        Epsilon::bound(delta, estimate * (1.0 + CLOSED_FORM_ERROR), Method::ClosedForm);
    epsilon.estimate = estimate;
    epsilon.lower = if lowered.loose { 0.0 } else { estimate * (1.0 - CLOSED_FORM_ERROR) };
    Some(epsilon)
}
