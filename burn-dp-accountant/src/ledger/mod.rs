//! What was released, in order, and the public facts around it.

mod file;
mod header;
mod record;

pub use header::{LedgerHeader, NoiseSource, UnitOfPrivacy};
pub use record::{LedgerEntry, PrivacyLedger};

/// Version of the serialised ledger. Readers refuse every other one.
pub const LEDGER_FORMAT_VERSION: u32 = 1;
