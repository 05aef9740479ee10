//! The file with the key of a run, with a right checksum: an error that leaves the file, or a new
//! key in place of one that was cut off.

#![no_main]

use burn_dp_fuzz::library;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    library::key_file(bytes);
});
