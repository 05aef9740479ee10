//! The book: its pages, and the Rust blocks in them.

use crate::announcement::Announcement;
use crate::process::Process;
use crate::workspace::BOOK;

/// Returns the compilation and the runs of the Rust blocks; needs no mdBook.
///
/// The libraries are selected too, so that the dependencies have the features that they have in the
/// tests, and both share one build of Burn.
pub(crate) fn blocks() -> Process {
    Process::cargo()
        .args(["test", "--doc", "-p", BOOK, "-p", "burn-dp-accountant", "-p", "burn-dp"])
        .args(["--features", "burn-dp/ndarray,burn-dp/train", "--", "book/src/"])
        .builds(Announcement::new("the book's programs", &["ndarray", "train"]))
}

/// Returns the pages as HTML, in the build folder.
pub(crate) fn pages(open: bool) -> Process {
    let process = Process::new("mdbook").args(["build", "book"]);
    let process = if open { process.arg("--open") } else { process };
    process.remedy("`cargo install mdbook --locked` installs mdBook if it is missing")
}
