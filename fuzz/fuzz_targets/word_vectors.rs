//! A file of word vectors: an error, or a table with a row for each word.

#![no_main]

use burn_dp_examples::data::WordVectors;
use burn_dp_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file("vectors.txt", bytes, |path| {
        let Ok(vectors) = WordVectors::read(path, 1000) else { return };
        assert_eq!(vectors.rows.len(), vectors.vocabulary.len() * vectors.dimension);
        assert!(vectors.rows.iter().all(|value| value.is_finite()));
    });
});
