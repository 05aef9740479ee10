//! The readers accept the seeds of their fuzz targets, with the checks of the targets.

#![allow(unreachable_pub, dead_code, reason = "the files belong to the fuzz targets too")]

#[path = "../../fuzz/src/files.rs"]
mod files;
#[path = "../../fuzz/src/library.rs"]
mod readers;
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn readers_accept_or_refuse_the_files_from_which_the_fuzzer_starts() {
    for (name, bytes) in seeds::of("checkpoint") {
        // There is no log of the three steps.
        assert_eq!(readers::checkpoint(&bytes), name.ends_with("-0"), "{name}");
    }
    for (name, bytes) in seeds::of("release_log") {
        assert!(!readers::release_log(&bytes), "{name} is of a run that was not loaded");
    }
    for (name, bytes) in seeds::of("key_file") {
        assert_eq!(readers::key_file(&bytes), name == "cut-off", "{name}");
    }
}
