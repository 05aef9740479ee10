//! Files have at most 250 lines of code, or state a reason at the top.

use std::collections::BTreeSet;

use super::code::code;
use super::finding::Finding;
use super::modules::Tree;
use super::texts::Texts;

/// The maximum number of lines of code without a reason.
const LINES: usize = 250;

/// The start of the line that gives the reason.
const REASON: &str = "//! Length: ";

/// Returns the files of a crate that are long and do not say why.
///
/// Blank lines, comments and tests do not count.
pub(crate) fn long_files(tree: &Tree, texts: &Texts) -> Vec<Finding> {
    let long = tree.files().into_iter().filter_map(|path| {
        let text = texts.get(&path)?;
        let lines = lines_of_code(text);
        (lines > LINES && !has_reason(text)).then(|| {
            let message = format!(
                "{lines} lines of code, at most {LINES}; split the file, or give the reason in a \
                 line `{}…` at its top",
                REASON
            );
            Finding::new("length", &path, 1, message)
        })
    });
    long.collect()
}

fn lines_of_code(text: &str) -> usize {
    let covered = code(text).into_iter().flat_map(|token| token.line..=token.last_line());
    covered.collect::<BTreeSet<_>>().len()
}

fn has_reason(text: &str) -> bool {
    let top = text.lines().take_while(|line| line.starts_with("//!"));
    top.into_iter().any(|line| line.len() > REASON.len() && line.starts_with(REASON))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: String) -> Vec<String> {
        let texts: Texts = [("a/src/lib.rs".into(), text)].into();
        let tree = Tree::new("a/src/lib.rs", &texts);
        long_files(&tree, &texts).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_long_file_is_found_and_one_that_says_why_is_not() {
        let code = "fn a() {}\n".repeat(251);
        let text = found(code.clone());
        assert!(text[0].starts_with("a/src/lib.rs:1: 251 lines of code"), "{text:?}");
        assert!(found("fn a() {}\n".repeat(250)).is_empty());
        assert!(found(format!("//! A table.\n//!\n//! Length: one table.\n{code}")).is_empty());
        assert_eq!(found(format!("//! Length: \n{code}")).len(), 1);
        assert_eq!(found(format!("{code}//! Length: too late.\n")).len(), 1);
    }

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        let rest = "// why\n\n/// Doc.\n".repeat(200);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn a() {}\n".repeat(300));
        assert!(found(format!("{}{rest}{tests}", "fn a() {}\n".repeat(240))).is_empty());
    }

    #[test]
    fn every_line_of_a_string_counts() {
        assert_eq!(lines_of_code("const A: &str = \"a\nb\nc\";"), 3);
    }
}
