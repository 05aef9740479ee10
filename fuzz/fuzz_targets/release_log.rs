//! The log of releases, with right checksums: an error, or a run that continues after it.

#![no_main]

use burn_dp_fuzz::library;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    library::release_log(bytes);
});
