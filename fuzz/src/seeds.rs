//! The inputs from which the fuzzer starts.

use std::path::Path;

/// Returns the seeds of a target by name.
///
/// # Panics
///
/// Panics if there are none.
pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).expect("a folder of seeds");
    let seed = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(entry.path()).expect("a seed"))
    };
    let mut seeds: Vec<_> = entries.map(|entry| seed(entry.expect("a seed"))).collect();
    assert!(!seeds.is_empty(), "{} has no seeds", folder.display());
    seeds.sort();
    seeds
}

/// Returns the seeds of a target that are texts.
pub fn texts_of(target: &str) -> Vec<(String, String)> {
    let text = |bytes| String::from_utf8(bytes).expect("a text");
    of(target).into_iter().map(|(name, bytes)| (name, text(bytes))).collect()
}
