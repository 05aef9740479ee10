//! The readers accept the seeds of their fuzz targets, with the checks of the targets.

#![allow(unreachable_pub, dead_code, reason = "the files belong to the fuzz targets too")]

#[path = "../../fuzz/src/files.rs"]
mod files;
#[path = "../../fuzz/src/data.rs"]
mod readers;
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;

/// The name of a target, and its reader.
type Reader = (&'static str, fn(&[u8]) -> bool);

#[test]
fn readers_accept_the_files_from_which_the_fuzzer_starts() {
    let mut readers: Vec<Reader> = vec![
        ("images", readers::images),
        ("records", readers::records),
        ("archive", readers::archive),
        ("plays", readers::plays),
        ("words", readers::words),
        ("word_vectors", readers::word_vectors),
        ("recipe", readers::recipe),
    ];
    if cfg!(feature = "images") {
        readers.push(("folder", readers::folder));
    }
    for (target, read) in readers {
        for (name, bytes) in seeds::of(target) {
            assert!(read(&bytes), "{target}/{name}");
        }
    }
}
