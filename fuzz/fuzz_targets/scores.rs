//! The JSON text of audit scores: an error, or scores with an estimate of each kind.

#![no_main]

use burn_dp_fuzz::accountant;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    accountant::scores(text);
});
