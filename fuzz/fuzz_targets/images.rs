//! The IDX files of MNIST: an error, or as many items as the header says.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::images(bytes);
});
