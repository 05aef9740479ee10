//! The default analysis: the tightest guarantee that an event has.

use crate::budget::check_delta;
use crate::{AccountantError, DpEvent, Epsilon, NeighboringRelation, RdpAccountant};

/// ε at `delta` of `events`: an upper bound.
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
    RdpAccountant::new(events, relation)?.epsilon(delta)
}
