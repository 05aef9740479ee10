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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use crate::workspace;

    fn read(path: &str) -> String {
        std::fs::read_to_string(workspace::root().join("book").join(path)).unwrap()
    }

    /// Returns every part of a text between `start` and `end`.
    fn between(text: &str, start: &str, end: &str) -> BTreeSet<String> {
        let parts = text.split(start).skip(1).filter_map(|part| part.split_once(end));
        parts.map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn every_chapter_is_in_the_contents_and_has_its_blocks_tested() {
        let contents = between(&read("src/SUMMARY.md"), "](", ")");
        let tested = between(&read("chapters.rs"), ": \"", "\"");
        let folder = std::fs::read_dir(workspace::root().join("book/src")).unwrap();
        let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let chapters: BTreeSet<_> =
            names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
        assert_eq!(contents, chapters);
        let has_blocks = |name: &&String| read(&format!("src/{name}")).contains("```rust");
        for chapter in chapters.iter().filter(has_blocks) {
            assert!(tested.contains(chapter), "{chapter} is not in book/chapters.rs");
        }
        assert!(tested.is_subset(&chapters), "{tested:?}");
    }

    /// Blocks that no doc test compiles are parts of files that other tests compile, or need a
    /// crate that the book does not have.
    #[test]
    fn ignored_blocks_are_included_from_compiled_files() {
        let chapters = between(&read("src/SUMMARY.md"), "](", ")");
        for chapter in chapters {
            let text = read(&format!("src/{chapter}"));
            for block in between(&text, "```rust,ignore\n", "```") {
                let is_allowed = block.trim().starts_with("{{#include ../../")
                    || block.contains("static ALLOCATOR: mimalloc::MiMalloc");
                assert!(is_allowed, "{chapter}: {block}");
            }
        }
    }
}
