//! A recipe of the training program: an error, or settings of a training mode.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::recipe(bytes);
});
