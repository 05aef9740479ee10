//! The IDX files of MNIST: an error, or as many items as the header says.

#![no_main]

use burn_dp_examples::data::idx;
use burn_dp_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file("train-images-idx3-ubyte", bytes, |path| {
        let promised = bytes.get(4..8).map(|count| u32::from_be_bytes(count.try_into().unwrap()));
        let promised = promised.map(|count| count as usize);
        if let Ok(images) = idx::read_images(path) {
            assert!(!images.is_empty());
            assert!(bytes[0] == 0x1f || Some(images.len()) == promised);
        }
        if let Ok(labels) = idx::read_labels(path) {
            assert!(labels.iter().all(|&label| label < 10));
            assert!(bytes[0] == 0x1f || Some(labels.len()) == promised);
        }
    });
});
