//! The file that `--ledger FILE` names: an error, or a ledger with ordered upper bounds.

#![no_main]

use burn_dp_fuzz::accountant;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    accountant::ledger_file(bytes);
});
