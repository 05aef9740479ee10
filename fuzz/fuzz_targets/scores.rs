//! The JSON text of audit scores: an error, or scores with an estimate of each kind.

#![no_main]

use burn_dp_accountant::audit::{Audit, AuditScores};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(scores) = AuditScores::from_json(text) else { return };
    // An exact bound of many scores takes seconds.
    if scores.canaries() > 64 {
        return;
    }
    let audit = Audit::new(&scores, 1e-5).expect("a delta that is allowed");
    assert!(!audit.estimates().is_empty());
});
