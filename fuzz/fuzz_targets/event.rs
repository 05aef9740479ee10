//! The JSON text of an event and the analysis of it: an error, or an ordered bracket.

#![no_main]

use burn_dp_accountant::{
    DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, UnitOfPrivacy,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(event) = serde_json::from_str::<DpEvent>(text) else { return };
    assert!(!event.to_string().is_empty());
    for relation in [NeighboringRelation::AddOrRemoveOne, NeighboringRelation::ReplaceOne] {
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        if ledger.record(&event).is_err() {
            return;
        }
        if let Ok(epsilon) = ledger.epsilon(1e-5) {
            let ordered = epsilon.lower >= 0.0
                && epsilon.lower <= epsilon.estimate
                && epsilon.estimate <= epsilon.upper;
            assert!(ordered, "{event:?}: {epsilon:?}");
        }
    }
});
