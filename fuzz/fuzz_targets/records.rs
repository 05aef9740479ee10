//! The binary records of CIFAR-10: an error, or images with their labels.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::records(bytes);
});
