//! The JSON text of a ledger: an error, or a ledger that its own text restores.

#![no_main]

use burn_dp_fuzz::accountant;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    accountant::ledger(text);
});
