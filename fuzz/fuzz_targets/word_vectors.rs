//! A file of word vectors: an error, or a table with a row for each word.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::word_vectors(bytes);
});
