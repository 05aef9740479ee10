//! The record of a run, with right lengths and checksums: an error, or a run that continues with
//! no less spent than its log says.

#![no_main]

use burn_dp_fuzz::library;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    library::checkpoint(bytes);
});
