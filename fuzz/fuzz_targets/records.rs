//! The binary records of CIFAR-10: an error, or images with their labels.

#![no_main]

use burn::data::dataset::Dataset;
use burn_dp_examples::data::cifar10;
use burn_dp_fuzz::with_files;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_files(&[("data_batch_1.bin", bytes), ("test_batch.bin", bytes)], |folder| {
        let Ok(splits) = cifar10::read(folder) else { return };
        assert_eq!(splits.train.len(), bytes.len() / 3073);
        assert_eq!(splits.test.len(), splits.train.len());
    });
});
