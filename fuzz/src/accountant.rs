//! The readers of the accountant. Each returns whether the input was accepted.

use burn_dp_accountant::audit::{Audit, AuditScores};
use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_accountant::{
    Accountant, DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, PrivacyStatement,
    RdpAccountant, UnitOfPrivacy,
};

use super::files::with_file;

/// Reads the JSON text of a ledger, which its own text restores.
pub fn ledger(text: &str) -> bool {
    let Ok(ledger) = PrivacyLedger::from_json(text) else { return false };
    let written = ledger.to_json().expect("a ledger that was read can be written");
    let again = PrivacyLedger::from_json(&written).expect("what was written can be read");
    assert_eq!(again, ledger);
    true
}

/// Reads the file that `--ledger FILE` names. Its upper bounds are ordered.
pub fn ledger_file(bytes: &[u8]) -> bool {
    let Ok(ledger) = with_file("ledger.json", bytes, |path| PrivacyLedger::load(path)) else {
        return false;
    };
    let events = || ledger.entries().iter().map(|entry| (&entry.event, entry.count));
    let Ok(rdp) = RdpAccountant::new(events(), ledger.header().relation) else { return true };
    if let (Ok(likely), Ok(unlikely)) = (rdp.epsilon(1e-5), rdp.epsilon(1e-6)) {
        assert!(likely.upper >= 0.0 && likely.upper <= unlikely.upper, "{likely:?} {unlikely:?}");
    }
    true
}

/// Reads the JSON text of an event, and analyzes the event. The bracket is ordered.
pub fn event(text: &str) -> bool {
    let Ok(event) = serde_json::from_str::<DpEvent>(text) else { return false };
    assert!(!event.to_string().is_empty());
    for relation in [NeighboringRelation::AddOrRemoveOne, NeighboringRelation::ReplaceOne] {
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        if ledger.record(&event).is_err() {
            return false;
        }
        if let Ok(epsilon) = ledger.epsilon(1e-5) {
            let ordered = epsilon.lower >= 0.0
                && epsilon.lower <= epsilon.estimate
                && epsilon.estimate <= epsilon.upper;
            assert!(ordered, "{event:?}: {epsilon:?}");
        }
    }
    true
}

/// Reads the JSON text of audit scores, which have an estimate of each kind.
pub fn scores(text: &str) -> bool {
    let Ok(scores) = AuditScores::from_json(text) else { return false };
    // An exact bound of many scores takes seconds.
    if scores.canaries() <= 64 {
        let audit = Audit::new(&scores, 1e-5).expect("a delta that is allowed");
        assert!(!audit.estimates().is_empty());
    }
    true
}

/// Reads the JSON text of a statement, which can be printed and read again.
pub fn statement(text: &str) -> bool {
    let Ok(statement) = serde_json::from_str::<PrivacyStatement>(text) else { return false };
    assert!(!statement.to_string().is_empty());
    let written = statement.to_json().expect("a statement that was read can be written");
    let again: PrivacyStatement =
        serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(again, statement);
    true
}

/// Reads a file of a strategy of correlated noise. Its noise is finite.
pub fn strategy(bytes: &[u8]) -> bool {
    let Ok(strategy) = with_file("strategy.json", bytes, |path| Strategy::load(path)) else {
        return false;
    };
    let noising = strategy.noising();
    let mut stream = noising.stream();
    for _ in 0..strategy.steps().min(16) {
        assert!(stream.next(1.0).is_some_and(f64::is_finite), "{strategy}");
    }
    true
}
