//! The book: its pages, and the Rust blocks in them.

use crate::announcement::Announcement;
use crate::process::Process;
use crate::test;
use crate::workspace::{BOOK, FULL_PARTS};

/// Returns the compilation and the runs of the Rust blocks; needs no mdBook.
///
/// The packages and features are the same as for the tests, so that both share one build of Burn.
pub(crate) fn blocks() -> Process {
    test::packages(Process::cargo().args(["test", "--doc", "-p", BOOK]))
        .args(["--", "book/src/"])
        .builds(Announcement::new("the book's programs", &FULL_PARTS))
}

/// Returns the pages as HTML, in the build folder.
pub(crate) fn pages(open: bool) -> Process {
    let process = Process::new("mdbook").args(["build", "book"]);
    let process = if open { process.arg("--open") } else { process };
    process.remedy("`cargo install mdbook --locked` installs mdBook if it is missing")
}
