//! The JSON text of a statement: an error, or a statement that can be printed and read again.

#![no_main]

use burn_dp_accountant::PrivacyStatement;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(statement) = serde_json::from_str::<PrivacyStatement>(text) {
        assert!(!statement.to_string().is_empty());
        let written = statement.to_json().expect("a statement that was read can be written");
        let again: PrivacyStatement =
            serde_json::from_str(&written).expect("what was written can be read");
        assert_eq!(again, statement);
    }
});
