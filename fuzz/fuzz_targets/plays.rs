//! The roles of the plays, one JSON object in each line: an error, or users with windows.

#![no_main]

use burn_dp_examples::data::shakespeare::{self, Tokens, UserWindows};
use burn_dp_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file("shakespeare-users.jsonl", bytes, |path| {
        let folder = path.parent().expect("a folder");
        let Ok(roles) = shakespeare::from_folder(folder) else { return };
        let users = UserWindows::new(&roles, &Tokens::Characters, 8);
        assert!(users.users().iter().all(|windows| !windows.is_empty()));
    });
});
