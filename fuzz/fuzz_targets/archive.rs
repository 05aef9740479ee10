//! The archives of CIFAR-10 and of the reviews: an error, or splits that have items.

#![no_main]

use burn::data::dataset::Dataset;
use burn_dp_examples::data::{Vocabulary, cifar10, imdb};
use burn_dp_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file("archive.tar", bytes, |path| {
        if let Ok(splits) = cifar10::read(path) {
            assert!(splits.train.len() > 0 && splits.test.len() > 0);
        }
        let vocabulary = Vocabulary::listed(["good", "bad"].map(String::from));
        if let Ok(splits) = imdb::read(path, &vocabulary, 8) {
            assert!(splits.train.len() > 0 && splits.test.len() > 0);
        }
    });
});
