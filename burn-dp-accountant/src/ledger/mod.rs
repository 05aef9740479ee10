//! The ledger of what was released, in order, with the public facts.

mod file;
mod header;
mod record;

pub use file::LEDGER_FORMAT_VERSION;
pub use header::{LedgerHeader, NoiseProvenance, UnitOfPrivacy};
pub use record::{LedgerEntry, PrivacyLedger};
