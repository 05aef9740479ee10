//! The file that `--ledger FILE` names: an error, or a ledger with ordered upper bounds.

#![no_main]

use burn_dp_accountant::{Accountant, PrivacyLedger, RdpAccountant};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ledger.json");
    std::fs::write(&path, bytes).expect("a file in it");
    let Ok(ledger) = PrivacyLedger::load(&path) else { return };
    let events = || ledger.entries().iter().map(|entry| (&entry.event, entry.count));
    let Ok(rdp) = RdpAccountant::new(events(), ledger.header().relation) else { return };
    let (Ok(likely), Ok(unlikely)) = (rdp.epsilon(1e-5), rdp.epsilon(1e-6)) else { return };
    assert!(likely.upper >= 0.0 && likely.upper <= unlikely.upper, "{likely:?} {unlikely:?}");
});
