//! The readers accept the seeds of their fuzz targets, with the checks of the targets.

#![allow(unreachable_pub, dead_code, reason = "the files belong to the fuzz targets too")]

#[path = "../../fuzz/src/files.rs"]
mod files;
#[path = "../../fuzz/src/models.rs"]
mod readers;
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn the_reader_of_texts_accepts_the_files_from_which_the_fuzzer_starts() {
    for (name, bytes) in seeds::of("texts") {
        assert!(readers::texts(&bytes), "{name}");
    }
}
