//! The readers accept the seeds of their fuzz targets, with the checks of the targets.

#![allow(unreachable_pub, dead_code, reason = "the files belong to the fuzz targets too")]

#[path = "../../fuzz/src/files.rs"]
mod files;
#[path = "../../fuzz/src/accountant.rs"]
mod readers;
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;

/// The name of a target, and its reader.
type Reader<T> = (&'static str, fn(&T) -> bool);

#[test]
fn readers_accept_the_texts_from_which_the_fuzzer_starts() {
    let readers: [Reader<str>; 4] = [
        ("ledger", readers::ledger),
        ("event", readers::event),
        ("scores", readers::scores),
        ("statement", readers::statement),
    ];
    for (target, read) in readers {
        for (name, text) in seeds::texts_of(target) {
            assert!(read(&text), "{target}/{name}");
        }
    }
}

#[test]
fn readers_accept_the_files_from_which_the_fuzzer_starts() {
    let readers: [Reader<[u8]>; 2] =
        [("ledger_file", readers::ledger_file), ("strategy", readers::strategy)];
    for (target, read) in readers {
        for (name, bytes) in seeds::of(target) {
            assert!(read(&bytes), "{target}/{name}");
        }
    }
}
