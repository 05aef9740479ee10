//! A list of words: an error, or numbers below the size of the vocabulary.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::words(bytes);
});
