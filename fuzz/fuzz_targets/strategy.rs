//! A file of a strategy of correlated noise: an error, or a strategy whose noise is finite.

#![no_main]

use burn_dp_fuzz::accountant;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    accountant::strategy(bytes);
});
