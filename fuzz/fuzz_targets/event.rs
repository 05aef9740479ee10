//! The JSON text of an event and the analysis of it: an error, or an ordered bracket.

#![no_main]

use burn_dp_fuzz::accountant;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    accountant::event(text);
});
