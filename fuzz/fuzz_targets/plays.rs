//! The roles of the plays, one JSON object in each line: an error, or users with windows.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::plays(bytes);
});
