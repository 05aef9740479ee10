//! A PNG or JPEG file in a folder of images: an error, or an image.

#![no_main]

use burn::data::dataset::Dataset;
use burn_dp_examples::data::folder;
use burn_dp_fuzz::with_files;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let names = ["train/a/1.png", "train/b/1.jpg", "test/a/1.png"];
    with_files(&names.map(|name| (name, bytes)), |path| {
        if let Ok(splits) = folder::read(path, 8) {
            assert_eq!(splits.train.len(), 2);
        }
    });
});
