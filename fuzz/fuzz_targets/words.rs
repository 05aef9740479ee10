//! A list of words: an error, or numbers below the size of the vocabulary.

#![no_main]

use burn_dp_examples::data::shakespeare::Tokens;
use burn_dp_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file("words.txt", bytes, |path| {
        let Ok(tokens) = Tokens::words(path) else { return };
        let text = String::from_utf8_lossy(bytes);
        assert!(tokens.encode(&text).iter().all(|&token| usize::from(token) < tokens.len()));
    });
});
