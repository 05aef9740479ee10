//! The archives of CIFAR-10 and of the reviews: an error, or splits that have items.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::archive(bytes);
});
