//! A table of texts, as `.csv` or `.jsonl`, plain or gzip: an error, or two halves that can be read
//! and halved again or have one group.

#![no_main]

use burn_dp_fuzz::models;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    models::texts(bytes);
});
