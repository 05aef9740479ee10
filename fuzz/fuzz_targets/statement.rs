//! The JSON text of a statement: an error, or a statement that can be printed and read again.

#![no_main]

use burn_dp_fuzz::accountant;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    accountant::statement(text);
});
