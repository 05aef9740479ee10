//! The ledger of all releases, in order, with the public facts.

mod embedded;
mod entry;
mod file;
mod header;
mod record;

pub use entry::LedgerEntry;
pub use file::LEDGER_FORMAT_VERSION;
pub use header::{LedgerHeader, NoiseProvenance, UnitOfPrivacy, join_values};
pub use record::PrivacyLedger;
