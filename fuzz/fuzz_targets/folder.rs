//! A PNG or JPEG file in a folder of images: an error, or an image.

#![no_main]

use burn_dp_fuzz::data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    data::folder(bytes);
});
