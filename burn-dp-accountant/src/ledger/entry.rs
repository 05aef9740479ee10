//! An entry of the ledger.

use serde::{Deserialize, Serialize};

use crate::event::DpEvent;

/// An event and the number of its consecutive releases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    /// The event.
    pub event: DpEvent,
    /// Number of releases.
    pub count: u64,
}
