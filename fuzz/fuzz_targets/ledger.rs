//! The JSON text of a ledger: an error, or a ledger that its own text restores.

#![no_main]

use burn_dp_accountant::PrivacyLedger;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(ledger) = PrivacyLedger::from_json(text) {
        let written = ledger.to_json().expect("a ledger that was read can be written");
        let again = PrivacyLedger::from_json(&written).expect("what was written can be read");
        assert_eq!(again, ledger);
    }
});
