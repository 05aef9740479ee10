//! The default analysis: the tightest guarantee that the events have.

use crate::budget::check_delta;
use crate::exact::{Patience, gaussian_delta, gaussian_epsilon};
use crate::math::ln_add_exp;
use crate::mechanism::{Lowered, Pair, lower};
use crate::{
    AccountantError, DpEvent, Epsilon, ExactAccountant, Method, NeighboringRelation, PldAccountant,
    RdpAccountant,
};

/// A sampled release of a larger shift (σ below 0.05) is within the reach of privacy loss distributions,
/// but takes them seconds.
const STEEP_SHIFT: f64 = 20.0;
/// From here on nobody needs the width of a bracket.
const MEANINGLESS_EPSILON: f64 = 1e3;
/// Relative error of the closed form for Gaussian releases, generously.
const CLOSED_FORM_ERROR: f64 = 1e-10;

/// ε at `delta` of `events`: the certified bracket by privacy loss distributions with the exact
/// value as the estimate; a closed form for Gaussian releases alone; Rényi divergences where
/// nothing else is known, or where noise is too small to protect anybody.
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
    let rdp = || RdpAccountant::new(events.iter().copied(), relation)?.epsilon(delta);
    if steep(&lowered)
        && let Ok(mut answer) = rdp()
        && answer.upper.is_finite()
        && answer.upper > MEANINGLESS_EPSILON
    {
        answer.notes.push(
            "the noise is so small that only the Rényi bound was computed: no epsilon near it protects \
             anybody; PldAccountant gives a bracket"
                .into(),
        );
        return Ok(answer);
    }
    let mut answer = PldAccountant::of(lowered.clone()).epsilon(delta)?;
    // Where the bracket could not be narrowed, the Rényi bound may be the better upper end.
    if lowered.infinite.is_none()
        && !answer.notes.is_empty()
        && let Ok(rdp) = rdp()
        && rdp.upper < answer.upper
    {
        answer = Epsilon { lower: answer.lower.min(rdp.upper), notes: answer.notes, ..rdp };
    }
    if answer.method == Method::Pld
        && let Some(exact) = exact_epsilon(&lowered, delta, Patience::Quick)
        && exact >= answer.lower * (1.0 - 1e-9)
        && exact <= answer.upper * (1.0 + 1e-9)
    {
        answer.estimate = exact.clamp(answer.lower, answer.upper);
        answer.method = Method::Exact;
    }
    Ok(answer)
}

/// Whether a sampled release has hardly any noise.
fn steep(lowered: &Lowered) -> bool {
    let mut pairs = lowered.parts.iter().map(|(pair, _)| pair);
    pairs.any(|pair| matches!(pair, Pair::Sampled { mu, .. } if *mu > STEEP_SHIFT))
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

/// Gaussian releases compose to one Gaussian (Dong, Roth, Su 2022, Corollary 2); one sampled release is
/// the Gaussian at the δ over `q` (Balle, Barthe, Gaboardi 2018, Theorem 2), where "remove" decides (Zhu,
/// Dong, Wang 2022, Theorem 11).
fn closed_form(lowered: &Lowered, delta: f64) -> Option<Epsilon> {
    if lowered.infinite.is_some() || lowered.mass_at_infinity > 0.0 || lowered.total_variation > 0.0
    {
        return None;
    }
    let [lower, estimate, upper] = if let [(Pair::Sampled { q, mu }, 1)] = lowered.parts[..] {
        if delta >= q { [0.0; 3] } else { gaussian_bracket(mu, delta / q).map(|e| sampled(q, e)) }
    } else {
        let mut square = 0.0;
        for (pair, count) in &lowered.parts {
            match pair {
                Pair::Gaussian { mu } => square += mu * mu * *count as f64,
                _ => return None,
            }
        }
        gaussian_bracket(square.sqrt(), delta)
    };
    let mut epsilon = Epsilon::bound(delta, upper, Method::ClosedForm);
    epsilon.estimate = estimate;
    epsilon.lower = if lowered.loose { 0.0 } else { lower };
    Some(epsilon)
}

/// `ln(1 - q + q e^ε)`.
fn sampled(q: f64, epsilon: f64) -> f64 {
    if epsilon > 30.0 {
        ln_add_exp((-q).ln_1p(), q.ln() + epsilon)
    } else {
        (q * epsilon.exp_m1()).ln_1p()
    }
}

/// Lower bound, estimate and upper bound of the ε of one Gaussian.
fn gaussian_bracket(mu: f64, delta: f64) -> [f64; 3] {
    if mu == 0.0 || gaussian_delta(mu, 0.0) * (1.0 + CLOSED_FORM_ERROR) <= delta {
        return [0.0; 3];
    }
    let estimate = gaussian_epsilon(mu, delta);
    // Near δ(0) the relative error of ε is not that of δ: there the error is absolute, relative to μ.
    let absolute = CLOSED_FORM_ERROR * mu;
    let lower = estimate * (1.0 - CLOSED_FORM_ERROR) - absolute;
    [lower.max(0.0), estimate, estimate * (1.0 + CLOSED_FORM_ERROR) + absolute]
}
