//! The program in the README is the example that is compiled.

#![allow(clippy::unwrap_used)]

use std::path::Path;

#[test]
fn the_program_in_the_readme_is_the_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = std::fs::read_to_string(folder.join("examples/private_model.rs")).unwrap();
    let (_, program) = example.split_once("\n\n").unwrap();
    // A package that was unpacked on its own has no workspace above it.
    if let Ok(readme) = std::fs::read_to_string(folder.join("../README.md")) {
        assert!(readme.contains(program), "copy examples/private_model.rs into README.md");
    }
    assert!(program.lines().count() < 40);
}
